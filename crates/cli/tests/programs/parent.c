// A process with a child that ended, among others that work. It waits for its child when a file is there; the first
// process tells how it ended. Usage: parent FILE
#define _GNU_SOURCE
#include "check.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OTHERS = 24, CODE = 7 };

static volatile uint64_t worked;

static void work(void) {
    worked++;
    usleep(300);
}

static int holds_a_child(const char *file) {
    siginfo_t told;
    int status;
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) _exit(CODE);
    CHECK(waitid(P_PID, (id_t)child, &told, WEXITED | WNOWAIT) == 0, "waitid");
    CHECK(prctl(PR_SET_NAME, "parent") == 0, "prctl");
    while (access(file, F_OK) != 0) work();
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == CODE ? 0 : 1;
}

int main(int argc, char **argv) {
    CHECK(argc == 2 && prctl(PR_SET_NAME, "first") == 0, "usage: parent FILE");
    pid_t parent = fork(), others[OTHERS];
    CHECK(parent >= 0, "fork");
    if (parent == 0) _exit(holds_a_child(argv[1]));
    for (int i = 0; i < OTHERS; i++) {
        others[i] = fork();
        CHECK(others[i] >= 0, "fork");
        while (others[i] == 0) work();
    }
    int status;
    CHECK(waitpid(parent, &status, 0) == parent, "waitpid");
    usleep(200000); // the end is not soon
    for (int i = 0; i < OTHERS; i++) kill(others[i], SIGKILL);
    for (int i = 0; i < OTHERS; i++) CHECK(waitpid(others[i], NULL, 0) == others[i], "waitpid");
    if (WIFSIGNALED(status)) puts("killed");
    else puts(WEXITSTATUS(status) == 0 ? "has its child" : "lost its child");
    return 0;
}
