// A program that knows what the kernel must hold for it: events, signals, timers and clocks.
//
// - pipes with bytes in them, event counters and timers, watched by epoll (level, edge, one-shot): what
//   epoll reports is exactly what the model says, and every byte comes out as it went in;
// - blocked signals that stay pending for long, also queued ones with values, in order;
// - dispositions, masks and the alternate stack, exactly as last set, also where a delivery disarms it;
// - POSIX timers: identities, intervals, values, and time left that only shrinks;
// - sleeps and waits that never end early; clocks that never go back.
//
// Usage: c_kernel [ROUNDS]
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 120 };
#define MS 1000000ll

static uint64_t random_state = 11;
static uint64_t below(uint64_t n) { return next_random(&random_state) % n; }

// ---- clocks ----

static int64_t clock_ns(clockid_t clock) {
    struct timespec t;
    CHECK(!clock_gettime(clock, &t), "clock_gettime");
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static int64_t monotonic_ns, boot_ns, raw_ns;
static int quiet_epoll_fd;

static void clocks_step(void) {
    int64_t now = clock_ns(CLOCK_MONOTONIC), boot = clock_ns(CLOCK_BOOTTIME);
    int64_t raw = clock_ns(CLOCK_MONOTONIC_RAW);
    CHECK(now >= monotonic_ns, "the monotonic clock went back by %lld ns", (long long)(monotonic_ns - now));
    CHECK(boot >= boot_ns, "the boot clock went back by %lld ns", (long long)(boot_ns - boot));
    CHECK(raw >= raw_ns, "the raw clock went back by %lld ns", (long long)(raw_ns - raw));
    monotonic_ns = now, boot_ns = boot, raw_ns = raw;
}

static struct timespec timespec_of(int64_t ns) {
    return (struct timespec){ns / 1000000000, ns % 1000000000};
}

// Each way to wait. None may end before its time, and as no handler can run here (the ticking timers are
// blocked), none may say that it was interrupted: a program is not to notice that it was stopped.
static void wait_once(int64_t wait) {
    struct timespec span = timespec_of(wait), end = timespec_of(clock_ns(CLOCK_MONOTONIC) + wait);
    struct timeval micro = {0, wait / 1000};
    struct epoll_event event;
    uint32_t word = 5;
    sigset_t nothing;
    sigemptyset(&nothing);
    sigaddset(&nothing, SIGRTMIN + 12);
    switch (below(7)) {
    case 0:
        CHECK(!nanosleep(&span, NULL), "nanosleep");
        break;
    case 1:
        errno = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL);
        CHECK(!errno, "clock_nanosleep");
        break;
    case 2:
        CHECK(poll(NULL, 0, (int)(wait / MS)) == 0, "poll");
        break;
    case 3:
        CHECK(select(0, NULL, NULL, NULL, &micro) == 0, "select");
        break;
    case 4:
        CHECK(syscall(SYS_futex, &word, FUTEX_WAIT, 5, &span, NULL, 0) == -1 && errno == ETIMEDOUT, "futex");
        break;
    case 5:
        CHECK(epoll_wait(quiet_epoll_fd, &event, 1, (int)(wait / MS)) == 0, "epoll_wait");
        break;
    case 6:
        CHECK(sigtimedwait(&nothing, NULL, &span) == -1 && errno == EAGAIN, "sigtimedwait");
        break;
    }
}

static void waits_step(void) {
    sigset_t all, before;
    sigfillset(&all);
    CHECK(!sigprocmask(SIG_SETMASK, &all, &before), "sigprocmask");
    int64_t wait = (int64_t)(1 + below(4)) * MS, from = clock_ns(CLOCK_MONOTONIC);
    wait_once(wait);
    int64_t took = clock_ns(CLOCK_MONOTONIC) - from;
    CHECK(took >= wait, "a wait of %lld ns ended after %lld", (long long)wait, (long long)took);
    CHECK(!sigprocmask(SIG_SETMASK, &before, NULL), "sigprocmask");
}

// ---- pipes, counters and epoll ----

enum { PIPES = 4, COUNTERS = 3, ROOM = 40000, ONE_SHOT = 2, EDGE = 3 };
struct fifo {
    int in, out, size;
    uint64_t written, read, seed;
    int armed; // one-shot: may report; edge: something came since the last report
};
static struct fifo pipes[PIPES];
static struct {
    int fd, semaphore;
    uint64_t value;
} counters[COUNTERS];
static int epoll_fd, periodic_fd, once_fd;
static unsigned char bytes[ROOM];

