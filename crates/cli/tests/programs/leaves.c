// Threads make watched calls while another executes the program again, or ends it; a child does the same.
// Usage: leaves TIMES SEED
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 6, BYTES = 8192, CODE = 7 };

static void *call(void *file) {
    for (;;) {
        int own = open(file, O_CREAT | O_RDWR | O_TRUNC, 0600);
        CHECK(own >= 0 && write(own, file, 1) == 1 && !ftruncate(own, BYTES) && !close(own), "a file");
        void *shared = mmap(NULL, BYTES, PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(shared != MAP_FAILED && !munmap(shared, BYTES), "shared memory");
    }
    return NULL;
}

static void execute(char *program, long times, uint64_t seed) {
    char left[24], next[24];
    snprintf(left, sizeof left, "%ld", times), snprintf(next, sizeof next, "%llu", (unsigned long long)seed);
    execl(program, program, left, next, NULL);
    CHECK(0, "execl");
}

int main(int count, char **arguments) {
    CHECK(count == 3, "leaves TIMES SEED");
    long times = atol(arguments[1]);
    uint64_t chance = strtoull(arguments[2], NULL, 10);
    static char files[THREADS][24];
    for (int each = 0; each < THREADS; each++) {
        snprintf(files[each], sizeof files[each], "%d-%d", (int)getpid(), each);
        pthread_t thread;
        CHECK(!pthread_create(&thread, NULL, call, files[each]), "pthread_create");
    }
    struct timespec later = {0, next_random(&chance) % 8000000};
    nanosleep(&later, NULL);
    if (times == 0) return CODE;
    if (times % 2) {
        pid_t child = fork();
        CHECK(child >= 0, "fork");
        if (!child) execute(arguments[0], 0, next_random(&chance));
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == CODE << 8, "it ended with %x", status);
    }
    execute(arguments[0], times - 1, next_random(&chance));
}
