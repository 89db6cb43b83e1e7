// Processes that count together in shared memory of every kind, under every kind of lock: anonymous, a sealed memory
// file, a removed file of /dev/shm, a named file. Sums must be right whenever somebody holds the lock, and at the end.
//
// Meanwhile each process moves, splits, protects, unmaps and maps its pages again as its seed says, writes by write(2),
// cuts and lengthens files, and makes children that count for a while and end, or execute this program anew.
// Usage: c_shared ROUNDS [SEED]
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 16, TAIL = 3, CELLS = 4, WORKERS = 4, EXITED = 37 };
enum kind { ANONYMOUS, MEMORY, REMOVED, NAMED, KINDS };

struct lock {
    pthread_mutex_t mutex;
    sem_t semaphore;
    atomic_int word; // 0: free, 1: held, 2: somebody waits
};

// In anonymous shared memory that nobody moves.
struct control {
    sem_t begin[WORKERS], done;
    struct lock locks[KINDS];
    uint64_t totals[KINDS];
    int work[WORKERS]; // steps of the next round; 0: end
};

static struct control *control;
static struct area {
    int fd;
    unsigned char *at[PAGES];
    int readable_only[PAGES];
} areas[KINDS];
static unsigned char *room; // where pages are moved to

static volatile uint64_t worked;

static void work(uint64_t word, long steps) { worked = spin(word, steps); }

// ---- locks ----

static void futex_lock(atomic_int *word) {
    int free = 0;
    if (atomic_compare_exchange_strong(word, &free, 1)) return;
    while (atomic_exchange(word, 2) != 0) syscall(SYS_futex, word, FUTEX_WAIT, 2, NULL, NULL, 0);
}

static void futex_unlock(atomic_int *word) {
    if (atomic_exchange(word, 0) == 2) syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

// Plain mutex, semaphore, futex, mutex with priority inheritance.
static void lock(int kind) {
    struct lock *lock = &control->locks[kind];
    switch (kind) {
    case MEMORY:
        while (sem_wait(&lock->semaphore)) CHECK(errno == EINTR, "sem_wait");
        break;
    case REMOVED: futex_lock(&lock->word); break;
    default: CHECK(pthread_mutex_lock(&lock->mutex) == 0, "lock %d", kind);
    }
}

static void unlock(int kind) {
    struct lock *lock = &control->locks[kind];
    switch (kind) {
    case MEMORY: CHECK(sem_post(&lock->semaphore) == 0, "sem_post"); break;
    case REMOVED: futex_unlock(&lock->word); break;
    default: CHECK(pthread_mutex_unlock(&lock->mutex) == 0, "unlock %d", kind);
    }
}

static void make_locks(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        pthread_mutexattr_t attributes;
        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
        if (kind == NAMED) pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
        CHECK(pthread_mutex_init(&control->locks[kind].mutex, &attributes) == 0, "mutex %d", kind);
        CHECK(sem_init(&control->locks[kind].semaphore, 1, 1) == 0, "semaphore");
    }
    for (int i = 0; i < WORKERS; i++) CHECK(sem_init(&control->begin[i], 1, 0) == 0, "semaphore");
    CHECK(sem_init(&control->done, 1, 0) == 0, "semaphore");
}

// ---- areas ----

static void *map_shared(void *at, size_t len, int fd, off_t offset) {
    int flags = MAP_SHARED | (at ? MAP_FIXED : 0) | (fd < 0 ? MAP_ANONYMOUS : 0);
    void *mapped = mmap(at, len, PROT_READ | PROT_WRITE, flags, fd, offset);
    CHECK(mapped != MAP_FAILED, "mmap");
    return mapped;
}

static void map_area(struct area *area) {
    // A mapping of the file shows one page, and grows.
    size_t first = area == &areas[NAMED] ? PAGE : PAGES * PAGE;
    unsigned char *at = map_shared(NULL, first, area->fd, 0);
    at = mremap(at, first, PAGES * PAGE, MREMAP_MAYMOVE);
    CHECK(at != MAP_FAILED, "mremap to more");
    for (int page = 0; page < PAGES; page++) area->at[page] = at + page * PAGE;
}

