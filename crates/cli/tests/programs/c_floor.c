// What a program, its threads and what it executes see of the processor, again and again.
// Usage: c_floor TURNS; it prints what that is, so it is no oracle of itself under a floor
#include "check.h"
#include <cpuid.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// Leaves whose answer says what may be used: which bits of which register.
static void seen(char *text, size_t room) {
    unsigned a, b, c, d, text_at = 0;
    unsigned leaves[][2] = {{1, 0}, {7, 0}, {7, 1}, {0xd, 1}, {0x80000001, 0}};
    for (int i = 0; i < 5; i++) {
        __cpuid_count(leaves[i][0], leaves[i][1], a, b, c, d);
        unsigned flags = leaves[i][0] == 7 ? b : leaves[i][0] == 0xd ? a : c & ~(1u << 31); // but for a hypervisor
        text_at += snprintf(text + text_at, room - text_at, "%x/%x:%08x ", leaves[i][0], leaves[i][1], flags);
    }
    snprintf(text + text_at, room - text_at, "avx %d avx2 %d avx512 %d", !!__builtin_cpu_supports("avx"),
             !!__builtin_cpu_supports("avx2"), !!__builtin_cpu_supports("avx512f"));
}

static char first[400];

static void *look(void *unused) {
    char again[400];
    seen(again, sizeof again);
    CHECK(strcmp(first, again) == 0, "%s, then %s", first, again);
    return unused;
}

static sigjmp_buf back;
static volatile char *volatile nowhere = (volatile char *)0x1234;

static void fault(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    siglongjmp(back, info->si_code == SEGV_MAPERR && info->si_addr == (void *)nowhere ? 1 : 2);
}

// A fault of the program's own is its own, with its address.
static void faults(void) {
    struct sigaction action = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0, "sigaction");
    int came = sigsetjmp(back, 1);
    if (came == 0) *nowhere = 0;
    CHECK(came == 1, "a fault came as %d", came);
    signal(SIGSEGV, SIG_DFL);
}

int main(int argc, char **argv) {
    seen(first, sizeof first);
    if (argc == 3) { // executed by itself
        CHECK(strcmp(first, argv[2]) == 0, "%s, not %s", first, argv[2]);
        faults();
        return 7;
    }
    int turns = argc > 1 ? atoi(argv[1]) : 10;
    printf("%s\n", first);
    for (int turn = 0; turn < turns; turn++) {
        look(NULL);
        faults();
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, look, NULL) == 0, "a thread");
        CHECK(pthread_join(thread, NULL) == 0, "its end");
        if (turn % 4 == 0) {
            pid_t pid = fork();
            if (pid == 0) {
                look(NULL);
                execl("/proc/self/exe", argv[0], "1", first, NULL);
                _exit(1);
            }
            int status;
            CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7, "status %x", status);
        }
        printf("%d\n", turn);
        fflush(stdout);
    }
    return 0;
}
