// Processes that sleep in a semaphore and a futex of shared memory, beside one that writes to pages that they share until
// a file is there. Each step it compares them with memory of its own. Usage: shared_sleepers GO
#define _GNU_SOURCE
#include "check.h"

#include <linux/futex.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLEEPERS = 6, PAGES = 8 };

struct page {
    uint64_t steps, answer;
};

// In a page that nobody writes to while they sleep.
struct bed {
    sem_t semaphore;
    atomic_int word;
};

static struct page *page(char *memory, int i) { return (struct page *)(memory + i * 4096); }
static struct bed *bed(char *memory, int i) { return (struct bed *)(memory + PAGES * 4096) + i; }

static int sleep_beside(struct page *own, struct bed *bed) {
    prctl(PR_SET_NAME, "sleep");
    while (sem_wait(&bed->semaphore)) CHECK(errno == EINTR, "sem_wait");
    while (atomic_load(&bed->word) == 0) syscall(SYS_futex, &bed->word, FUTEX_WAIT, 0, NULL, NULL, 0);
    own->answer = own->steps + 1;
    return 0;
}

int main(int argc, char **argv) {
    CHECK(argc == 2, "a name");
    char *memory = mmap(NULL, (PAGES + 1) * 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED, "mmap");
    // Half of them sleep in the semaphore, half in the futex.
    for (int i = 0; i < SLEEPERS; i++) {
        CHECK(sem_init(&bed(memory, i)->semaphore, 1, i % 2) == 0, "semaphore");
        pid_t child = fork();
        CHECK(child >= 0, "fork");
        if (child == 0) return sleep_beside(page(memory, i), bed(memory, i));
    }
    uint64_t chance = 7, steps[PAGES] = {0};
    while (access(argv[1], F_OK) != 0) {
        int i = (int)(next_random(&chance) % PAGES);
        CHECK(page(memory, i)->steps == steps[i], "page %d: %lu, not %lu", i, page(memory, i)->steps, steps[i]);
        page(memory, i)->steps = ++steps[i];
    }
    for (int i = 0; i < SLEEPERS; i++) {
        atomic_store(&bed(memory, i)->word, 1);
        syscall(SYS_futex, &bed(memory, i)->word, FUTEX_WAKE, 1, NULL, NULL, 0);
        CHECK(sem_post(&bed(memory, i)->semaphore) == 0, "sem_post");
    }
    for (int i = 0; i < SLEEPERS; i++) {
        int status;
        CHECK(wait(&status) > 0 && status == 0, "a sleeper ended with %x", status);
    }
    for (int i = 0; i < SLEEPERS; i++) CHECK(page(memory, i)->answer == steps[i] + 1, "the answer of sleeper %d", i);
    printf("end\n");
    return 0;
}