static void make_areas(void) {
    char name[64];
    struct timespec now; // process ids repeat from one run to the next
    CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0, "the time");
    snprintf(name, sizeof name, "/twinpage-shared-%ld-%ld", (long)now.tv_sec, now.tv_nsec);
    areas[ANONYMOUS].fd = -1;
    areas[MEMORY].fd = memfd_create("counts", MFD_ALLOW_SEALING);
    areas[REMOVED].fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(areas[REMOVED].fd >= 0 && shm_unlink(name) == 0, "shm_open");
    areas[NAMED].fd = open("counts", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    for (int kind = 0; kind < KINDS; kind++) {
        if (kind != ANONYMOUS) CHECK(areas[kind].fd >= 0 && ftruncate(areas[kind].fd, PAGES * PAGE) == 0, "area %d", kind);
        map_area(&areas[kind]);
    }
    CHECK(fcntl(areas[MEMORY].fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0, "seal");
    // Through the mapping alone from here on, as sem_open(3) leaves it.
    if (now.tv_nsec & 1) return;
    close(areas[REMOVED].fd);
    areas[REMOVED].fd = -1;
}

static uint64_t *cell(struct area *area, int page, int index) {
    return (uint64_t *)(area->at[page] + index * 1000);
}

static uint64_t sum(int kind) {
    uint64_t all = 0;
    for (int page = 0; page < PAGES; page++)
        for (int index = 0; index < CELLS; index++) all += *cell(&areas[kind], page, index);
    return all;
}

static void make_writable(struct area *area, int page) {
    if (!area->readable_only[page]) return;
    CHECK(mprotect(area->at[page], PAGE, PROT_READ | PROT_WRITE) == 0, "mprotect");
    area->readable_only[page] = 0;
}

static void add(int kind, uint64_t chance) {
    struct area *area = &areas[kind];
    int page = (int)(chance % PAGES), index = (int)(chance / PAGES % CELLS);
    uint64_t amount = 1 + chance % 1000;
    lock(kind);
    if (chance % 7 == 0) CHECK(sum(kind) == control->totals[kind], "the sum of area %d", kind);
    if (area->fd >= 0 && chance % 5 == 0) {
        uint64_t value;
        off_t at = page * PAGE + index * 1000;
        CHECK(pread(area->fd, &value, 8, at) == 8, "pread");
        value += amount;
        CHECK(pwrite(area->fd, &value, 8, at) == 8, "pwrite");
    } else {
        make_writable(area, page);
        uint64_t before = *cell(area, page, index);
        work(chance, (long)(chance % 300));
        *cell(area, page, index) = before + amount;
    }
    control->totals[kind] += amount;
    unlock(kind);
}

// The file is longer for a while.
static void lengthen(int kind, uint64_t chance) {
    if (areas[kind].fd < 0 || kind == MEMORY) return;
    unsigned char bytes[TAIL * PAGE], found[TAIL * PAGE];
    pattern_fill(bytes, chance, 0, sizeof bytes);
    lock(kind);
    CHECK(ftruncate(areas[kind].fd, (PAGES + TAIL) * PAGE) == 0, "ftruncate");
    CHECK(pwrite(areas[kind].fd, bytes, sizeof bytes, PAGES * PAGE) == sizeof bytes, "pwrite");
    unsigned char *tail = map_shared(NULL, TAIL * PAGE, areas[kind].fd, PAGES * PAGE);
    tail[chance % sizeof bytes] ^= 0x5a;
    bytes[chance % sizeof bytes] ^= 0x5a;
    work(chance, 20000);
    CHECK(pread(areas[kind].fd, found, sizeof found, PAGES * PAGE) == sizeof found, "pread");
    CHECK(memcmp(found, bytes, sizeof bytes) == 0 && memcmp(tail, bytes, sizeof bytes) == 0, "the tail of area %d", kind);
    CHECK(munmap(tail, TAIL * PAGE) == 0, "munmap");
    CHECK(ftruncate(areas[kind].fd, PAGES * PAGE) == 0, "ftruncate");
    unlock(kind);
}

// Nothing else may come to where pages are moved to.
static void unmap(unsigned char *at) {
    int is_room = at >= room && at < room + KINDS * PAGES * PAGE;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (is_room)
        CHECK(mmap(at, PAGE, PROT_NONE, flags, -1, 0) == at, "mmap");
    else
        CHECK(munmap(at, PAGE) == 0, "munmap");
}

// What this process shows of a page goes elsewhere, is split off, or is mapped anew. What the page holds stays.
static void change_layout(uint64_t chance) {
    int kind = (int)(chance % KINDS), page = (int)(chance / KINDS % PAGES);
    struct area *area = &areas[kind];
    unsigned char *elsewhere = room + (kind * PAGES + page) * PAGE;
    int is_home = area->at[page] != elsewhere;
    switch (chance / 64 % 6) {
    case 0:
        CHECK(mprotect(area->at[page], PAGE, PROT_READ) == 0, "mprotect");
        area->readable_only[page] = 1;
        break;
    case 1: make_writable(area, page); break;
    case 2: // moved
        if (!is_home) break;
        CHECK(mremap(area->at[page], PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere) == elsewhere, "mremap");
        area->at[page] = elsewhere;
        break;
    case 3: { // a second mapping of it, and the first one goes
        unsigned char *twin = mremap(area->at[page], 0, PAGE, MREMAP_MAYMOVE);
        CHECK(twin != MAP_FAILED, "mremap to a twin");
        unmap(area->at[page]);
        area->at[page] = twin;
        break;
    }
    case 4: // unmapped, and mapped again at once or later
        if (area->fd < 0) break;
        unmap(area->at[page]);
        work(chance, (long)(chance % 30000));
        area->at[page] = map_shared(NULL, PAGE, area->fd, page * PAGE);
        area->readable_only[page] = 0;
        break;
    default: CHECK(madvise(area->at[page], PAGE, MADV_DONTNEED) == 0, "madvise");
    }
}

// ---- processes ----

static void count(uint64_t seed, int steps);

static pid_t workers[WORKERS];

// One that found something wrong ends everything.
static void hear_of_a_child(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    if (info->si_code == CLD_EXITED && info->si_status == EXITED) return;
    for (int i = 0; i < WORKERS; i++)
        if (workers[i] > 0 && workers[i] != getpid()) kill(workers[i], SIGKILL);
    _exit(1);
}

static void await_end(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) != child) CHECK(errno == EINTR, "waitpid");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == EXITED, "process %d ended with %x", child, status);
}

