// Threads that make threads, which end at once: each is waited for, or detached. Usage: c_brief THREADS
#include "check.h"

#include <pthread.h>

enum { MAKERS = 3 };

static void *end_at_once(void *arg) { return arg; }

static void *make(void *arg) {
    long many = (long)arg;
    for (long i = 0; i < many; i++) {
        pthread_t thread;
        void *given;
        CHECK(!pthread_create(&thread, NULL, end_at_once, (void *)i), "a thread");
        if (i % 2) {
            CHECK(!pthread_detach(thread), "detach");
            continue;
        }
        CHECK(!pthread_join(thread, &given) && (long)given == i, "thread %ld", i);
    }
    return NULL;
}

int main(int argc, char **argv) {
    long many = scale(argc, argv, 600);
    pthread_t makers[MAKERS];
    for (int i = 0; i < MAKERS; i++) CHECK(!pthread_create(&makers[i], NULL, make, (void *)many), "a maker");
    for (int i = 0; i < MAKERS; i++) CHECK(!pthread_join(makers[i], NULL), "a maker");
    printf("%ld threads were made\n", MAKERS * many);
    return 0;
}
