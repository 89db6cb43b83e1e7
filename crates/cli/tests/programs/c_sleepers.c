// A process that writes memory beside many that sleep, in several calls. In every round something of a sleeper is changed
// from outside, or a sleeper is woken or gets what it waits for; each tells what it is when it is asked, and it is what it
// has to be.
// Usage: c_sleepers ROUNDS
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { IN_PAUSE, IN_NANOSLEEP, IN_POLL, IN_WAIT, BLOCKED, COUNTING, IN_FUTEX, IN_READ, IN_RECV, IN_RECVMSG, IN_ACCEPT, IN_EPOLL,
       IN_EVENT, KINDS };
enum { SLEEPERS = 2 * KINDS, LONG_S = 100000, HEAP = 1 << 20 };

struct answer {
    uint64_t asked, limit, offset, count, fed;
    int flags, nice, priority_errno;
    pid_t pid, parent, group, session;
    char directory[64];
    int waits; // SIGUSR2, which one blocks
};

static int answers[2], ticks[2], shared = -1;
static uint64_t asked, fed;
static pid_t child; // of one that waits for it

static void answer(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    ucontext_t *at = context;
    struct answer is = {.asked = ++asked, .pid = getpid(), .parent = getppid(), .group = getpgrp(), .session = getsid(0)};
    struct rlimit limit;
    getrlimit(RLIMIT_CORE, &limit);
    is.limit = limit.rlim_cur;
    is.fed = fed;
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

static socklen_t name_of(struct sockaddr_un *name, int which) {
    *name = (struct sockaddr_un){.sun_family = AF_UNIX};
    int len = snprintf(name->sun_path + 1, sizeof name->sun_path - 1, "sleeper %d %d", getpgrp(), which);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

// What a sleeper waits for comes from `to` to `from`; a listener has no other end.
static void make_input(int kind, int which, int *from, int *to) {
    int ends[2] = {-1, -1};
    struct sockaddr_un name;
    if (kind == IN_READ || kind == IN_EPOLL) {
        CHECK(pipe(ends) == 0, "pipe");
    } else if (kind == IN_RECV || kind == IN_RECVMSG) {
        CHECK(socketpair(AF_UNIX, kind == IN_RECV ? SOCK_STREAM : SOCK_SEQPACKET, 0, ends) == 0, "socketpair");
    } else if (kind == IN_EVENT) {
        CHECK((ends[0] = ends[1] = eventfd(0, 0)) >= 0, "eventfd");
    } else if (kind == IN_ACCEPT) {
        CHECK((ends[0] = socket(AF_UNIX, SOCK_STREAM, 0)) >= 0, "socket");
        socklen_t len = name_of(&name, which);
        CHECK(bind(ends[0], (struct sockaddr *)&name, len) == 0 && listen(ends[0], 4) == 0, "listen");
    }
    *from = ends[0], *to = ends[1];
}

// One is sent to a sleeper.
static void feed(int kind, int which, int to) {
    uint64_t one = 1;
    struct sockaddr_un name;
    if (kind == IN_ACCEPT) {
        socklen_t len = name_of(&name, which);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0), done;
        while ((done = connect(fd, (struct sockaddr *)&name, len)) < 0 && errno == EINTR) {}
        CHECK(done == 0 && write(fd, "x", 1) == 1 && close(fd) == 0, "connect");
    } else {
        CHECK(write(to, &one, sizeof one) == sizeof one, "write");
    }
}

// Waits for the next; a handler may end the wait.
static void take(int kind, int from, int poll_fd) {
    uint64_t got[4] = {0};
    struct iovec into = {got, sizeof got};
    struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1};
    struct epoll_event event = {0};
    ssize_t n;
    int fd;
    switch (kind) {
    case IN_RECV: n = recv(from, got, sizeof got, 0); break;
    case IN_RECVMSG: n = recvmsg(from, &message, 0); break;
    case IN_ACCEPT:
        n = fd = accept4(from, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) n = read(fd, got, sizeof got) == 1 && close(fd) == 0 ? sizeof *got : 0;
        break;
    case IN_EPOLL:
        n = epoll_wait(poll_fd, &event, 1, -1);
        if (n == 1) n = read(from, got, sizeof got);
        break;
    default: n = read(from, got, sizeof got); // all of a pipe; a counter has one word
    }
    if (n < 0) {
        CHECK(errno == EINTR, "input of kind %d", kind);
        return;
    }
    CHECK(n == sizeof *got, "%zd bytes for kind %d", n, kind);
    fed++;
    raise(SIGUSR1); // it tells that it has it
}

