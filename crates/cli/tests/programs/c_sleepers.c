// A process that writes memory beside many that sleep, in several calls. In every round something of a sleeper is changed
// from outside, or a sleeper is woken; each tells what it is when it is asked, and it is what it has to be.
// Usage: c_sleepers ROUNDS
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { SLEEPERS = 18, LONG_S = 100000, HEAP = 1 << 20 };

struct answer {
    uint64_t asked, limit, offset, count;
    int flags, nice, priority_errno;
    pid_t pid, parent, group, session;
    char directory[64];
    int waits; // SIGUSR2, which one blocks
};

static int answers[2], ticks[2], shared = -1;
static uint64_t asked;
static pid_t child; // of one that waits for it

static void answer(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    ucontext_t *at = context;
    struct answer is = {.asked = ++asked, .pid = getpid(), .parent = getppid(), .group = getpgrp(), .session = getsid(0)};
    struct rlimit limit;
    getrlimit(RLIMIT_CORE, &limit);
    is.limit = limit.rlim_cur;
    is.offset = (uint64_t)lseek(shared, 0, SEEK_CUR);
    is.flags = fcntl(shared, F_GETFL) & O_APPEND;
    is.nice = getpriority(PRIO_PROCESS, 0);
    is.count = (uint64_t)at->uc_mcontext.gregs[REG_R12];
    if (getcwd(is.directory, sizeof is.directory) == NULL) strcpy(is.directory, "none");
    char *name = strrchr(is.directory, '/');
    memmove(is.directory, name ? name + 1 : is.directory, strlen(name ? name + 1 : is.directory) + 1);
    sigset_t pending;
    sigpending(&pending);
    is.waits = sigismember(&pending, SIGUSR2);
    if (write(answers[1], &is, sizeof is) != sizeof is) _exit(9);
}

static void end(int signal) {
    (void)signal;
    if (child > 0) kill(child, SIGKILL);
    _exit(0);
}

// Counts its wakes in a register and tells each by a byte, and writes nothing to memory.
static void count_in_a_register(void) {
    static const struct timespec pause = {0, 120 * 1000 * 1000};
    static const char byte = 't';
    __asm__ volatile(
        "xor %%r12d, %%r12d\n"
        "1: mov %0, %%rdi\n xor %%esi, %%esi\n mov %2, %%eax\n syscall\n"
        "inc %%r12\n"
        "mov %3, %%edi\n mov %1, %%rsi\n mov $1, %%edx\n mov %4, %%eax\n syscall\n"
        "jmp 1b\n"
        :
        : "r"(&pause), "r"(&byte), "i"(SYS_nanosleep), "r"(ticks[1]), "i"(SYS_write)
        : "rax", "rcx", "r11", "rdi", "rsi", "rdx", "r12", "memory");
}

static void sleep_in(int kind) {
    static int word;
    struct timespec left = {LONG_S, 0};
    if (kind == 5) count_in_a_register();
    if (kind == 4) {
        sigset_t blocked;
        sigemptyset(&blocked), sigaddset(&blocked, SIGUSR2);
        sigprocmask(SIG_BLOCK, &blocked, NULL);
    }
    if (kind == 3 && (child = fork()) == 0)
        for (;;) pause();
    for (;;) switch (kind) {
        case 1: nanosleep(&left, &left); break;
        case 2: poll(NULL, 0, -1); break;
        case 3: waitpid(child, NULL, 0); break;
        case 5: break;
        case 6: syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL, NULL, 0); break;
        default: pause();
        }
}

struct sleeper {
    pid_t pid;
    int kind, stopped;
    struct answer is;
};
static struct sleeper all[SLEEPERS];

static struct answer ask(struct sleeper *one) {
    struct answer is;
    CHECK(kill(one->pid, SIGUSR1) == 0, "kill");
    ssize_t n;
    while ((n = read(answers[0], &is, sizeof is)) < 0 && errno == EINTR) {}
    CHECK(n == sizeof is, "an answer of %zd", n);
    return is;
}

static void check(struct sleeper *one) {
    struct answer is = ask(one);
    one->is.asked++;
    CHECK(is.asked == one->is.asked, "it was asked %lu times", is.asked);
    CHECK(is.pid == one->pid && is.parent == getpid() && is.session == getsid(0), "it is another");
    CHECK(is.group == one->is.group, "group %d, not %d", is.group, one->is.group);
    CHECK(is.limit == one->is.limit, "limit %lu, not %lu", is.limit, one->is.limit);
    CHECK(is.nice == one->is.nice, "niceness %d, not %d", is.nice, one->is.nice);
    CHECK(is.offset == (uint64_t)lseek(shared, 0, SEEK_CUR), "offset %lu", is.offset);
    CHECK(is.flags == (fcntl(shared, F_GETFL) & O_APPEND), "flags %x", is.flags);
    CHECK(is.waits == one->is.waits, "SIGUSR2 waits: %d", is.waits);
    CHECK(strcmp(is.directory, one->is.directory) == 0, "it is in %s", is.directory);
}

