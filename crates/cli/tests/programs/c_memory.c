// A program that knows what every page of its memory must be, including those that were given back.
//
// - brk: grown and shrunk by odd amounts; what was released reads as zeros again;
// - mprotect: each page readable, writable, executable exactly as last asked, code included;
// - munmap and mmap again at the same address: nothing of the old pages shines through;
// - MADV_DONTNEED: dropped pages read as zeros, their neighbours stay;
// - mremap: grown, shrunk and moved, also to a chosen address;
// - a private file mapping: changed pages stay changed, dropped ones show the file again;
// - a sparse reservation of 64 GiB, huge pages, and a stack that grows deep.
//
// It calls no allocator, so that brk is its own. Usage: c_memory [ROUNDS]
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ul
enum { STEPS = 150 };

static uint64_t random_state = 7;
static uint64_t below(uint64_t n) { return next_random(&random_state) % n; }

static unsigned char *map_at(void *at, size_t len, int prot, int flags) {
    void *p = mmap(at, len, prot, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    CHECK(p != MAP_FAILED && (!(flags & MAP_FIXED) || p == at), "mmap of %zu bytes", len);
    return p;
}

static void check_zero(const unsigned char *at, size_t len, const char *what) {
    for (size_t i = 0; i < len; i++) CHECK(!at[i], "%s: byte %zu at %p is %02x, not zero", what, i, at, at[i]);
}

// A page is all zeros (seed 0) or a pattern.
static void check_page(const unsigned char *page, uint64_t seed, const char *what) {
    if (seed)
        pattern_check(page, seed, 0, PAGE, what);
    else
        check_zero(page, PAGE, what);
}

static uint64_t fill_page(unsigned char *page) {
    uint64_t seed = next_random(&random_state) | 1;
    pattern_fill(page, seed, 0, PAGE);
    return seed;
}

// ---- brk ----

static unsigned char *brk_start, *brk_end;
static const uint64_t BRK_SEED = 0xb4c;

static void brk_step(void) {
    CHECK(sbrk(0) == brk_end, "the program break is %p, not %p", sbrk(0), (void *)brk_end);
    size_t len = (size_t)(brk_end - brk_start), want = below(3000000);
    pattern_check(brk_start, BRK_SEED, 0, len, "heap");
    CHECK(!brk(brk_start + want), "brk");
    brk_end = brk_start + want;
    if (want <= len) return;
    size_t fresh = (len + PAGE - 1) / PAGE * PAGE;
    if (fresh < want) check_zero(brk_start + fresh, want - fresh, "heap grown again");
    pattern_fill(brk_start, BRK_SEED, len, want);
}

// ---- mprotect ----

enum { GUARDED = 64 };
static struct {
    int prot;
    uint64_t seed;
} guarded[GUARDED];
static unsigned char *guarded_at;
static sigjmp_buf fault_jump;
static volatile sig_atomic_t fault_code;
static void *volatile fault_at;

static void on_fault(int sig, siginfo_t *info, void *context) {
    (void)sig, (void)context;
    fault_code = info->si_code, fault_at = info->si_addr;
    siglongjmp(fault_jump, 1);
}

// Whether touching the page works; `write` writes back the byte that is there.
static int can_touch(unsigned char *page, int write) {
    volatile unsigned char *byte = page + 77;
    if (sigsetjmp(fault_jump, 1)) {
        CHECK(fault_code == SEGV_ACCERR && fault_at == (void *)byte, "a fault came with code %d at %p", fault_code,
              fault_at);
        return 0;
    }
    if (write)
        *byte = *byte;
    else
        (void)*byte;
    return 1;
}

// The page's first bytes are `mov eax, imm32; ret`, so that running it tells which page it is.
static void plant_code(unsigned char *page, int i) {
    unsigned char code[] = {0xb8, (unsigned char)i, 0x77, 0x70, 0, 0xc3};
    memcpy(page, code, sizeof code);
}

static void guard_step(void) {
    static const int kinds[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_EXEC};
    int i = (int)below(GUARDED), readable = guarded[i].prot & PROT_READ;
    unsigned char *page = guarded_at + (size_t)i * PAGE;
    CHECK(can_touch(page, 0) == !!readable, "page %d: reading does not follow its protection", i);
    if (readable) {
        CHECK(can_touch(page, 1) == !!(guarded[i].prot & PROT_WRITE), "page %d: writing does not follow", i);
        pattern_check(page, guarded[i].seed, 64, PAGE, "guarded page");
    }
    if (guarded[i].prot & PROT_EXEC) {
        int (*run)(void) = (int (*)(void))(void *)page;
        CHECK(run() == (0x707700 | i), "page %d runs other code", i);
    }
    int prot = kinds[below(4)], count = 1 + (int)below(5);
    if (i + count > GUARDED) count = GUARDED - i;
    for (int j = i; j < i + count; j++) guarded[j].prot = prot;
    CHECK(!mprotect(page, (size_t)count * PAGE, prot), "mprotect");
    if (prot & PROT_WRITE) {
        guarded[i].seed = fill_page(page);
        plant_code(page, i);
    }
}

static void guard_start(void) {
    guarded_at = map_at(NULL, GUARDED * PAGE, PROT_READ | PROT_WRITE, 0);
    for (int i = 0; i < GUARDED; i++) {
        guarded[i].prot = PROT_READ | PROT_WRITE;
        guarded[i].seed = fill_page(guarded_at + (size_t)i * PAGE);
        plant_code(guarded_at + (size_t)i * PAGE, i);
    }
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    CHECK(!sigaction(SIGSEGV, &action, NULL), "sigaction");
}

// ---- one address, mapped again and again; pages dropped in place ----

enum { AGAIN = 64, DROPPED = 256 };
static uint64_t again[AGAIN], dropped[DROPPED];
static unsigned char *again_at, *dropped_at;

static void again_step(void) {
    for (int i = 0; i < AGAIN; i++) check_page(again_at + (size_t)i * PAGE, again[i], "page mapped again");
    int from = (int)below(AGAIN), count = 1 + (int)below(AGAIN - from);
    unsigned char *at = again_at + (size_t)from * PAGE;
    if (below(2)) CHECK(!munmap(at, (size_t)count * PAGE), "munmap");
    map_at(at, (size_t)count * PAGE, PROT_READ | PROT_WRITE, MAP_FIXED);
    memset(&again[from], 0, (size_t)count * sizeof again[0]);
    for (int i = from; i < from + count; i++)
        if (below(3) == 0) again[i] = fill_page(again_at + (size_t)i * PAGE);
}

static void drop_step(void) {
    for (int i = 0; i < 16; i++) {
        int page = (int)below(DROPPED);
        check_page(dropped_at + (size_t)page * PAGE, dropped[page], "page near dropped ones");
    }
    int from = (int)below(DROPPED), count = 1 + (int)below(24);
    if (from + count > DROPPED) count = DROPPED - from;
    CHECK(!madvise(dropped_at + (size_t)from * PAGE, (size_t)count * PAGE, MADV_DONTNEED), "madvise");
    memset(&dropped[from], 0, (size_t)count * sizeof dropped[0]);
    for (int i = 0; i < 12; i++) {
        int page = (int)below(DROPPED);
        dropped[page] = fill_page(dropped_at + (size_t)page * PAGE);
    }
}

// ---- mremap ----

static unsigned char *moving;
static size_t moving_len = 8 * PAGE;
static uint64_t moving_seed;

static void move_step(void) {
    pattern_check(moving, moving_seed, 0, moving_len, "moved mapping");
    size_t len = (1 + below(200)) * PAGE;
    unsigned char *to;
    if (below(2)) {
        to = mremap(moving, moving_len, len, MREMAP_MAYMOVE);
    } else {
        unsigned char *room = map_at(NULL, len, PROT_NONE, 0);
        to = mremap(moving, moving_len, len, MREMAP_MAYMOVE | MREMAP_FIXED, room);
        CHECK(to == room, "mremap to a chosen address");
    }
    CHECK(to != MAP_FAILED, "mremap");
    if (len > moving_len) {
        check_zero(to + moving_len, len - moving_len, "grown part");
        pattern_fill(to, moving_seed, moving_len, len);
    }
    moving = to, moving_len = len;
}

// ---- a private file mapping ----

enum { MAPPED = 40 };
static const uint64_t FILE_SEED = 0xf11e;
static unsigned char *private_at;
static const unsigned char *shared_at;
static uint64_t changed[MAPPED];

static void check_mapped(int i) {
    unsigned char *page = private_at + (size_t)i * PAGE;
    if (changed[i])
        pattern_check(page, changed[i], 0, PAGE, "changed page of a private file mapping");
    else
        pattern_check(private_at, FILE_SEED, (size_t)i * PAGE, (size_t)(i + 1) * PAGE, "page of a file mapping");
}

static void file_map_step(void) {
    int i = (int)below(MAPPED);
    check_mapped(i);
    pattern_check(shared_at, FILE_SEED, (size_t)i * PAGE, (size_t)(i + 1) * PAGE, "read-only mapping of the file");
    unsigned char *page = private_at + (size_t)i * PAGE;
    if (below(3)) {
        changed[i] = fill_page(page);
    } else {
        CHECK(!madvise(page, PAGE, MADV_DONTNEED), "madvise");
        changed[i] = 0;
    }
    check_mapped((int)below(MAPPED));
}

static void file_map_start(void) {
    static unsigned char bytes[MAPPED * PAGE];
    int fd = open("mapped", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    pattern_fill(bytes, FILE_SEED, 0, sizeof bytes);
    CHECK(fd >= 0 && write(fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes, "write the file to map");
    private_at = mmap(NULL, sizeof bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    shared_at = mmap(NULL, sizeof bytes, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(private_at != MAP_FAILED && shared_at != MAP_FAILED && !close(fd), "map the file");
}

// ---- a sparse reservation, huge pages, a deep stack ----

enum { SPARSE = 128, HUGE_MAP = 8 << 20 };
#define RESERVED (64ul << 30)
static struct {
    size_t at;
    uint64_t seed;
} sparse[SPARSE];
static unsigned char *sparse_at, *huge_at;
static uint64_t huge_words[HUGE_MAP / 65536];

static void sparse_step(void) {
    int i = (int)below(SPARSE);
    if (sparse[i].seed) {
        unsigned char *page = sparse_at + sparse[i].at;
        pattern_check(page, sparse[i].seed, 0, PAGE, "page of a sparse reservation");
        map_at(page, PAGE, PROT_NONE, MAP_FIXED | MAP_NORESERVE);
        sparse[i].seed = 0;
        return;
    }
    sparse[i].at = ((size_t)i * (RESERVED / SPARSE) + below(RESERVED / SPARSE)) / PAGE * PAGE;
    CHECK(!mprotect(sparse_at + sparse[i].at, PAGE, PROT_READ | PROT_WRITE), "mprotect");
    check_zero(sparse_at + sparse[i].at, PAGE, "fresh page of a sparse reservation");
    sparse[i].seed = fill_page(sparse_at + sparse[i].at);
}

static void huge_step(void) {
    size_t i = below(sizeof huge_words / 8), word;
    memcpy(&word, huge_at + i * 65536, 8);
    CHECK(word == huge_words[i], "a word in a huge page is %zx", word);
    huge_words[i] = next_random(&random_state);
    memcpy(huge_at + i * 65536, &huge_words[i], 8);
}

__attribute__((noinline)) static uint64_t deep(int depth) {
    unsigned char frame[3000];
    uint64_t seed = (uint64_t)depth * 31 + 5, sum = 1;
    pattern_fill(frame, seed, 0, sizeof frame);
    if (depth) sum += deep(depth - 1);
    sum = spin(sum, 100);
    pattern_check(frame, seed, 0, sizeof frame, "stack frame");
    return sum;
}

// ---- all of it ----

static uint64_t digest_all(void) {
    uint64_t digest = 0;
    for (int i = 0; i < AGAIN; i++) check_page(again_at + (size_t)i * PAGE, again[i], "page mapped again");
    for (int i = 0; i < DROPPED; i++) check_page(dropped_at + (size_t)i * PAGE, dropped[i], "page near dropped ones");
    for (int i = 0; i < MAPPED; i++) check_mapped(i);
    pattern_check(moving, moving_seed, 0, moving_len, "moved mapping");
    digest = fold_bytes(digest, brk_start, (size_t)(brk_end - brk_start));
    digest = fold_bytes(digest, again_at, sizeof again / 8 * PAGE);
    digest = fold_bytes(digest, dropped_at, sizeof dropped / 8 * PAGE);
    digest = fold_bytes(digest, private_at, MAPPED * PAGE);
    digest = fold_bytes(digest, huge_at, HUGE_MAP);
    for (int i = 0; i < SPARSE; i++)
        if (sparse[i].seed) digest = fold_bytes(digest, sparse_at + sparse[i].at, PAGE);
    return fold(digest, deep(400));
}

static void start(void) {
    brk_start = brk_end = sbrk(0);
    guard_start();
    again_at = map_at(NULL, AGAIN * PAGE, PROT_READ | PROT_WRITE, 0);
    dropped_at = map_at(NULL, DROPPED * PAGE, PROT_READ | PROT_WRITE, 0);
    moving = map_at(NULL, moving_len, PROT_READ | PROT_WRITE, 0);
    moving_seed = next_random(&random_state);
    pattern_fill(moving, moving_seed, 0, moving_len);
    file_map_start();
    sparse_at = map_at(NULL, RESERVED, PROT_NONE, MAP_NORESERVE);
    huge_at = map_at(NULL, 2 * HUGE_MAP, PROT_READ | PROT_WRITE, 0);
    huge_at += (2ul << 20) - (uintptr_t)huge_at % (2ul << 20);
    madvise(huge_at, HUGE_MAP, MADV_HUGEPAGE); // a kernel without huge pages is fine too
}

int main(int argc, char **argv) {
    static char out[4096];
    setvbuf(stdout, out, _IOFBF, sizeof out);
    long rounds = scale(argc, argv, 40);
    void (*steps[])(void) = {brk_step, guard_step, guard_step, again_step, drop_step, move_step, file_map_step,
                             sparse_step, huge_step};
    start();
    for (long round = 1; round <= rounds; round++) {
        for (int i = 0; i < STEPS; i++) {
            steps[below(sizeof steps / sizeof *steps)]();
            random_state ^= spin(random_state, 60000) & 1;
        }
        printf("round %ld of %ld: %016llx\n", round, rounds, (unsigned long long)digest_all());
        fflush(stdout);
    }
    printf("digest %016llx\n", (unsigned long long)digest_all());
    return 0;
}
