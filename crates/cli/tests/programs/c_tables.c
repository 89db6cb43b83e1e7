// A program some of whose threads have descriptors of their own: close_range(2), CLOSE_RANGE_UNSHARE.
//
// - one number is one file in the main thread, another in a thread that left, and closed in a third;
// - an open file that tables share has one offset; a pipe has an end in each of two tables;
// - a table's locks are its own: another table of the same process is kept out;
// - a thread made by one that left shares that one's table, also when its maker ended.
//
// It works in its current directory, which should be empty. Usage: c_tables [ROUNDS]
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { NUMBER = 40, GONE, EVENT, TOP = 900, STEPS = 8 };

static int common, pipe_ends[2];
static long rounds;
static pthread_barrier_t meet;

static int open_file(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0, "open %s", path);
    return fd;
}

static void leave(void) {
    CHECK(!syscall(SYS_close_range, TOP, ~0u, CLOSE_RANGE_UNSHARE), "close_range");
}

static void put(int fd, int number, int flags) {
    CHECK(dup3(fd, number, flags) == number && !close(fd), "dup3");
}

static int lock(int fd, short kind) {
    struct flock region = {.l_type = kind, .l_whence = SEEK_SET, .l_start = 0, .l_len = 8};
    return fcntl(fd, F_SETLK, &region);
}

static void append(int fd, uint64_t word) { CHECK(write(fd, &word, sizeof word) == sizeof word, "write"); }

static uint64_t last(int fd) {
    uint64_t word;
    CHECK(pread(fd, &word, sizeof word, lseek(fd, 0, SEEK_END) - 8) == 8, "pread");
    return word;
}

// Shares the table of the thread that made it, which has ended.
static void *heir(void *argument) {
    (void)argument;
    uint64_t word = 2;
    for (long step = 0; step < rounds * STEPS; step++) {
        pthread_barrier_wait(&meet); // the main thread wrote to its file, the common one and the pipe
        uint64_t sent;
        CHECK(read(pipe_ends[0], &sent, sizeof sent) == sizeof sent, "read");
        CHECK(fcntl(pipe_ends[1], F_GETFD) == -1 && errno == EBADF, "the other end is open here, too");
        CHECK(fcntl(NUMBER, F_GETFD) == FD_CLOEXEC && fcntl(GONE, F_GETFD) == -1, "descriptors of my own");
        CHECK(lseek(common, 0, SEEK_CUR) == (off_t)(2 * step + 1) * 8, "the common offset");
        append(common, word = spin(fold(word, sent), 200000));
        append(NUMBER, word);
        append(EVENT, 1);
        pthread_barrier_wait(&meet);
    }
    uint64_t count;
    CHECK(read(EVENT, &count, sizeof count) == sizeof count && count == (uint64_t)rounds * STEPS, "my event");
    return NULL;
}

static void *left(void *argument) {
    leave();
    CHECK(!close(GONE) && !close(pipe_ends[1]), "close");
    put(open_file("own"), NUMBER, O_CLOEXEC);
    put(eventfd(0, 0), EVENT, 0);
    CHECK(!lock(NUMBER, F_WRLCK), "my lock");
    CHECK(!pthread_create(argument, NULL, heir, NULL), "a thread");
    return NULL;
}

// Has nothing open but standard output and a file that nothing else has open.
static void *bare(void *argument) {
    leave();
    CHECK(!close_range(3, ~0u, 0), "close_range");
    int own = open_file("bare");
    CHECK(own == 3, "the first number is %d", own);
    for (long step = 0; step < rounds * STEPS; step++) {
        pthread_barrier_wait(&meet);
        append(own, fold((uint64_t)step, step ? last(own) : 1));
        CHECK(fcntl(NUMBER, F_GETFD) == -1 && errno == EBADF, "a descriptor that I have closed");
        pthread_barrier_wait(&meet);
    }
    *(uint64_t *)argument = last(own);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t maker, made, other;
    uint64_t from_bare = 0, digest = 1;
    rounds = scale(argc, argv, 60);
    common = open_file("common");
    CHECK(!pipe(pipe_ends), "pipe");
    put(open_file("main"), NUMBER, 0);
    put(open_file("gone"), GONE, 0);
    CHECK(!pthread_barrier_init(&meet, NULL, 3), "a barrier");
    CHECK(!pthread_create(&maker, NULL, left, &made) && !pthread_join(maker, NULL), "a thread that makes one");
    CHECK(!pthread_create(&other, NULL, bare, &from_bare), "a thread");
    int theirs = open_file("own");
    for (long step = 0; step < rounds * STEPS; step++) {
        append(common, digest);
        append(NUMBER, digest);
        append(pipe_ends[1], digest);
        pthread_barrier_wait(&meet);
        CHECK(lock(theirs, F_WRLCK) == -1 && (errno == EAGAIN || errno == EACCES), "a lock of another table");
        CHECK(fcntl(EVENT, F_GETFD) == -1, "an event of another table");
        pthread_barrier_wait(&meet);
        digest = fold(fold(digest, last(common)), last(NUMBER));
        if (step % STEPS == STEPS - 1) {
            printf("round %ld: %016llx\n", step / STEPS, (unsigned long long)digest);
            fflush(stdout);
        }
    }
    CHECK(!pthread_join(made, NULL) && !pthread_join(other, NULL), "join");
    printf("end: %016llx\n", (unsigned long long)fold(digest, from_bare));
    return 0;
}