// Renames the directory that all sleepers are in.
static void move(long round) {
    char to[24];
    snprintf(to, sizeof to, "in%ld", round);
    CHECK(rename(all[0].is.directory, to) == 0, "rename %s", to);
    for (int i = 0; i < SLEEPERS; i++) strcpy(all[i].is.directory, to);
}

static void stop_or_continue(struct sleeper *one) {
    siginfo_t told;
    one->stopped = !one->stopped;
    CHECK(kill(one->pid, one->stopped ? SIGSTOP : SIGCONT) == 0, "kill");
    if (one->stopped) CHECK(waitid(P_PID, one->pid, &told, WSTOPPED) == 0 && told.si_pid == one->pid, "it stops");
}

static void change(struct sleeper *one, int what, long round) {
    struct rlimit limit = {1000 + round, RLIM_INFINITY};
    switch (what) {
    case 0:
        one->is.limit = limit.rlim_cur;
        CHECK(prlimit(one->pid, RLIMIT_CORE, &limit, NULL) == 0, "prlimit");
        break;
    case 1:
        one->is.group = one->is.group == one->pid ? getpgrp() : one->pid;
        CHECK(setpgid(one->pid, one->is.group) == 0, "setpgid");
        break;
    case 2:
        one->is.nice += one->is.nice < 15;
        CHECK(setpriority(PRIO_PROCESS, one->pid, one->is.nice) == 0, "setpriority");
        break;
    case 3: CHECK(lseek(shared, round * 7, SEEK_SET) == round * 7, "lseek"); break;
    case 4: CHECK(fcntl(shared, F_SETFL, fcntl(shared, F_GETFL) ^ O_APPEND) == 0, "fcntl"); break;
    case 5: stop_or_continue(one); break;
    case 6:
        if (one->kind != 4) break;
        one->is.waits = 1;
        CHECK(kill(one->pid, SIGUSR2) == 0, "kill");
        break;
    case 7: move(round); break;
    default: break;
    }
}

static uint64_t drain(void) {
    char bytes[512];
    ssize_t n;
    uint64_t sum = 0;
    while ((n = read(ticks[0], bytes, sizeof bytes)) > 0) sum += (uint64_t)n;
    return sum;
}

int main(int argc, char **argv) {
    long rounds = scale(argc, argv, 100);
    uint64_t random = 7, digest = 0, told = 0;
    static uint64_t heap[HEAP / 8];
    CHECK(pipe2(answers, O_CLOEXEC) == 0 && pipe2(ticks, O_CLOEXEC) == 0, "pipes");
    CHECK((shared = open("shared", O_RDWR | O_CREAT, 0600)) >= 0, "open");
    CHECK(mkdir("in", 0700) == 0, "mkdir");
    struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    signal(SIGTERM, end);
    struct rlimit limit = {1000, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_CORE, &limit) == 0, "setrlimit");
    for (int i = 0; i < SLEEPERS; i++) {
        all[i] = (struct sleeper){.kind = i % 7, .is = {.limit = 1000, .group = getpgrp(), .directory = "in"}};
        if ((all[i].pid = fork()) == 0) {
            CHECK(chdir("in") == 0, "chdir");
            sleep_in(i % 7);
        }
        CHECK(all[i].pid > 0, "fork");
    }
    struct timespec begun = {0, 30 * 1000 * 1000};
    nanosleep(&begun, NULL); // all are in their directory
    CHECK(fcntl(ticks[0], F_SETFL, O_NONBLOCK) == 0, "fcntl");
    for (long round = 1; round <= rounds; round++) {
        for (int i = 0; i < 4000; i++) heap[next_random(&random) % (HEAP / 8)] += random;
        random = spin(random, 12 * 1000 * 1000);
        told += drain();
        struct sleeper *one = &all[next_random(&random) % SLEEPERS];
        int what = (int)(next_random(&random) % 9);
        change(one, what, round);
        struct sleeper *other = &all[next_random(&random) % SLEEPERS];
        if (!other->stopped && round % 3 == 0) check(other);
        for (int i = 0; i < HEAP / 8; i += 97) digest = fold(digest, heap[i]);
        printf("%ld: %d of a sleeper in %d, %016lx\n", round, what, one->kind, digest);
        fflush(stdout);
    }
    for (int i = 0; i < SLEEPERS; i++) {
        if (all[i].stopped) stop_or_continue(&all[i]);
        check(&all[i]);
    }
    uint64_t counted = 0, counters = 0;
    for (int i = 0; i < SLEEPERS; i++)
        if (all[i].kind == 5) counted += ask(&all[i]).count, counters++;
    for (int i = 0; i < SLEEPERS; i++) {
        CHECK(kill(all[i].pid, SIGTERM) == 0 && waitpid(all[i].pid, NULL, 0) == all[i].pid, "it ends");
    }
    told += drain();
    // One that was asked between its count and its byte has told one less; each may have gone on since.
    CHECK(told + counters >= counted && told <= counted + 4 * counters, "%lu told, %lu counted", told, counted);
    printf("end %016lx\n", digest);
    return 0;
}