// Memory that a process shares with its child alone.
static void share_with_a_child(uint64_t chance) {
    atomic_ulong *both = map_shared(NULL, 3 * PAGE, -1, 0);
    int steps = 50 + (int)(chance % 200);
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    for (int i = 0; i < steps; i++) {
        atomic_fetch_add(&both[i % 3 * 512], 1);
        work(chance, 500);
    }
    if (child == 0) _exit(EXITED);
    await_end(child);
    unsigned long all = both[0] + both[512] + both[1024];
    CHECK(all == 2 * (unsigned long)steps, "%lu of %d", all, 2 * steps);
    CHECK(munmap(both, 3 * PAGE) == 0, "munmap");
}

// A child that counts and ends; or executes this program, which knows the memory file alone.
static void make_a_child(uint64_t chance) {
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        if (chance % 3 == 0) {
            char fd[16], seed[32];
            snprintf(fd, sizeof fd, "%d", areas[MEMORY].fd), snprintf(seed, sizeof seed, "%lu", chance);
            execl("/proc/self/exe", "c_shared", "reader", fd, seed, NULL);
            CHECK(0, "exec");
        }
        count(chance, 20 + (int)(chance % 200));
        _exit(EXITED);
    }
    await_end(child);
}

// Reads what others count, writes what stays the same, and has shared memory of its own.
static int be_reader(int fd, uint64_t seed) {
    areas[MEMORY].fd = fd;
    map_area(&areas[MEMORY]);
    uint64_t before = 0;
    for (int i = 0; i < 20; i++) {
        uint64_t now = sum(MEMORY);
        CHECK(now >= before, "counts only rise");
        before = now;
        atomic_fetch_add((atomic_ulong *)(areas[MEMORY].at[i % PAGES] + 4088), 0);
        work(seed, 20000);
    }
    share_with_a_child(seed);
    return EXITED;
}

