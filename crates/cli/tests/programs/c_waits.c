// A program whose threads all wait, each in another call, for the same time: killed and resumed meanwhile,
// each must wait for what was left, neither shorter nor all of it once more.
//
// Usage: c_waits [MILLISECONDS]
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static long limit_ms;
static const struct timespec *limit; // in memory that cannot be written: nobody writes there what is left

static int64_t now_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static struct timespec at(clockid_t clock) {
    int64_t ns = now_ns(clock) + limit_ms * 1000000;
    return (struct timespec){ns / 1000000000, ns % 1000000000};
}

static long a_nanosleep(void) { return nanosleep(limit, NULL); }
static long a_nanosleep_told(void) {
    struct timespec left;
    return nanosleep(limit, &left);
}
static long a_clock_nanosleep(void) { return clock_nanosleep(CLOCK_MONOTONIC, 0, limit, NULL); }
static long until(void) {
    struct timespec end = at(CLOCK_MONOTONIC);
    return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL);
}
static long a_poll(void) { return poll(NULL, 0, (int)limit_ms); }
static long a_ppoll(void) {
    struct timespec own = *limit;
    return ppoll(NULL, 0, &own, NULL);
}
static long a_ppoll_of_constants(void) { return syscall(SYS_ppoll, NULL, 0, limit, NULL, 8); }
static long a_select(void) {
    struct timeval parts = {limit->tv_sec, limit->tv_nsec / 1000};
    long answer = select(0, NULL, NULL, NULL, &parts);
    CHECK(!parts.tv_sec && !parts.tv_usec, "select left %ld s and %ld us", parts.tv_sec, parts.tv_usec);
    return answer;
}
static long a_pselect(void) { return pselect(0, NULL, NULL, NULL, limit, NULL); }
static long a_epoll_wait(void) {
    struct epoll_event event;
    return epoll_wait(epoll_create1(0), &event, 1, (int)limit_ms);
}
static long a_epoll_pwait2(void) {
    struct epoll_event event;
    return syscall(SYS_epoll_pwait2, epoll_create1(0), &event, 1, limit, NULL, 8);
}
static long timed_out(long answer, int error) {
    CHECK(answer == -1 && errno == error, "a wait answered %ld", answer);
    return 0;
}
static long a_sigtimedwait(void) {
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR2);
    return timed_out(sigtimedwait(&set, NULL, limit), EAGAIN);
}
static long a_futex(void) {
    int word = 0;
    return timed_out(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, limit, NULL, 0), ETIMEDOUT);
}
static long a_futex_until(void) {
    int word = 0;
    struct timespec end = at(CLOCK_MONOTONIC);
    return timed_out(syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, &end, NULL, -1), ETIMEDOUT);
}

static long a_semtimedop(void) {
    struct sembuf take = {0, -1, 0};
    int set = semget(IPC_PRIVATE, 1, 0600);
    CHECK(set >= 0, "semget");
    long answer = timed_out(semtimedop(set, &take, 1, limit), EAGAIN);
    CHECK(!semctl(set, 0, IPC_RMID), "semctl");
    return answer;
}
static long a_lock(void) {
    struct timespec end = at(CLOCK_MONOTONIC);
    pthread_mutex_t mutex;
    CHECK(!pthread_mutex_init(&mutex, NULL) && !pthread_mutex_lock(&mutex), "a lock");
    int error = pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &end);
    CHECK(error == ETIMEDOUT, "a lock answered %d", error);
    return 0;
}
static long a_receipt(void) {
    int ends[2];
    char byte;
    struct timeval parts = {limit->tv_sec, limit->tv_nsec / 1000};
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
    CHECK(!setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &parts, sizeof parts), "a limit");
    return timed_out(recv(ends[0], &byte, 1, 0), EAGAIN);
}
static long a_terminal(void) {
    char byte;
    struct termios modes;
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(master >= 0 && !grantpt(master) && !unlockpt(master), "a pseudo-terminal");
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    CHECK(slave >= 0 && !tcgetattr(slave, &modes), "its other end");
    cfmakeraw(&modes);
    modes.c_cc[VMIN] = 0, modes.c_cc[VTIME] = (cc_t)(limit_ms / 100);
    CHECK(limit_ms % 100 == 0 && limit_ms < 25600 && !tcsetattr(slave, TCSANOW, &modes), "its modes");
    return read(slave, &byte, 1);
}

static const struct {
    const char *name;
    long (*wait)(void);
} waits[] = {{"nanosleep", a_nanosleep},
             {"nanosleep that tells what is left", a_nanosleep_told},
             {"clock_nanosleep", a_clock_nanosleep},
             {"clock_nanosleep until", until},
             {"poll", a_poll},
             {"ppoll", a_ppoll},
             {"ppoll with a limit that cannot be written", a_ppoll_of_constants},
             {"select", a_select},
             {"pselect", a_pselect},
             {"epoll_wait", a_epoll_wait},
             {"epoll_pwait2", a_epoll_pwait2},
             {"sigtimedwait", a_sigtimedwait},
             {"futex", a_futex},
             {"futex until", a_futex_until},
             {"semtimedop", a_semtimedop},
             {"a lock", a_lock},
             {"a receipt", a_receipt},
             {"a terminal", a_terminal}};
enum { WAITS = sizeof waits / sizeof *waits };
static int64_t took_ms[WAITS];

static void *wait_once(void *which) {
    long i = (long)which;
    int64_t from = now_ns(CLOCK_MONOTONIC);
    long answer = waits[i].wait();
    took_ms[i] = (now_ns(CLOCK_MONOTONIC) - from) / 1000000;
    CHECK(!answer, "%s answered %ld after %lld ms", waits[i].name, answer, (long long)took_ms[i]);
    return NULL;
}

int main(int argc, char **argv) {
    limit_ms = scale(argc, argv, 4000);
    struct timespec *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED, "mmap");
    *page = (struct timespec){limit_ms / 1000, limit_ms % 1000 * 1000000};
    CHECK(!mprotect(page, 4096, PROT_READ), "mprotect");
    limit = page;
    sigset_t usr2;
    sigemptyset(&usr2), sigaddset(&usr2, SIGUSR2);
    CHECK(!sigprocmask(SIG_BLOCK, &usr2, NULL), "a mask");
    pthread_t threads[WAITS];
    for (long i = 0; i < WAITS; i++) CHECK(!pthread_create(&threads[i], NULL, wait_once, (void *)i), "a thread");
    printf("%d threads wait for %ld ms\n", WAITS, limit_ms);
    fflush(stdout);
    for (int i = 0; i < WAITS; i++) {
        pthread_join(threads[i], NULL);
        CHECK(took_ms[i] >= limit_ms && took_ms[i] < limit_ms * 3 / 2 + 1000, "%s waited %lld ms, not %ld", waits[i].name,
              (long long)took_ms[i], limit_ms);
        printf("%s: in time\n", waits[i].name);
    }
    return 0;
}