static void watch(int fd, uint32_t events, uint64_t data) {
    struct epoll_event event = {events, {.u64 = data}};
    CHECK(!epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
}

static void pipes_step(void) {
    int i = (int)below(PIPES);
    struct fifo *p = &pipes[i];
    size_t held = p->written - p->read, n = 1 + below(6000);
    CHECK(fcntl(p->in, F_GETPIPE_SZ) == p->size, "pipe %d has another capacity", i);
    if (below(2) && held + n <= ROOM) {
        for (size_t at = 0; at < n; at++) bytes[at] = pattern_byte(p->seed, p->written + at);
        CHECK(write(p->in, bytes, n) == (ssize_t)n, "write to pipe %d, which holds %zu", i, held);
        p->written += n;
        p->armed |= i == EDGE;
        return;
    }
    ssize_t got = read(p->out, bytes, n);
    if (!held) {
        CHECK(got == -1 && errno == EAGAIN, "pipe %d is empty and gave %zd", i, got);
        return;
    }
    CHECK(got == (ssize_t)(held < n ? held : n), "pipe %d holds %zu bytes and gave %zd of %zu", i, held, got, n);
    for (ssize_t at = 0; at < got; at++)
        CHECK(bytes[at] == pattern_byte(p->seed, p->read + (uint64_t)at), "pipe %d: byte %llu is %02x", i,
              (unsigned long long)p->read + (unsigned long long)at, bytes[at]);
    p->read += (uint64_t)got;
}

static void counters_step(void) {
    int i = (int)below(COUNTERS);
    uint64_t word = 1 + below(5);
    if (below(2)) {
        CHECK(write(counters[i].fd, &word, 8) == 8, "write to eventfd %d", i);
        counters[i].value += word;
        return;
    }
    ssize_t got = read(counters[i].fd, &word, 8);
    if (!counters[i].value) {
        CHECK(got == -1 && errno == EAGAIN, "eventfd %d is zero and gave %llu", i, (unsigned long long)word);
        return;
    }
    uint64_t want = counters[i].semaphore ? 1 : counters[i].value;
    CHECK(got == 8 && word == want, "eventfd %d gave %llu, not %llu", i, (unsigned long long)word,
          (unsigned long long)want);
    counters[i].value -= want;
}

// A connection whose other end was closed, behind the pipes, the counters and two timers: that is told once.
enum { OVER = PIPES + COUNTERS + 2 };

// What epoll reports now, as a bit for each pipe and counter.
static uint32_t reported(void) {
    struct epoll_event events[OVER + 1];
    int n = epoll_wait(epoll_fd, events, OVER + 1, 0);
    CHECK(n >= 0, "epoll_wait");
    uint32_t bits = 0;
    for (int i = 0; i < n; i++) {
        uint64_t data = events[i].data.u64;
        CHECK(data >> 32 == 0xe9011, "epoll gave data %llx", (unsigned long long)data);
        uint32_t more = (data & 31) == OVER ? EPOLLHUP : 0;
        CHECK(events[i].events == (EPOLLIN | more), "epoll gave events %x", events[i].events);
        bits |= 1u << (data & 31);
    }
    return bits;
}

static void epoll_step(void) {
    uint32_t want = 0, timers = 3u << (PIPES + COUNTERS);
    for (int i = 0; i < PIPES; i++) {
        struct fifo *p = &pipes[i];
        int ready = p->written != p->read;
        if (i == ONE_SHOT || i == EDGE) ready = ready && p->armed;
        want |= (uint32_t)ready << i;
    }
    for (int i = 0; i < COUNTERS; i++) want |= (uint32_t)(counters[i].value != 0) << (PIPES + i);
    uint32_t got = reported() & ~timers, edge = 1u << EDGE, one_shot = 1u << ONE_SHOT;
    // A resume may report an edge again; losing one would be a fault. All else is exact.
    int held = pipes[EDGE].written != pipes[EDGE].read;
    CHECK((got & ~edge) == (want & ~edge), "epoll reports %x, not %x", got, want);
    CHECK(!(want & edge) || (got & edge), "epoll lost an edge");
    CHECK(!(got & edge) || held, "epoll reports an edge of an empty pipe");
    pipes[EDGE].armed = 0;
    if (got & one_shot) pipes[ONE_SHOT].armed = 0;
    if (below(3) == 0) {
        struct epoll_event event = {EPOLLIN | EPOLLONESHOT, {.u64 = 0xe9011ull << 32 | ONE_SHOT}};
        CHECK(!epoll_ctl(epoll_fd, EPOLL_CTL_MOD, pipes[ONE_SHOT].out, &event), "epoll_ctl");
        pipes[ONE_SHOT].armed = 1;
    }
}

// A counter that goes from number to number, in a poll descriptor that knows it by its first: /proc shows no change.
static int moving_fd, moving_poll_fd;

static void moving_step(void) {
    int next = dup(moving_fd);
    CHECK(next >= 0 && !close(moving_fd), "dup");
    moving_fd = next;
    struct epoll_event event;
    uint64_t count = 1 + below(9), counted;
    CHECK(epoll_wait(moving_poll_fd, &event, 1, 0) == 0, "epoll reports a counter of 0");
    CHECK(write(moving_fd, &count, 8) == 8, "write to a counter");
    CHECK(epoll_wait(moving_poll_fd, &event, 1, 0) == 1 && event.data.u64 == 7, "epoll lost a counter");
    CHECK(read(moving_fd, &counted, 8) == 8 && counted == count, "read of a counter");
}

static void timerfds_round(void) {
    static const struct itimerspec soon = {{0, 0}, {0, 2 * MS}};
    uint64_t count;
    int64_t until = clock_ns(CLOCK_MONOTONIC) + 2 * MS;
    CHECK(!timerfd_settime(once_fd, 0, &soon, NULL), "timerfd_settime");
    while (poll(&(struct pollfd){once_fd, POLLIN, 0}, 1, -1) < 0) CHECK(errno == EINTR, "poll");
    CHECK(clock_ns(CLOCK_MONOTONIC) >= until, "a timerfd fired early");
    CHECK(read(once_fd, &count, 8) == 8 && count == 1, "a one-shot timerfd fired %llu times",
          (unsigned long long)count);
    struct itimerspec left;
    CHECK(!timerfd_gettime(periodic_fd, &left), "timerfd_gettime");
    CHECK(left.it_interval.tv_nsec == 5 * MS && !left.it_interval.tv_sec, "a timerfd lost its interval");
    while (poll(&(struct pollfd){periodic_fd, POLLIN, 0}, 1, -1) < 0) CHECK(errno == EINTR, "poll");
    CHECK(read(periodic_fd, &count, 8) == 8 && count >= 1, "a periodic timerfd gave nothing");
}

static void events_start(void) {
    epoll_fd = epoll_create1(EPOLL_CLOEXEC), quiet_epoll_fd = epoll_create1(0);
    CHECK(epoll_fd >= 0 && quiet_epoll_fd >= 0, "epoll_create1");
    moving_poll_fd = epoll_create1(0), moving_fd = eventfd(0, EFD_NONBLOCK);
    struct epoll_event event = {EPOLLIN, {.u64 = 7}};
    CHECK(!epoll_ctl(moving_poll_fd, EPOLL_CTL_ADD, moving_fd, &event), "epoll_ctl");
    for (int i = 0; i < PIPES; i++) {
        int ends[2];
        CHECK(!pipe2(ends, O_NONBLOCK | O_CLOEXEC), "pipe2");
        pipes[i] = (struct fifo){ends[1], ends[0], 0, 0, 0, 100 + (uint64_t)i, i == ONE_SHOT};
        pipes[i].size = fcntl(ends[1], F_SETPIPE_SZ, i == 1 ? 128 * 1024 : 64 * 1024);
        CHECK(pipes[i].size >= 64 * 1024, "F_SETPIPE_SZ");
        uint32_t extra = i == ONE_SHOT ? (uint32_t)EPOLLONESHOT : i == EDGE ? (uint32_t)EPOLLET : 0;
        watch(ends[0], EPOLLIN | extra, 0xe9011ull << 32 | (uint64_t)i);
    }
    for (int i = 0; i < COUNTERS; i++) {
        counters[i].semaphore = i == 1;
        counters[i].fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC | (i == 1 ? EFD_SEMAPHORE : 0));
        CHECK(counters[i].fd >= 0, "eventfd");
        watch(counters[i].fd, EPOLLIN, 0xe9011ull << 32 | (uint64_t)(PIPES + i));
    }
    static const struct itimerspec often = {{0, 5 * MS}, {0, 5 * MS}};
    periodic_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    once_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    CHECK(periodic_fd >= 0 && once_fd >= 0, "timerfd_create");
    CHECK(!timerfd_settime(periodic_fd, 0, &often, NULL), "timerfd_settime");
    watch(periodic_fd, EPOLLIN, 0xe9011ull << 32 | (PIPES + COUNTERS));
    watch(once_fd, EPOLLIN, 0xe9011ull << 32 | (PIPES + COUNTERS + 1));
    int ends[2];
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) && !close(ends[1]), "socketpair");
    watch(ends[0], EPOLLIN | EPOLLONESHOT, 0xe9011ull << 32 | OVER);
    CHECK(reported() >> OVER & 1, "the end of a connection is not told");
}

