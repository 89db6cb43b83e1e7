// Threads that make watched calls without end. As soon as one has made enough: the fewest that another made, in percent.
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { THREADS = 8, CALLS = 400, BYTES = 4096 };

static atomic_int calls[THREADS];
static pthread_barrier_t all;

static void *call(void *own) {
    pthread_barrier_wait(&all);
    for (atomic_int *made = own; *made < CALLS; ++*made) {
        void *shared = mmap(NULL, BYTES, PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(shared != MAP_FAILED && !munmap(shared, BYTES), "shared memory");
    }
    int fewest = CALLS;
    for (int each = 0; each < THREADS; each++)
        if (calls[each] < fewest) fewest = calls[each];
    printf("%d\n", 100 * fewest / CALLS);
    exit(0);
}

int main(void) {
    CHECK(!pthread_barrier_init(&all, NULL, THREADS), "pthread_barrier_init");
    pthread_t thread;
    for (int each = 0; each < THREADS; each++) CHECK(!pthread_create(&thread, NULL, call, &calls[each]), "pthread_create");
    pthread_join(thread, NULL);
}
