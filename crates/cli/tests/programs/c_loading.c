// A large memory of which little is used at a time, so that a resume goes on long before all of it is there.
//
// - every page says what it is and how often it was written; each is checked before it is written again;
// - threads walk over it at random for long without a call, one of them from a stack far from any other;
// - calls are given memory that was not touched for long: reads into it, writes out of it, times, masks;
// - mappings are parted, moved, emptied and made again;
// - ticks of a timer come on an alternate stack, and their handler touches pages far away;
// - now and then all of it is summed up at once.
//
// The output is the same however the threads are scheduled. Usage: c_loading [ROUNDS]
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { WALKERS = 3, PAGE = 4096, PAGES = 20480, OF_TICKS = 512, MOVED = 64, STEPS = 60000, WRITES = 60 };

struct page {
    uint64_t number, version, words[PAGE / 8 - 3], sum;
};
_Static_assert(sizeof(struct page) == PAGE, "a page");

static struct page *pages, *of_ticks, *moved;
static pthread_barrier_t begins, ends;
static atomic_bool stop;
static atomic_long ticks;
static uint64_t digests[WALKERS];

static uint64_t sum_of(const struct page *page) {
    return fold(fold(page->number, page->version), page->words[0]);
}

static void write_page(struct page *page, uint64_t number, uint64_t version) {
    page->number = number;
    page->version = version;
    page->words[0] = page->words[version % (PAGE / 8 - 3)] = number * 31 + version;
    page->sum = sum_of(page);
}

static void check_page(const struct page *page, uint64_t number) {
    CHECK(page->number == number, "page %lu says it is %lu", number, page->number);
    CHECK(page->sum == sum_of(page), "page %lu of version %lu is torn", number, page->version);
    CHECK(page->words[page->version % (PAGE / 8 - 3)] == number * 31 + page->version,
          "page %lu lost a word of version %lu", number, page->version);
}

static void on_tick(int sig) {
    (void)sig;
    static uint64_t random = 7;
    for (int i = 0; i < 3; i++) {
        uint64_t number = next_random(&random) % OF_TICKS;
        check_page(&of_ticks[number], number);
        write_page(&of_ticks[number], number, of_ticks[number].version + 1);
    }
    ticks++;
}

// Pages of one walker are those whose number leaves its rest; nothing here is a system call.
static void walk(int id, uint64_t *random, uint64_t *digest) {
    for (int step = 0; step < STEPS; step++) {
        uint64_t number = next_random(random) % (PAGES / WALKERS) * WALKERS + id;
        check_page(&pages[number], number);
        *digest = fold(*digest, pages[number].version);
        if (step % (STEPS / WRITES) == 0) write_page(&pages[number], number, pages[number].version + 1);
    }
}

static void *walker(void *of) {
    int id = (int)(intptr_t)of;
    uint64_t random = 100 + id;
    for (;;) {
        pthread_barrier_wait(&begins);
        if (stop) return NULL;
        walk(id, &random, &digests[id]);
        pthread_barrier_wait(&ends);
    }
}

// While the walkers stand at a barrier: the kernel reads and writes pages that nothing touched for long.
static void call(uint64_t *random) {
    static int zero = -1, null = -1;
    if (zero < 0) zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY);
    uint64_t number = next_random(random) % (PAGES - 8);
    CHECK(write(null, &pages[number], 8 * PAGE) == 8 * PAGE, "write out of pages %lu", number);
    uint64_t versions[8];
    for (int i = 0; i < 8; i++) versions[i] = pages[number + i].version;
    CHECK(read(zero, &pages[number], 8 * PAGE) == 8 * PAGE, "read into pages %lu", number);
    for (int i = 0; i < 8; i++) {
        CHECK(pages[number + i].sum == 0, "page %lu was not read into", number + i);
        write_page(&pages[number + i], number + i, versions[i] + 1);
    }
    number = next_random(random) % PAGES;
    check_page(&pages[number], number);
    struct timespec *pause = (void *)&pages[number].words[100];
    *pause = (struct timespec){0, 100000};
    CHECK(nanosleep(pause, NULL) == 0, "a pause read from page %lu", number);
    CHECK(mprotect(&pages[number], PAGE, PROT_READ) == 0, "mprotect");
    check_page(&pages[number], number);
    CHECK(mprotect(&pages[number], PAGE, PROT_READ | PROT_WRITE) == 0, "mprotect");
    moved = mremap(moved, MOVED * PAGE, MOVED * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
                   mmap(NULL, MOVED * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    CHECK(moved != MAP_FAILED, "mremap");
    for (int i = 0; i < MOVED; i++) check_page(&moved[i], i);
    number = next_random(random) % MOVED;
    CHECK(madvise(&moved[number], PAGE, MADV_DONTNEED) == 0, "madvise");
    CHECK(moved[number].sum == 0, "an emptied page holds something");
    write_page(&moved[number], number, number);
}

static uint64_t sum_up(void) {
    uint64_t digest = 0;
    for (uint64_t number = 0; number < PAGES; number++) {
        check_page(&pages[number], number);
        digest = fold(digest, pages[number].version);
    }
    return digest;
}

static struct page *new_pages(uint64_t count) {
    struct page *made = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(made != MAP_FAILED, "mmap");
    for (uint64_t number = 0; number < count; number++) write_page(&made[number], number, 0);
    return made;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 40;
    pages = new_pages(PAGES);
    of_ticks = new_pages(OF_TICKS);
    moved = new_pages(MOVED);
    stack_t apart = {.ss_sp = malloc(65536), .ss_size = 65536};
    CHECK(sigaltstack(&apart, NULL) == 0, "sigaltstack");
    struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_ONSTACK | SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0, "sigaction");
    pthread_barrier_init(&begins, NULL, WALKERS + 1);
    pthread_barrier_init(&ends, NULL, WALKERS + 1);
    pthread_t threads[WALKERS];
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarms, NULL); // ticks are the main thread's
    for (intptr_t id = 0; id < WALKERS; id++) {
        CHECK(pthread_create(&threads[id], NULL, walker, (void *)id) == 0, "pthread_create");
    }
    pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    struct itimerval every = {{0, 3000}, {0, 3000}};
    CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0, "setitimer");
    uint64_t random = 1, digest = 0;
    for (int round = 0; round < rounds; round++) {
        pthread_barrier_wait(&begins);
        pthread_barrier_wait(&ends);
        struct timespec left = {0, 200000};
        while (nanosleep(&left, &left) != 0) CHECK(errno == EINTR, "nanosleep");
        for (int id = 0; id < WALKERS; id++) digest = fold(digest, digests[id]);
        pthread_sigmask(SIG_BLOCK, &alarms, NULL);
        call(&random);
        pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
        if (round % 4 == 0) digest = fold(digest, sum_up());
        printf("round %d: %016lx\n", round, digest);
        fflush(stdout);
    }
    stop = true;
    pthread_barrier_wait(&begins);
    for (int id = 0; id < WALKERS; id++) pthread_join(threads[id], NULL);
    CHECK(ticks > 0, "no tick came");
    for (uint64_t number = 0; number < OF_TICKS; number++) check_page(&of_ticks[number], number);
    printf("all: %016lx\n", sum_up());
    return 0;
}