// ---- pending signals, dispositions, masks ----

enum { QUEUED = 6 };
static int queued_values[QUEUED], queued, plain_pending, handled;
static sigset_t blocked;
static struct sigaction dispositions[32];
static unsigned char alternate[32768];

static void on_plain(int sig) { handled += sig == SIGUSR2; }
// A resume tells a program that reads keys of its screen, as a terminal may at any time.
static void never(int sig) { CHECK(sig == SIGWINCH, "signal %d came from nowhere", sig); }

static void pending_step(void) {
    sigset_t pending;
    CHECK(!sigpending(&pending), "sigpending");
    CHECK(sigismember(&pending, SIGUSR2) == plain_pending, "SIGUSR2 is pending: %d", !plain_pending);
    CHECK(sigismember(&pending, SIGRTMIN + 5) == (queued > 0), "queued signals are pending: %d", !queued);
    if (below(2) && queued < QUEUED) {
        int value = (int)below(1 << 30);
        CHECK(!sigqueue(getpid(), SIGRTMIN + 5, (union sigval){.sival_int = value}), "sigqueue");
        queued_values[queued++] = value;
    } else if (queued) {
        siginfo_t info;
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, SIGRTMIN + 5);
        CHECK(sigtimedwait(&one, &info, &(struct timespec){0, 0}) == SIGRTMIN + 5, "sigtimedwait");
        CHECK(info.si_value.sival_int == queued_values[0], "a queued signal brought another value");
        CHECK(info.si_code == SI_QUEUE && info.si_pid == getpid(), "a queued signal lost its sender");
        memmove(queued_values, queued_values + 1, sizeof queued_values - sizeof queued_values[0]);
        queued--;
    }
    if (!plain_pending) {
        CHECK(!raise(SIGUSR2), "raise");
        plain_pending = 1;
    } else if (below(4) == 0) {
        int before = handled;
        sigset_t open;
        sigfillset(&open);
        sigdelset(&open, SIGUSR2);
        CHECK(sigsuspend(&open) == -1 && errno == EINTR, "sigsuspend");
        CHECK(handled == before + 1, "a pending signal was handled %d times", handled - before);
        plain_pending = 0;
    }
}

