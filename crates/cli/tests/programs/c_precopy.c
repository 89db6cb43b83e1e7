// Two threads that write more than a stop should copy, and take its pages away while they are copied before it: between
// that copy and the stop a page may be written again, dropped, unmapped and mapped anew, moved, forbidden, or shared with
// a child; and a mapping may come and go. Written pages may lie apart from one another: the kernel tells of 512 at a time.
//
// Each thread has blocks of its own and knows what each page of them must be. Usage: c_precopy [ROUNDS]
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
enum { THREADS = 2, BLOCKS = 24, PAGES = 256, WORDS = PAGE / 8 };

struct block {
    uint64_t *at;
    uint64_t seed[PAGES];  // of each page; 0: it is zeros
};

struct thread {
    pthread_t id;
    uint64_t random, digest;
    long steps;
    struct block blocks[BLOCKS];
};

static struct thread threads[THREADS];

static uint64_t *map(void *at) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0);
    void *mapped = mmap(at, PAGES * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(mapped != MAP_FAILED, "mmap");
    return mapped;
}

static void write_pages(struct thread *t, struct block *b, int from, int to) {
    for (int page = from; page < to; page++) {
        uint64_t seed = next_random(&t->random) | 1, *words = b->at + page * WORDS;
        for (uint64_t i = 0; i < WORDS; i++) words[i] = seed * (i + 1);
        b->seed[page] = seed;
    }
}

static void check_pages(struct thread *t, struct block *b) {
    for (int page = 0; page < PAGES; page++) {
        uint64_t seed = b->seed[page], *words = b->at + page * WORDS;
        for (uint64_t i = 0; i < WORDS; i++)
            CHECK(words[i] == seed * (i + 1), "page %d of the block at %p: word %lu is %lx, its seed %lx", page,
                  (void *)b->at, i, words[i], seed);
        t->digest = fold(t->digest, seed);
    }
}

// A child has the pages as they are now, whatever becomes of the parent's.
static void check_in_child(struct thread *t, struct block *b) {
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (!child) {
        check_pages(t, b);
        write_pages(t, b, 0, PAGES / 4);
        check_pages(t, b);
        _exit(0);
    }
    write_pages(t, b, PAGES / 8, PAGES / 2);
    int status;
    CHECK(waitpid(child, &status, 0) == child && !status, "the child ended with status %x", status);
}

// Pages here and there in all blocks are written again and again, and one of each block is dropped.
static void scatter(struct thread *t) {
    for (int again = 0; again < 8; again++)
        for (int n = 0; n < BLOCKS; n++)
            for (int page = 0; page < PAGES; page += 8) write_pages(t, &t->blocks[n], page, page + 1);
    for (int n = 0; n < BLOCKS; n++) {
        struct block *b = &t->blocks[n];
        int page = (int)(next_random(&t->random) % PAGES);
        CHECK(!madvise(b->at + page * WORDS, PAGE, MADV_DONTNEED), "madvise");
        b->seed[page] = 0;
    }
}

// What is mapped is afterwards as it was before.
static void come_and_go(struct thread *t) {
    struct block b = {.at = map(NULL)};
    write_pages(t, &b, 0, PAGES);
    check_pages(t, &b);
    CHECK(!munmap(b.at, PAGES * PAGE), "munmap");
}

static void step(struct thread *t) {
    struct block *b = &t->blocks[next_random(&t->random) % BLOCKS];
    int from = (int)(next_random(&t->random) % PAGES), to = from + (int)(next_random(&t->random) % (PAGES - from)) + 1;
    check_pages(t, b);
    switch (next_random(&t->random) % 64) {
        case 0 ... 3:
            CHECK(!madvise(b->at + from * WORDS, (to - from) * PAGE, MADV_DONTNEED), "madvise");
            memset(b->seed + from, 0, (to - from) * sizeof *b->seed);
            break;
        case 4 ... 6: {
            uint64_t *at = map(NULL);
            void *moved = mremap(b->at, PAGES * PAGE, PAGES * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at);
            CHECK(moved == at, "mremap");
            b->at = at;
            break;
        }
        case 7 ... 9:
            CHECK(map(b->at) == b->at, "mmap at %p", (void *)b->at);
            memset(b->seed, 0, sizeof b->seed);
            break;
        case 10 ... 12:
            CHECK(!mprotect(b->at, PAGES * PAGE, PROT_NONE), "mprotect");
            CHECK(!mprotect(b->at, PAGES * PAGE, PROT_READ | PROT_WRITE), "mprotect");
            break;
        case 13:
            check_in_child(t, b);
            break;
        case 14 ... 23:
            come_and_go(t);
            break;
        case 24 ... 31:
            scatter(t);
            break;
        default:
            write_pages(t, b, from, to);
    }
}

static void *work(void *of) {
    struct thread *t = of;
    for (long i = 0; i < t->steps; i++) step(t);
    return NULL;
}

int main(int argc, char **argv) {
    long rounds = scale(argc, argv, 40);
    for (int i = 0; i < THREADS; i++) {
        threads[i].random = (uint64_t)i + 1;
        for (int n = 0; n < BLOCKS; n++) threads[i].blocks[n].at = map(NULL);
    }
    for (long round = 1; round <= rounds; round++) {
        for (int i = 0; i < THREADS; i++) {
            threads[i].steps = 40;
            CHECK(!pthread_create(&threads[i].id, NULL, work, &threads[i]), "pthread_create");
        }
        for (int i = 0; i < THREADS; i++) CHECK(!pthread_join(threads[i].id, NULL), "pthread_join");
        printf("round %ld of %ld: %016lx %016lx\n", round, rounds, threads[0].digest, threads[1].digest);
        fflush(stdout);
    }
    return 0;
}
