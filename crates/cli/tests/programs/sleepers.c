// A program that does nothing for as long as it can.
//
//   sleepers all    threads that wait in many kinds of calls, with and without a limit, for ever
//   sleepers spent  writes to a thousand pages for half a second, so that they are written in every epoch, and then
//                   does nothing for ever
//   sleepers busy   the same for two seconds, and then it ends
//   sleepers lines  the same for as long as it lives
//   sleepers answer as hear, while another thread writes to them
//   sleepers hear   says "ready"; prints each line it reads; at "timer" it waits a second for a timer and says
//                   "rang"; at the end of its input it says "end"
#define _GNU_SOURCE
#include "check.h"

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { LONG_S = 3600 };

static int nothing[2]; // a pipe that is never written to

static void *in_read(void *unused) {
    char byte;
    CHECK(read(nothing[0], &byte, 1) < 0, "read");
    return unused;
}

static void *in_nanosleep(void *unused) {
    sleep(LONG_S);
    return unused;
}

static void *in_absolute_sleep(void *unused) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += LONG_S;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    return unused;
}

static void *in_poll(void *unused) {
    struct pollfd one = {.fd = nothing[0], .events = POLLIN};
    poll(&one, 1, LONG_S * 1000);
    return unused;
}

static void *in_endless_poll(void *unused) {
    struct pollfd one = {.fd = nothing[0], .events = POLLIN};
    poll(&one, 1, -1);
    return unused;
}

static void *in_endless_epoll(void *unused) {
    int poll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(poll >= 0 && !epoll_ctl(poll, EPOLL_CTL_ADD, nothing[0], &event), "epoll");
    epoll_wait(poll, &event, 1, -1);
    return unused;
}

static void *in_futex(void *unused) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&mutex);
    for (;;)
        pthread_cond_wait(&never, &mutex);
    return unused;
}

static void *in_semaphore(void *unused) {
    static sem_t never;
    sem_init(&never, 0, 0);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LONG_S;
    sem_timedwait(&never, &until);
    return unused;
}

static void *in_pause(void *unused) {
    for (;;)
        pause();
    return unused;
}

static void all(void) {
    void *(*const kinds[])(void *) = {in_read,          in_nanosleep, in_absolute_sleep, in_poll, in_endless_poll,
                                      in_endless_epoll, in_futex,     in_semaphore,      in_pause};
    pthread_t thread;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        CHECK(!pthread_create(&thread, NULL, kinds[i], NULL), "pthread_create");
    in_pause(NULL);
}

static void write_for(long ms) {
    enum { PAGES = 1000, PAGE = 4096 };
    volatile char *bytes = malloc(PAGES * PAGE);
    CHECK(bytes, "malloc");
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do {
        for (int i = 0; i < PAGES; i++)
            bytes[i * PAGE]++;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - from.tv_sec) * 1000 + (now.tv_nsec - from.tv_nsec) / 1000000 < ms);
}

static volatile sig_atomic_t rang;
static void ring(int signal) {
    rang = signal;
}

static void *in_writes(void *unused) {
    write_for(LONG_S * 1000L);
    return unused;
}

static void hear(void) {
    struct sigaction action = {.sa_handler = ring};
    CHECK(!sigaction(SIGALRM, &action, NULL), "sigaction");
    char line[100];
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (!strcmp(line, "timer\n")) {
            sigset_t alarm, before;
            sigemptyset(&alarm);
            sigaddset(&alarm, SIGALRM);
            sigprocmask(SIG_BLOCK, &alarm, &before);
            struct itimerval second = {.it_value = {.tv_sec = 1}};
            CHECK(!setitimer(ITIMER_REAL, &second, NULL), "setitimer");
            while (!rang)
                sigsuspend(&before);
            strcpy(line, "rang\n");
        }
        fputs(line, stdout);
        fflush(stdout);
    }
    puts("end");
}

int main(int argc, char **argv) {
    CHECK(argc == 2 && !pipe(nothing), "usage");
    if (!strcmp(argv[1], "all"))
        all();
    else if (!strcmp(argv[1], "spent"))
        write_for(500), in_pause(NULL);
    else if (!strcmp(argv[1], "busy"))
        write_for(2000);
    else if (!strcmp(argv[1], "lines"))
        write_for(LONG_S * 1000L);
    else if (!strcmp(argv[1], "answer")) {
        pthread_t writer;
        CHECK(!pthread_create(&writer, NULL, in_writes, NULL), "a thread");
        hear();
    } else
        hear();
    return 0;
}