static void mask_step(void) {
    sigset_t now;
    CHECK(!sigprocmask(SIG_SETMASK, NULL, &now), "sigprocmask");
    for (int sig = 1; sig < 64; sig++)
        CHECK(sigismember(&now, sig) == sigismember(&blocked, sig), "signal %d is masked otherwise", sig);
    const int loose[] = {SIGURG, SIGWINCH, SIGIO, SIGPWR, SIGRTMIN + 9};
    int sig = loose[below(5)];
    if (sigismember(&blocked, sig))
        sigdelset(&blocked, sig);
    else
        sigaddset(&blocked, sig);
    CHECK(!sigprocmask(SIG_SETMASK, &blocked, NULL), "sigprocmask");
}

static void dispositions_step(void) {
    static const int own[] = {SIGHUP, SIGPIPE, SIGTTIN, SIGXCPU, SIGWINCH};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        struct sigaction now, *want = &dispositions[own[i]];
        CHECK(!sigaction(own[i], NULL, &now), "sigaction");
        CHECK(now.sa_handler == want->sa_handler && now.sa_flags == want->sa_flags, "signal %d lost its disposition",
              own[i]);
        CHECK(sigismember(&now.sa_mask, SIGTERM) == sigismember(&want->sa_mask, SIGTERM), "signal %d lost its mask",
              own[i]);
    }
    int sig = own[below(5)];
    struct sigaction *action = &dispositions[sig];
    action->sa_handler = below(3) == 0 ? SIG_DFL : below(2) ? SIG_IGN : never;
    action->sa_flags = (below(2) ? SA_RESTART : 0) | (below(2) ? SA_ONSTACK : 0) | (below(2) ? SA_NODEFER : 0);
    sigemptyset(&action->sa_mask);
    if (below(2)) sigaddset(&action->sa_mask, SIGTERM);
    CHECK(!sigaction(sig, action, NULL), "sigaction");
    CHECK(!sigaction(sig, NULL, action), "sigaction");
    stack_t stack;
    CHECK(!sigaltstack(NULL, &stack), "sigaltstack");
    CHECK(stack.ss_sp == alternate && stack.ss_size == sizeof alternate && !stack.ss_flags, "the alternate stack moved");
}

