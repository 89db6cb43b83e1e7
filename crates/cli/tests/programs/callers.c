// Threads that make watched calls, each beside the calls of the others, until there is a file `go`.
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

enum { THREADS = 8 };

static void *call(void *name) {
    for (;;) {
        int file = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0600);
        CHECK(file >= 0, "open");
        CHECK(write(file, name, 1) == 1, "write");
        CHECK(close(file) == 0, "close");
    }
    return NULL;
}

int main(int count, char **arguments) {
    CHECK(count == 2 && chdir(arguments[1]) == 0, "chdir");
    static char names[THREADS][2];
    for (int each = 0; each < THREADS; each++) {
        names[each][0] = (char)('a' + each);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, call, names[each]) == 0, "pthread_create");
    }
    while (access("go", F_OK) != 0) usleep(10000);
    puts("end");
}
