// A program that does nothing until an instant of the wall clock, and prints for how long it did nothing by its own.
//
// Its own clock stands still while it is dead, and only then. Usage: c_rest SECONDS
#define _GNU_SOURCE
#include "check.h"

#include <signal.h>
#include <sys/time.h>
#include <time.h>

static uint64_t now_ns(void) {
    struct timespec now;
    CHECK(!clock_gettime(CLOCK_MONOTONIC, &now), "clock_gettime");
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

int main(int argc, char **argv) {
    const struct itimerval far = {.it_value.tv_sec = 1000};
    struct itimerval left;
    struct timespec until;
    long seconds = scale(argc, argv, 3);
    uint64_t began = now_ns();
    CHECK(!setitimer(ITIMER_REAL, &far, NULL) && !clock_gettime(CLOCK_REALTIME, &until), "the time");
    until.tv_sec += seconds;
    CHECK(!clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &until, NULL), "clock_nanosleep");
    uint64_t slept_ms = (now_ns() - began) / 1000000;
    CHECK(!getitimer(ITIMER_REAL, &left), "getitimer");
    uint64_t rang_ms = 1000000 - (uint64_t)left.it_value.tv_sec * 1000 - (uint64_t)left.it_value.tv_usec / 1000;
    printf("%llu %llu\n", (unsigned long long)slept_ms, (unsigned long long)rang_ms);
    return 0;
}
