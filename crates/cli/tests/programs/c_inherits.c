// Processes with the memory of the one that made them: each writes some of it, gives some back, has children of its own
// that begin with what it holds then, and finds every page as it left it. A page that all have is written by one, and
// one that only a child still has when its maker wrote it. The kernel keeps the end of a process's heap when
// the process changes its name.
// Usage: c_inherits ROUNDS
#define _GNU_SOURCE
#include "check.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 1024, PAGE = 4096, WORDS = PAGE / 8, WRITES = 6, DEPTH = 3, CHILDREN = 3 };

static uint64_t (*memory)[WORDS];
static uint32_t version[PAGES]; // 0: given back, so it reads zero

static uint64_t word(long page, int at) {
    uint64_t state = (uint64_t)page << 40 | (uint64_t)version[page] << 8 | (uint64_t)at;
    return version[page] == 0 ? 0 : next_random(&state);
}

static void write_page(long page, uint64_t *random) {
    version[page] = 1 + (uint32_t)(next_random(random) >> 33);
    for (int at = 0; at < WORDS; at += 73) memory[page][at] = word(page, at);
}

static void check_all(const char *when) {
    for (long page = 0; page < PAGES; page++)
        for (int at = 0; at < WORDS; at += 73)
            CHECK(memory[page][at] == word(page, at), "process %d, page %ld, %s", getpid(), page, when);
}

// Grows the heap or takes another name.
static void change(uint64_t *random) {
    CHECK((void *)syscall(SYS_brk, 0) == sbrk(0), "process %d: the heap ends at %p, not %p", getpid(),
          (void *)syscall(SYS_brk, 0), sbrk(0));
    uint64_t drawn = next_random(random) >> 33;
    if (drawn % 4 == 0) CHECK(sbrk(PAGE) != (void *)-1, "sbrk");
    if (drawn % 4 == 1) CHECK(!prctl(PR_SET_NAME, drawn % 8 == 1 ? "inherits" : "has"), "prctl");
}

static uint64_t digest(void) {
    uint64_t sum = 0;
    for (long page = 0; page < PAGES; page++) sum = sum * 31 + version[page];
    return sum ^ sum >> 32;
}

// What its maker is told at its end.
static int told(uint64_t sum) { return (int)((sum ^ sum >> 8 ^ sum >> 16) % 100); }

static uint64_t work(long rounds, uint64_t seed, int depth) {
    uint64_t sum = 0;
    pid_t children[CHILDREN];
    int made = 0;
    for (long round = 0; round < rounds; round++) {
        for (int i = 0; i < WRITES; i++) write_page((long)(next_random(&seed) % PAGES), &seed);
        long page = (long)(next_random(&seed) % PAGES);
        CHECK(!madvise(memory[page], PAGE, MADV_DONTNEED), "madvise");
        version[page] = 0;
        change(&seed);
        if (depth < DEPTH && made < CHILDREN && round % (rounds / CHILDREN + 1) == (rounds > 1 ? 1 : 0)) {
            pid_t child = fork();
            CHECK(child >= 0, "fork");
            if (child == 0) {
                check_all("at its beginning");
                _exit(told(work(rounds * 2 / 3, seed ^ (uint64_t)(made + 7), depth + 1)));
            }
            children[made++] = child;
        }
        if (round % 8 == 0) check_all("on the way");
        usleep(1500);
        if (depth == 0) printf("%ld %016lx\n", round, (unsigned long)digest()), fflush(stdout);
    }
    for (int i = 0; i < made; i++) {
        int status;
        CHECK(waitpid(children[i], &status, 0) == children[i], "waitpid");
        CHECK(WIFEXITED(status), "a child ended with %x", status);
        sum = sum * 101 + (uint64_t)WEXITSTATUS(status);
    }
    check_all("at its end");
    return sum * 7 + digest();
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 30;
    uint64_t seed = 4;
    memory = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED, "mmap");
    for (long page = 0; page < PAGES; page++) write_page(page, &seed);
    for (long i = 0; i < 20; i++) usleep(2000); // checkpoints hold it before it has a child
    printf("%016lx\n", (unsigned long)work(rounds, seed, 0));
    return 0;
}
