#!/bin/sh
# How long a tree stands still at a checkpoint: one process that writes memory, alone and beside sleepers.
# Usage: bench/sleepers.sh [TWINPAGE [SLEEPERS]]. Prints the median of the stops in microseconds, three times each.
set -eu
twinpage=${1:-target/release/twinpage}
sleepers=${2:-64}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat > "$scratch/tree.c" <<'C'
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 256 << 10, SECONDS = 4 };
static volatile char memory[BYTES];

int main(int argc, char **argv) {
    int sleepers = argc > 1 ? atoi(argv[1]) : 0;
    pid_t pids[1024];
    for (int i = 0; i < sleepers && i < 1024; i++)
        if ((pids[i] = fork()) == 0)
            for (;;) pause();
    time_t end = time(NULL) + SECONDS;
    for (unsigned long i = 0; time(NULL) < end; )
        for (int j = 0; j < 100000; j++) memory[i++ * 64 % BYTES]++;
    for (int i = 0; i < sleepers && i < 1024; i++) kill(pids[i], SIGTERM), waitpid(pids[i], NULL, 0);
}
C
cc -O2 -o "$scratch/tree" "$scratch/tree.c"
for turn in 1 2 3; do
    for count in 0 "$sleepers"; do
        "$twinpage" run --state "$scratch/state.$turn.$count" --every 16ms --durability memory \
            --stats "$scratch/stats" -- "$scratch/tree" "$count" > /dev/null
        stops=$(tr -d ' \n' < "$scratch/stats" | sed -n 's/.*"stop_us":{\([^}]*\)}.*/\1/p')
        echo "$count sleepers: $stops"
    done
done
