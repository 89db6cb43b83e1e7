// Children that ended, and are not waited for until much later: how each ended, its id and its group are there as long
// as that. Usage: c_zombies ROUNDS
#define _GNU_SOURCE
#include "check.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 5, BYTES = 1 << 20 };

static unsigned char work[BYTES];

static uint64_t compute(uint64_t seed) {
    pattern_fill(work, seed, 0, BYTES);
    return fold_bytes(seed, work, BYTES);
}

// How child `which` of a round ends: an exit code, or the negative number of a signal.
static int fate(int round, int which) {
    static const int signals[] = {SIGKILL, SIGTERM, SIGUSR1, SIGPIPE, SIGALRM};
    return which % 2 ? -signals[(round + which) % 5] : (round * 7 + which) % 256;
}

static void end(int how) {
    if (how >= 0) _exit(how);
    raise(-how);
    _exit(99);
}

static int came_to(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status); }

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 10;
    uint64_t digest = 0;
    sigset_t child_ends;
    sigemptyset(&child_ends);
    sigaddset(&child_ends, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child_ends, NULL);
    for (int round = 0; round < rounds; round++) {
        pid_t children[CHILDREN];
        for (int i = 0; i < CHILDREN; i++) {
            children[i] = fork();
            CHECK(children[i] >= 0, "fork");
            if (children[i] == 0) {
                if (i == 2) setpgid(0, 0);
                if (i == 3) setsid();
                end(fate(round, i));
            }
        }
        for (int i = 0; i < CHILDREN; i++) {
            siginfo_t info = {0};
            CHECK(waitid(P_PID, (id_t)children[i], &info, WEXITED | WNOWAIT) == 0, "waitid");
        }
        for (int i = 0; i < 6; i++) digest = compute(digest + (uint64_t)i);
        // One signal tells of them all; none comes once it is taken.
        siginfo_t told;
        struct timespec none = {0};
        CHECK(sigtimedwait(&child_ends, &told, &none) == SIGCHLD, "it is told of a child");
        CHECK(sigtimedwait(&child_ends, &told, &none) < 0 && errno == EAGAIN, "it is told once");
        CHECK(getpgid(children[0]) == getpgrp(), "group");
        CHECK(getpgid(children[2]) == children[2], "group of its own");
        CHECK(getsid(children[3]) == children[3], "session of its own");
        CHECK(kill(children[1], SIGTERM) == 0, "a zombie is there");
        for (int i = CHILDREN - 1; i >= 0; i--) {
            int status;
            CHECK(waitpid(children[i], &status, 0) == children[i], "round %d, child %d", round, i);
            CHECK(came_to(status) == fate(round, i), "child %d ended with %x", i, status);
            CHECK(!WCOREDUMP(status), "no dump");
            digest = fold(digest, (uint64_t)came_to(status));
        }
        CHECK(waitpid(-1, NULL, 0) < 0 && errno == ECHILD, "no other child");
        printf("round %d: %016llx\n", round, (unsigned long long)digest);
        fflush(stdout);
    }
    return 0;
}