static void count(uint64_t seed, int steps) {
    uint64_t chance = seed;
    for (int i = 0; i < steps; i++) {
        uint64_t drawn = next_random(&chance);
        add((int)((drawn >> 8) % KINDS), drawn >> 16);
        if (drawn % 16 == 0) change_layout(drawn >> 12);
        if (drawn % 256 == 1) lengthen((int)((drawn >> 9) % KINDS), drawn);
        work(drawn, (long)(drawn % 2000));
    }
}

static void be_worker(int which, uint64_t seed) {
    uint64_t chance = seed;
    for (;;) {
        while (sem_wait(&control->begin[which])) CHECK(errno == EINTR, "sem_wait");
        if (control->work[which] == 0) _exit(EXITED);
        uint64_t drawn = next_random(&chance);
        count(drawn, control->work[which]);
        if (drawn % 3 == 0) make_a_child(next_random(&chance));
        if (drawn % 5 == 0) share_with_a_child(next_random(&chance));
        CHECK(sem_post(&control->done) == 0, "sem_post");
    }
}

static pid_t make_worker(int which, uint64_t seed) {
    pid_t worker = fork();
    CHECK(worker >= 0, "fork");
    if (worker == 0) be_worker(which, seed);
    return worker;
}

static void give(int which, int steps) {
    control->work[which] = steps;
    CHECK(sem_post(&control->begin[which]) == 0, "sem_post");
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "reader") == 0) return be_reader(atoi(argv[2]), strtoul(argv[3], NULL, 10));
    long rounds = scale(argc, argv, 40);
    uint64_t chance = argc > 2 ? strtoul(argv[2], NULL, 10) : 7;
    room = mmap(NULL, KINDS * PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(room != MAP_FAILED, "mmap");
    control = map_shared(NULL, sizeof *control, -1, 0);
    make_locks();
    make_areas();
    struct sigaction hear = {.sa_sigaction = hear_of_a_child, .sa_flags = SA_SIGINFO | SA_RESTART | SA_NOCLDSTOP};
    CHECK(sigaction(SIGCHLD, &hear, NULL) == 0, "sigaction");
    for (int i = 0; i < WORKERS; i++) workers[i] = make_worker(i, next_random(&chance));
    for (long round = 0; round < rounds; round++) {
        // One works long, while others wait.
        int busy = (int)(next_random(&chance) % WORKERS);
        for (int i = 0; i < WORKERS; i++) give(i, i == busy ? 600 : 60);
        count(next_random(&chance), 30);
        for (int i = 0; i < WORKERS; i++)
            while (sem_wait(&control->done)) CHECK(errno == EINTR, "sem_wait");
        uint64_t digest = 0;
        for (int kind = 0; kind < KINDS; kind++) {
            CHECK(sum(kind) == control->totals[kind], "the sum of area %d", kind);
            for (int page = 0; page < PAGES; page++)
                for (int index = 0; index < CELLS; index++) digest = fold(digest, *cell(&areas[kind], page, index));
        }
        printf("%ld %016llx\n", round, (unsigned long long)digest);
        fflush(stdout);
        uint64_t drawn = next_random(&chance);
        int other = (int)(drawn % (2 * WORKERS));
        if (other < WORKERS) { // another one in its place
            give(other, 0);
            await_end(workers[other]);
            workers[other] = make_worker(other, drawn);
        }
    }
    for (int i = 0; i < WORKERS; i++) give(i, 0);
    for (int i = 0; i < WORKERS; i++) await_end(workers[i]);
    if (areas[MEMORY].fd >= 0)
        CHECK(fcntl(areas[MEMORY].fd, F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_GROW), "the seals");
    printf("end\n");
    return 0;
}
