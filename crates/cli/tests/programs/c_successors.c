// A process that a thread of its own, never the first, replaces by the next life of the program: execve(2). In each life
// signals are told by a signalfd in a poll descriptor, by edges in one life and by level beside another's edge in the next:
// each is told while it waits to be read. Usage: c_successors [ROUNDS]
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { SIGNALS = 6 };

static long rounds, life;
static uint64_t digest;

static void watch(int poll, int fd, uint32_t events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    CHECK(!epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event), "watch %d", fd);
}

static void hear_signals(void) {
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR1);
    CHECK(!sigprocmask(SIG_BLOCK, &set, NULL), "sigprocmask");
    int told = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC), other = eventfd(0, EFD_CLOEXEC);
    int poll = epoll_create1(EPOLL_CLOEXEC);
    CHECK(told >= 0 && other >= 0 && poll >= 0, "descriptors");
    watch(poll, told, life % 2 ? EPOLLIN : EPOLLIN | EPOLLET);
    watch(poll, other, EPOLLIN | EPOLLET);
    for (int n = 0; n < SIGNALS; n++) {
        struct signalfd_siginfo info;
        struct epoll_event event;
        CHECK(!sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = n}), "sigqueue");
        digest = fold(digest, spin(digest, 300000));
        usleep(1000);
        int ready;
        while ((ready = epoll_wait(poll, &event, 1, 60000)) == -1 && errno == EINTR) {}
        CHECK(ready == 1 && event.data.fd == told, "signal %d is not told", n);
        CHECK(read(told, &info, sizeof info) == sizeof info && info.ssi_int == n, "signal %d", n);
    }
}

static void *sleeper(void *unused) {
    for (;;) pause();
    return unused;
}

static void *successor(void *program) {
    char next[32], text[32], all[32];
    snprintf(all, sizeof all, "%ld", rounds), snprintf(next, sizeof next, "%ld", life + 1);
    snprintf(text, sizeof text, "%llx", (unsigned long long)digest);
    usleep((useconds_t)(life * 37 % 5000));
    execl("/proc/self/exe", program, all, next, text, NULL);
    CHECK(0, "execute the program");
    return NULL;
}

int main(int argc, char **argv) {
    rounds = scale(argc, argv, 30);
    life = argc > 2 ? atol(argv[2]) : 0;
    digest = argc > 3 ? strtoull(argv[3], NULL, 16) : 1;
    hear_signals();
    printf("life %ld %016llx\n", life, (unsigned long long)digest);
    fflush(stdout);
    if (life == rounds) return 0;
    pthread_t thread;
    for (long n = 0; n < life % 4; n++) CHECK(!pthread_create(&thread, NULL, sleeper, NULL), "a thread");
    CHECK(!pthread_create(&thread, NULL, successor, argv[0]), "a successor");
    for (;;) pause();
}
