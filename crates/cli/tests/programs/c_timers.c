// POSIX timers of child processes: a periodic one whose signal is blocked for a while, so that its overruns count; one
// that is directed at a thread; one that rings once, and ends the child's wait. The program itself has none.
// Usage: c_timers ROUNDS
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000L
#define PERIOD (3 * MS)
#define TOLD_AGAIN (1000 * MS / PERIOD)

static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static timer_t timer(int notify, int signal, int value, pid_t thread) {
    timer_t made;
    struct sigevent event = {.sigev_notify = notify, .sigev_signo = signal, .sigev_value.sival_int = value};
    event._sigev_un._tid = thread;
    CHECK(!timer_create(CLOCK_MONOTONIC, &event, &made), "timer_create");
    return made;
}

static void set(timer_t timer, long every, long first) {
    struct itimerspec setting = {{0, every}, {0, first}};
    CHECK(!timer_settime(timer, 0, &setting, NULL), "timer_settime");
}

// Each signal says how many expirations it stands for. None is lost. After a resume some are told once more: those
// between two checkpoints that a signal was taken for.
static void count(long steps) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    timer_t spare = timer(SIGEV_NONE, 0, 0, 0), periodic = timer(SIGEV_SIGNAL, SIGRTMIN, 77, 0);
    CHECK(!timer_delete(spare), "timer_delete"); // the other's id is not the first
    set(periodic, PERIOD, PERIOD);
    long last = -1, latest = 0;
    for (long step = 0; step < steps; step++) {
        usleep(step % 3 == 0 ? 9000 : 500);
        siginfo_t info;
        long before = now();
        CHECK(sigwaitinfo(&signals, &info) == SIGRTMIN, "a signal of the timer");
        long after = now();
        CHECK(info.si_code == SI_TIMER && info.si_value.sival_int == 77, "code %d", info.si_code);
        long expirations = 1 + info.si_overrun;
        if (last >= 0) {
            long least = (before - latest) / PERIOD - 2, most = (after - last) / PERIOD + TOLD_AGAIN;
            CHECK(expirations >= least && expirations <= most, "%ld expirations, from %ld to %ld", expirations, least,
                  most);
        }
        last = before;
        latest = after;
    }
    CHECK(!timer_delete(periodic), "timer_delete");
    struct itimerspec left;
    CHECK(timer_gettime(periodic, &left) == -1 && errno == EINVAL, "it is there still");
}

static atomic_long ticks;
static _Thread_local bool is_the_one;

static void tick(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    CHECK(is_the_one && info->si_value.sival_int == 5, "the timer of a thread ticks elsewhere");
    atomic_fetch_add(&ticks, 1);
}

static void *ticked(void *wanted) {
    is_the_one = true;
    timer_t own = timer(SIGEV_THREAD_ID, SIGRTMIN + 1, 5, (pid_t)syscall(SYS_gettid));
    set(own, 2 * MS, MS);
    while (atomic_load(&ticks) < *(long *)wanted) pause();
    CHECK(!timer_delete(own), "timer_delete");
    return NULL;
}

static void tick_in_a_thread(long wanted) {
    struct sigaction action = {.sa_sigaction = tick, .sa_flags = SA_SIGINFO};
    CHECK(!sigaction(SIGRTMIN + 1, &action, NULL), "sigaction");
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, ticked, &wanted) && !pthread_join(thread, NULL), "a thread");
}

static void ring_once(void) {
    struct sigaction action = {.sa_handler = SIG_DFL};
    CHECK(!sigaction(SIGALRM, &action, NULL), "sigaction");
    timer_t once = timer(SIGEV_SIGNAL, SIGALRM, 0, 0);
    set(once, 0, 25 * MS);
    for (;;) pause(); // it ends this process
}

int main(int argc, char **argv) {
    long rounds = scale(argc, argv, 40);
    for (long round = 0; round < rounds; round++) {
        pid_t children[3];
        for (int i = 0; i < 3; i++) {
            if ((children[i] = fork())) continue;
            if (i == 0) count(8);
            if (i == 1) tick_in_a_thread(15);
            if (i == 2) ring_once();
            _exit(0);
        }
        for (int i = 0; i < 3; i++) {
            int status;
            CHECK(waitpid(children[i], &status, 0) == children[i], "wait");
            CHECK(status == (i == 2 ? SIGALRM : 0), "child %d ends with %x", i, status);
        }
        printf("round %ld\n", round);
        fflush(stdout);
    }
    printf("done\n");
    return 0;
}