// A handler whose alternate stack the kernel takes away as it runs, and gives back as it returns (SS_AUTODISARM).
#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif
static unsigned char disarmed[64 << 10];
static volatile int was_disarmed;

static void on_disarmed(int sig) {
    stack_t stack;
    spin((uint64_t)sig, 3000000);
    was_disarmed = !sigaltstack(NULL, &stack) && !stack.ss_sp && stack.ss_flags == SS_DISABLE;
}

static void disarm_step(void) {
    stack_t own = {.ss_sp = disarmed, .ss_size = sizeof disarmed, .ss_flags = (int)SS_AUTODISARM}, before, now;
    CHECK(!sigaltstack(&own, &before), "sigaltstack");
    was_disarmed = 0;
    CHECK(!raise(SIGRTMIN + 11) && was_disarmed, "the alternate stack is armed in its handler");
    spin(1, 1000000);
    CHECK(!sigaltstack(NULL, &now), "sigaltstack");
    CHECK(now.ss_sp == disarmed && now.ss_size == sizeof disarmed && now.ss_flags == (int)SS_AUTODISARM,
          "the disarmed stack came back as %p, %zu, %x", now.ss_sp, now.ss_size, now.ss_flags);
    CHECK(!sigaltstack(&before, NULL), "sigaltstack");
}

// A handler that serves one signal: the kernel takes it away as it runs (SA_RESETHAND). Set in one step, used in another.
static volatile int served;
static int is_set[2];
static void on_one(int sig) { served += sig == SIGTTOU || sig == SIGRTMIN + 10; }

static void once_step(void) {
    int which = (int)below(2), sig = which ? SIGRTMIN + 10 : SIGTTOU, before = served;
    struct sigaction now, once = {.sa_handler = on_one, .sa_flags = SA_RESETHAND};
    CHECK(!sigaction(sig, NULL, &now), "sigaction");
    CHECK(now.sa_handler == (is_set[which] ? on_one : SIG_DFL), "signal %d has %s handler", sig,
          is_set[which] ? "no" : "again its");
    if (is_set[which]) {
        CHECK(!raise(sig), "raise");
        CHECK(served == before + 1, "a signal was handled %d times", served - before);
    } else {
        CHECK(!sigaction(sig, &once, NULL), "sigaction");
    }
    is_set[which] = !is_set[which];
}

static void signals_start(void) {
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    sigaddset(&blocked, SIGRTMIN + 5);
    CHECK(!sigprocmask(SIG_SETMASK, &blocked, NULL), "sigprocmask");
    struct sigaction plain = {.sa_handler = on_plain};
    CHECK(!sigaction(SIGUSR2, &plain, NULL), "sigaction");
    struct sigaction disarms = {.sa_handler = on_disarmed, .sa_flags = SA_ONSTACK};
    CHECK(!sigaction(SIGRTMIN + 11, &disarms, NULL), "sigaction");
    for (int sig = 1; sig < 32; sig++) sigaction(sig, NULL, &dispositions[sig]);
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    CHECK(!sigaltstack(&stack, NULL), "sigaltstack");
}

// ---- POSIX timers ----

static timer_t ticking, distant, single;
static volatile sig_atomic_t ticks, singles;
static int64_t distant_left_ns = 3600 * 1000 * MS;

