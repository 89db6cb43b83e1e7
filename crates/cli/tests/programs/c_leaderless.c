// A program whose main thread ends at once, and whose other threads go on without it.
//
// - what belongs to the process is used by threads that come and go: files, pipes, the working directory,
//   signals, a timer, memory;
// - what the main thread left behind stays: its exit is seen by a thread that joins it.
//
// It works in its current directory, which should be empty. Usage: c_leaderless [ROUNDS]
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 20 };

static pthread_t main_thread;
static long rounds;
static int file, pipe_ends[2];
static volatile sig_atomic_t rung;

static void on_ring(int signal) { rung += signal == SIGUSR2; }

// A thread of a few steps: each leaves one word in the pipe and in the file.
static void *worker(void *argument) {
    uint64_t word = *(uint64_t *)argument;
    for (int i = 0; i < 4; i++) word = spin(word + 1, 400000);
    CHECK(write(pipe_ends[1], &word, sizeof word) == sizeof word, "write to the pipe");
    CHECK(write(file, &word, sizeof word) == sizeof word, "write to the file");
    return NULL;
}

static uint64_t round_of(long round, uint64_t digest) {
    char path[64], want[64];
    for (int i = 0; i < STEPS; i++) {
        pthread_t thread;
        uint64_t word = digest + (uint64_t)i, back, kept;
        CHECK(!pthread_create(&thread, NULL, worker, &word) && !pthread_join(thread, NULL), "a thread");
        CHECK(read(pipe_ends[0], &back, sizeof back) == sizeof back, "read from the pipe");
        CHECK(pread(file, &kept, sizeof kept, lseek(file, 0, SEEK_CUR) - 8) == 8 && kept == back, "the file");
        CHECK(getpid() != syscall(SYS_gettid), "the main thread is back");
        digest = fold(digest, back);
    }
    snprintf(want, sizeof want, "d%ld", round);
    CHECK(!mkdir(want, 0700) && !chdir(want) && getcwd(path, sizeof path - 1) != NULL, "chdir");
    CHECK(!strcmp(strrchr(path, '/') + 1, want) && !chdir(".."), "the directory is %s, not %s", path, want);
    int before = rung;
    CHECK(!kill(getpid(), SIGUSR2), "kill");
    while (rung == before) usleep(100);
    return digest;
}

static void *life(void *argument) {
    (void)argument;
    void *left;
    CHECK(!pthread_join(main_thread, &left) && left == &rounds, "the main thread is joined");
    uint64_t digest = 1;
    for (long round = 0; round < rounds; round++) {
        digest = round_of(round, digest);
        printf("round %ld: %016llx\n", round, (unsigned long long)digest);
        fflush(stdout);
    }
    exit(0);
}

int main(int argc, char **argv) {
    rounds = scale(argc, argv, 60);
    main_thread = pthread_self();
    struct sigaction action = {.sa_handler = on_ring, .sa_flags = SA_RESTART};
    CHECK(!sigaction(SIGUSR2, &action, NULL), "sigaction");
    file = open("words", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0 && !pipe(pipe_ends), "open");
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, life, NULL), "a thread");
    pthread_exit(&rounds);
}