static void sleep_in(int kind, int from) {
    static int word;
    struct timespec left = {LONG_S, 0};
    int poll_fd = -1;
    if (kind == IN_EPOLL) {
        struct epoll_event event = {.events = EPOLLIN};
        CHECK((poll_fd = epoll_create1(0)) >= 0 && epoll_ctl(poll_fd, EPOLL_CTL_ADD, from, &event) == 0, "epoll");
    }
    if (kind == COUNTING) count_in_a_register();
    if (kind == BLOCKED) {
        sigset_t blocked;
        sigemptyset(&blocked), sigaddset(&blocked, SIGUSR2);
        sigprocmask(SIG_BLOCK, &blocked, NULL);
    }
    if (kind == IN_WAIT && (child = fork()) == 0)
        for (;;) pause();
    for (;;) switch (kind) {
        case IN_NANOSLEEP: nanosleep(&left, &left); break;
        case IN_POLL: poll(NULL, 0, -1); break;
        case IN_WAIT: waitpid(child, NULL, 0); break;
        case IN_FUTEX: syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL, NULL, 0); break;
        case IN_PAUSE: case BLOCKED: pause(); break;
        default: take(kind, from, poll_fd);
        }
}

struct sleeper {
    pid_t pid;
    int kind, stopped, input;
    struct answer is;
};
static struct sleeper all[SLEEPERS];

static struct answer listen_to(void) {
    struct answer is;
    ssize_t n;
    while ((n = read(answers[0], &is, sizeof is)) < 0 && errno == EINTR) {}
    CHECK(n == sizeof is, "an answer of %zd", n);
    return is;
}

static struct answer ask(struct sleeper *one) {
    CHECK(kill(one->pid, SIGUSR1) == 0, "kill");
    return listen_to();
}

static void check(struct sleeper *one, struct answer is) {
    one->is.asked++;
    CHECK(is.fed == one->is.fed, "it was fed %lu times", is.fed);
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
        if (one->kind != BLOCKED) break;
        one->is.waits = 1;
        CHECK(kill(one->pid, SIGUSR2) == 0, "kill");
        break;
    case 7: move(round); break;
    case 8: case 9:
        if (one->kind < IN_READ || one->stopped) break;
        one->is.fed++;
        feed(one->kind, (int)(one - all), one->input);
        check(one, listen_to());
        break;
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
        int nice = getpriority(PRIO_PROCESS, 0);
        int from;
        all[i] = (struct sleeper){
            .kind = i % KINDS, .is = {.nice = nice, .limit = 1000, .group = getpgrp(), .directory = "in"}};
        make_input(all[i].kind, i, &from, &all[i].input);
        if ((all[i].pid = fork()) == 0) {
            CHECK(chdir("in") == 0, "chdir");
            sleep_in(all[i].kind, from);
        }
        CHECK(all[i].pid > 0, "fork");
        if (from >= 0 && from != all[i].input) CHECK(close(from) == 0, "close");
    }
    struct timespec begun = {0, 30 * 1000 * 1000};
    nanosleep(&begun, NULL); // all are in their directory
    CHECK(fcntl(ticks[0], F_SETFL, O_NONBLOCK) == 0, "fcntl");
    for (long round = 1; round <= rounds; round++) {
        for (int i = 0; i < 4000; i++) heap[next_random(&random) % (HEAP / 8)] += random;
        random = spin(random, 12 * 1000 * 1000);
        told += drain();
        struct sleeper *one = &all[next_random(&random) % SLEEPERS];
        int what = (int)(next_random(&random) % 11);
        change(one, what, round);
        struct sleeper *other = &all[next_random(&random) % SLEEPERS];
        if (!other->stopped && round % 3 == 0) check(other, ask(other));
        for (int i = 0; i < HEAP / 8; i += 97) digest = fold(digest, heap[i]);
        printf("%ld: %d of a sleeper in %d, %016lx\n", round, what, one->kind, digest);
        fflush(stdout);
    }
    for (int i = 0; i < SLEEPERS; i++) {
        if (all[i].stopped) stop_or_continue(&all[i]);
        check(&all[i], ask(&all[i]));
    }
    uint64_t counted = 0, counters = 0;
    for (int i = 0; i < SLEEPERS; i++) {
        siginfo_t stops;
        if (all[i].kind != COUNTING) continue;
        CHECK(kill(all[i].pid, SIGSTOP) == 0 && waitid(P_PID, all[i].pid, &stops, WSTOPPED) == 0, "it stops");
    }
    told += drain();
    // The question waits when one goes on, and is answered before it counts on.
    for (int i = 0; i < SLEEPERS; i++) {
        if (all[i].kind != COUNTING) continue;
        CHECK(kill(all[i].pid, SIGUSR1) == 0 && kill(all[i].pid, SIGCONT) == 0, "it goes on");
        counted += listen_to().count, counters++;
    }
    for (int i = 0; i < SLEEPERS; i++) {
        CHECK(kill(all[i].pid, SIGTERM) == 0 && waitpid(all[i].pid, NULL, 0) == all[i].pid, "it ends");
    }
    // One that stopped between its count and its byte has told one less.
    CHECK(told + counters >= counted && told <= counted, "%lu told, %lu counted", told, counted);
    printf("end %016lx\n", digest);
    return 0;
}
