// Its heap grows and shrinks for ever, beside a child that sleeps: at each checkpoint it is asked for its break.
#define _GNU_SOURCE
#include "check.h"

#include <unistd.h>

enum { STEP = 4096 };

int main(void) {
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    for (; !child;) pause();
    puts("ready");
    fflush(stdout);
    for (;;) {
        char *grown = sbrk(STEP);
        CHECK(grown != (void *)-1, "sbrk");
        memset(grown, 1, STEP);
        CHECK(sbrk(-STEP) != (void *)-1, "sbrk");
    }
}
