// Waits, again and again, for a signal that only the wait lets through: no other may end it.
//
// Each round is another of the calls that take a mask of their own, with a time limit in every other round. SIGALRM is
// blocked outside of the calls, SIGUSR1 inside: it is handled when a call has ended, and never ends one. Each is told
// where it came from.
#define _GNU_SOURCE
#include "check.h"

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>
#include <unistd.h>

static volatile sig_atomic_t alarms, told;

static void on_alarm(int sig, siginfo_t *info, void *context) {
    (void)context;
    CHECK(info->si_code == SI_KERNEL, "signal %d came from elsewhere: %d", sig, info->si_code);
    alarms++;
}
static void on_told(int sig, siginfo_t *info, void *context) {
    (void)context;
    CHECK(info->si_code == SI_USER, "signal %d came from elsewhere: %d", sig, info->si_code);
    told++;
}
static void handle(int sig, void (*handler)(int, siginfo_t *, void *)) {
    CHECK(!sigaction(sig, &(struct sigaction){.sa_sigaction = handler, .sa_flags = SA_SIGINFO}, NULL), "sigaction");
}

static int wait_in(int call, const struct timespec *limit, const sigset_t *mask, int events) {
    struct epoll_event event;
    switch (call) {
    case 0:
        return sigsuspend(mask);
    case 1:
        return ppoll(NULL, 0, limit, mask);
    case 2:
        return pselect(0, NULL, NULL, NULL, limit, mask);
    default:
        return epoll_pwait(events, &event, 1, limit ? 60000 : -1, mask);
    }
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    handle(SIGALRM, on_alarm), handle(SIGUSR1, on_told);
    sigset_t outside, inside;
    sigemptyset(&outside);
    sigaddset(&outside, SIGALRM);
    CHECK(!sigprocmask(SIG_SETMASK, &outside, NULL), "sigprocmask");
    sigfillset(&inside);
    sigdelset(&inside, SIGALRM);
    int events = epoll_create1(0);
    CHECK(events >= 0, "epoll_create1");
    for (int round = 0;; round++) {
        int call = round / 2 % 4, alarms_before = alarms, told_before = told;
        const struct timespec limit = {60, 0};
        // The first comes before a checkpoint.
        struct itimerval timer = {.it_value = {0, round ? 150000 : 1000}};
        CHECK(!setitimer(ITIMER_REAL, &timer, NULL), "setitimer");
        int result = wait_in(call, round % 2 ? &limit : NULL, &inside, events);
        CHECK(result == -1 && errno == EINTR, "call %d gave %d", call, result);
        CHECK(alarms == alarms_before + 1, "call %d of round %d ended with %d alarms, and %d other signals", call, round,
              alarms - alarms_before, told - told_before);
        sigset_t now;
        CHECK(!sigprocmask(SIG_SETMASK, NULL, &now), "sigprocmask");
        for (int sig = 1; sig < 64; sig++)
            CHECK(sigismember(&now, sig) == (sig == SIGALRM), "signal %d is masked otherwise", sig);
        printf("round %d, told %d\n", round, told);
    }
}
