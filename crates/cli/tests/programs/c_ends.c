// A program that knows what the kernel holds behind its descriptors and timers.
//
// - two open files of one end of a pipe, each with flags of its own; packets; flags of standard output;
// - poll descriptors whose watched numbers were closed, or are other files now; edges told and not told;
// - timers that rang and were not read: expirations of a descriptor, overruns of a waiting signal.
//
// Usage: c_ends [ROUNDS]
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

// ---- pipes ----

static int plain[2], again, packets[2];

static void pipes_start(void) {
    char name[64];
    CHECK(!pipe(plain) && !pipe2(packets, O_DIRECT), "pipe");
    snprintf(name, sizeof name, "/proc/self/fd/%d", plain[0]);
    again = open(name, O_RDONLY | O_NONBLOCK);
    CHECK(again >= 0, "open an end once more");
    CHECK(!fcntl(1, F_SETFL, fcntl(1, F_GETFL) | O_NONBLOCK), "F_SETFL");
    CHECK(write(packets[1], "abc", 3) == 3 && write(packets[1], "de", 2) == 2, "write packets");
}

static void pipes_step(void) {
    char bytes[16];
    CHECK(fcntl(again, F_GETFL) & O_NONBLOCK, "the second open file waits");
    CHECK(!(fcntl(plain[0], F_GETFL) & O_NONBLOCK), "the first does not wait");
    CHECK(fcntl(1, F_GETFL) & O_NONBLOCK, "standard output waits");
    CHECK(fcntl(packets[1], F_GETFL) & O_DIRECT, "no packets any more");
    CHECK(read(packets[0], bytes, sizeof bytes) == 3, "the first packet");
    CHECK(read(packets[0], bytes, sizeof bytes) == 2, "the second packet");
    CHECK(write(packets[1], "abc", 3) == 3 && write(packets[1], "de", 2) == 2, "write packets");
    CHECK(read(again, bytes, 1) == -1 && errno == EAGAIN, "an empty pipe");
}

// ---- poll descriptors ----

static int ends[3][2], stale, reused, edges, duplicate[2];

static void watch(int poll, int fd, uint32_t events, uint64_t data) {
    struct epoll_event event = {events, {.u64 = data}};
    CHECK(!epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
}

static int told(int poll, uint64_t *data) {
    struct epoll_event event[4];
    int count = epoll_wait(poll, event, 4, 0);
    if (count > 0) *data = event[0].data.u64;
    return count;
}

static void polls_start(void) {
    for (int i = 0; i < 3; i++) CHECK(!pipe(ends[i]), "pipe");
    stale = epoll_create1(0), reused = epoll_create1(0), edges = epoll_create1(0);
    // A number that was closed; one that is another file now and is watched as that, too.
    watch(stale, ends[0][0], EPOLLIN, 10);
    watch(reused, ends[1][0], EPOLLIN, 20);
    duplicate[0] = dup(ends[0][0]), duplicate[1] = dup(ends[1][0]);
    int number = ends[1][0];
    CHECK(!close(ends[0][0]) && dup2(ends[2][0], number) == number, "dup2");
    watch(reused, number, EPOLLIN, 21);
    watch(edges, ends[2][0], EPOLLIN | EPOLLET, 30);
}

static void polls_step(void) {
    uint64_t data = 0;
    char byte;
    CHECK(told(stale, &data) == 0 && told(reused, &data) == 0 && told(edges, &data) == 0, "nothing is ready");
    CHECK(write(ends[0][1], "x", 1) == 1 && told(stale, &data) == 1 && data == 10, "the closed number");
    CHECK(read(duplicate[0], &byte, 1) == 1, "read");
    CHECK(write(ends[1][1], "x", 1) == 1 && told(reused, &data) == 1 && data == 20, "the file of the reused number");
    CHECK(read(duplicate[1], &byte, 1) == 1, "read");
    CHECK(write(ends[2][1], "x", 1) == 1, "write");
    spin(data, 3000000);
    CHECK(told(reused, &data) == 1 && data == 21, "the reused number");
    CHECK(told(edges, &data) == 1 && data == 30, "an edge is not told");
    spin(data, 3000000);
    CHECK(told(edges, &data) == 0, "an edge is told twice");
    CHECK(read(ends[2][0], &byte, 1) == 1, "read");
}

// ---- timers ----

enum { EVERY_US = 5000 };

static int ticking;
static timer_t ringing;
static int64_t set_from, set_to; // the timers were set between these
static sigset_t ring;

static void set_timers(void) {
    struct itimerspec every = {{0, EVERY_US * 1000}, {0, EVERY_US * 1000}};
    set_from = now_us();
    CHECK(!timerfd_settime(ticking, 0, &every, NULL) && !timer_settime(ringing, 0, &every, NULL), "set timers");
    set_to = now_us();
}

static void timers_start(void) {
    sigemptyset(&ring), sigaddset(&ring, SIGRTMIN);
    CHECK(!sigprocmask(SIG_BLOCK, &ring, NULL), "sigprocmask");
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 77};
    ticking = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    CHECK(ticking >= 0 && !timer_create(CLOCK_MONOTONIC, &event, &ringing), "make timers");
    set_timers();
}

// Expirations that were told between `from` and now.
static void check_count(int64_t got, int64_t from, const char *what) {
    int64_t least = (from - set_to) / EVERY_US - 1, most = (now_us() - set_from) / EVERY_US + 1;
    CHECK(got >= least && got <= most, "%s: %lld expirations, not %lld to %lld", what, (long long)got,
          (long long)least, (long long)most);
}

static void timers_step(long round) {
    if (round % 12 != 11) return;
    uint64_t ticks = 0;
    siginfo_t info;
    int64_t from = now_us();
    CHECK(read(ticking, &ticks, sizeof ticks) == sizeof ticks, "the timer has not rung");
    check_count((int64_t)ticks, from, "the descriptor");
    from = now_us();
    CHECK(sigwaitinfo(&ring, &info) == SIGRTMIN && info.si_code == SI_TIMER, "the signal of a timer");
    CHECK(info.si_value.sival_int == 77, "its value is %d", info.si_value.sival_int);
    check_count(info.si_overrun + 1, from, "the signal");
    struct itimerspec off = {{0, 0}, {0, 0}};
    CHECK(!timer_settime(ringing, 0, &off, NULL), "stop the timer");
    struct timespec none = {0, 0};
    while (sigtimedwait(&ring, &info, &none) > 0) CHECK(info.si_code == SI_TIMER, "another signal");
    set_timers();
}

// ---- all of it ----

int main(int argc, char **argv) {
    long rounds = scale(argc, argv, 100);
    pipes_start();
    polls_start();
    timers_start();
    uint64_t word = 1;
    for (long round = 0; round < rounds; round++) {
        for (int i = 0; i < 10; i++) {
            pipes_step();
            polls_step();
            word = spin(word, 2000000);
        }
        timers_step(round);
        char line[64];
        int len = snprintf(line, sizeof line, "round %ld: %016llx\n", round, (unsigned long long)word);
        while (write(1, line, (size_t)len) != len) CHECK(errno == EAGAIN, "write");
    }
    return 0;
}