static void on_timer(int sig, siginfo_t *info, void *context) {
    (void)context;
    CHECK(info->si_code == SI_TIMER && info->si_overrun >= 0, "signal %d is no timer's", sig);
    if (info->si_value.sival_ptr == &ticks)
        ticks++;
    else if (info->si_value.sival_ptr == &singles)
        singles++;
    else
        CHECK(0, "a timer brought value %p", info->si_value.sival_ptr);
}

static void timers_step(void) {
    struct itimerspec left;
    CHECK(!timer_gettime(ticking, &left), "timer_gettime");
    CHECK(left.it_interval.tv_nsec == 4 * MS, "a timer lost its interval");
    CHECK(!timer_gettime(distant, &left), "timer_gettime");
    int64_t ns = left.it_value.tv_sec * 1000000000ll + left.it_value.tv_nsec;
    CHECK(ns > 0 && ns <= distant_left_ns, "a distant timer moved away: %lld ns left, %lld before", (long long)ns,
          (long long)distant_left_ns);
    distant_left_ns = ns;
}

// A one-shot timer fires once, however near its instant a checkpoint is; a lost ticking timer is found by
// sleeping long enough.
static void timers_round(void) {
    int ticks_before = ticks;
    for (int shot = 0; shot < 8; shot++) {
        struct itimerspec soon = {{0, 0}, {0, 1 + below(MS)}};
        int before = singles;
        CHECK(!timer_settime(single, 0, &soon, NULL), "timer_settime");
        for (int tries = 0; singles == before || (shot == 7 && ticks == ticks_before); tries++) {
            CHECK(tries < 5000, "a timer has stopped");
            nanosleep(&(struct timespec){0, MS}, NULL);
        }
        CHECK(singles == before + 1, "a one-shot timer fired %d times", singles - before);
    }
}

static timer_t new_timer(clockid_t clock, int sig, void *value) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = sig, .sigev_value.sival_ptr = value};
    timer_t timer;
    CHECK(!timer_create(clock, &event, &timer), "timer_create");
    return timer;
}

static void timers_start(void) {
    struct sigaction action = {.sa_sigaction = on_timer, .sa_flags = SA_SIGINFO | SA_RESTART};
    CHECK(!sigaction(SIGRTMIN + 7, &action, NULL) && !sigaction(SIGRTMIN + 8, &action, NULL), "sigaction");
    // One is deleted, so that identities have a gap.
    timer_t gone = new_timer(CLOCK_MONOTONIC, SIGRTMIN + 7, NULL);
    ticking = new_timer(CLOCK_MONOTONIC, SIGRTMIN + 7, (void *)&ticks);
    CHECK(!timer_delete(gone), "timer_delete");
    distant = new_timer(CLOCK_BOOTTIME, SIGRTMIN + 8, NULL);
    single = new_timer(CLOCK_REALTIME, SIGRTMIN + 8, (void *)&singles);
    struct itimerspec often = {{0, 4 * MS}, {0, 4 * MS}}, late = {{0, 0}, {3600, 0}};
    CHECK(!timer_settime(ticking, 0, &often, NULL) && !timer_settime(distant, 0, &late, NULL), "timer_settime");
}

// ---- all of it ----

int main(int argc, char **argv) {
    long rounds = scale(argc, argv, 100);
    pid_t pid = getpid();
    void (*steps[])(void) = {pipes_step,   pipes_step, pipes_step, counters_step, epoll_step,  moving_step,
                             pending_step, mask_step,  once_step,  disarm_step, clocks_step,   timers_step, dispositions_step};
    events_start();
    signals_start();
    timers_start();
    for (long round = 1; round <= rounds; round++) {
        uint64_t digest = random_state;
        for (int i = 0; i < STEPS; i++) {
            steps[below(sizeof steps / sizeof *steps)]();
            digest = fold(digest, spin(random_state, 100000));
        }
        CHECK(getpid() == pid && syscall(SYS_gettid) == pid, "the process changed its identity");
        for (int i = 0; i < 3; i++) waits_step();
        timerfds_round();
        timers_round();
        for (int i = 0; i < PIPES; i++) digest = fold(fold(digest, pipes[i].written), pipes[i].read);
        for (int i = 0; i < COUNTERS; i++) digest = fold(digest, counters[i].value);
        digest = fold(fold(digest, (uint64_t)handled), (uint64_t)queued);
        printf("round %ld of %ld: %016llx\n", round, rounds, (unsigned long long)digest);
        fflush(stdout);
    }
    printf("digest %016llx\n", (unsigned long long)random_state);
    return 0;
}
