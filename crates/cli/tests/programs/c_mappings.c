// A program that moves, splits, merges, drops and truncates its mappings at random, beside a model of what
// every page must hold.
//
// - Four arenas of fixed addresses, of anonymous memory or private pages of a file. In each, a page is
//   unmapped, empty (zeros, or the file's bytes), or holds a pattern of the program's.
// - Steps: map and unmap runs of pages; mremap them to another place, also over others, back home and to a
//   neighbour's edge, so that the kernel merges them; grow and shrink them in place; leave an empty range
//   behind (MREMAP_DONTUNMAP); change protections and give advice, so that mappings are split and merged; drop pages;
//   write.
// - The file is truncated (ftruncate, truncate, O_TRUNC), extended, and punched: truncation takes private
//   copies away, a hole does not.
// - Now and then nothing happens for a while, so that a checkpoint finds nothing written.
//
// Usage: c_mappings [ROUNDS [SEED]]
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096ul
enum { ARENAS = 4, PAGES = 96, FILE_ARENA = 3, STEPS = 60, MOST = 24 };

enum state { UNMAPPED, EMPTY, FILLED };
struct page {
    enum state state;
    uint64_t seed;
    // Of a file's page: which one, from 0.
    int of_file;
    int writable;
};
static struct page model[ARENAS][PAGES];
static unsigned char *arena_at[ARENAS];
static int file = -1, file_pages;
static const uint64_t FILE_SEED = 0xf17e;
static uint64_t random_state;

static int below(int n) { return (int)(next_random(&random_state) % (uint64_t)n); }
static unsigned char *place(int arena, int page) { return arena_at[arena] + (size_t)page * PAGE; }
static int is_file(int arena) { return arena == FILE_ARENA; }

// Whether the page can be read at all: past the end of a file nothing can.
static int can_read(const struct page *page) {
    return page->state == FILLED || (page->state == EMPTY && (page->of_file < 0 || page->of_file < file_pages));
}

static void check_page(int arena, int i) {
    struct page *page = &model[arena][i];
    const unsigned char *at = place(arena, i);
    if (!can_read(page)) return;
    if (page->state == FILLED)
        pattern_check(at, page->seed, 0, PAGE, "a page of the program's");
    else if (page->of_file >= 0)
        pattern_check(at - (size_t)page->of_file * PAGE, FILE_SEED, (size_t)page->of_file * PAGE,
                      (size_t)(page->of_file + 1) * PAGE, "a page of the file");
    else
        for (size_t b = 0; b < PAGE; b++)
            CHECK(!at[b], "arena %d, page %d of %d: byte %zu is %02x, not zero", arena, i, PAGES, b, at[b]);
}

static void check_all(void) {
    for (int arena = 0; arena < ARENAS; arena++)
        for (int i = 0; i < PAGES; i++) check_page(arena, i);
}

static void fill(int arena, int i) {
    struct page *page = &model[arena][i];
    if (!can_read(page) || !page->writable) return;
    page->state = FILLED;
    page->seed = next_random(&random_state);
    pattern_fill(place(arena, i), page->seed, 0, PAGE);
}

// A run of pages: its arena, its first page, how many.
struct run {
    int arena, first, count;
};

static struct run any_run(int anonymous_only) {
    struct run run = {below(anonymous_only ? FILE_ARENA : ARENAS), below(PAGES), 1 + below(MOST)};
    if (run.first + run.count > PAGES) run.count = PAGES - run.first;
    return run;
}

// The run cut to the pages from its first that are mapped, one after the other, and can be moved as one
// mapping: alike in their protection, and of a file one after the other there too.
static struct run one_mapping(struct run run) {
    struct page *first = &model[run.arena][run.first];
    int count = 0;
    if (first->state != UNMAPPED)
        for (; count < run.count; count++) {
            struct page *page = first + count;
            int follows = first->of_file < 0 ? page->of_file < 0 : page->of_file == first->of_file + count;
            if (page->state == UNMAPPED || page->writable != first->writable || !follows) break;
        }
    run.count = count;
    return run;
}

// Moves pages, one by one where the kernel will not move them all: what the model takes for one mapping may
// be several, which came from different places.
static void move_pages(unsigned char *from, unsigned char *to, int count, int flags) {
    size_t len = (size_t)count * PAGE;
    flags |= MREMAP_MAYMOVE | MREMAP_FIXED;
    if (mremap(from, len, len, flags, to) == to) return;
    CHECK(errno == EFAULT, "mremap");
    for (size_t at = 0; at < len; at += PAGE)
        CHECK(mremap(from + at, PAGE, PAGE, flags, to + at) == to + at, "mremap of a page");
}

// ---- steps ----

static void map_run(void) {
    struct run run = any_run(0);
    int with_file = is_file(run.arena), from = below(PAGES);
    void *got = mmap(place(run.arena, run.first), (size_t)run.count * PAGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_FIXED | (with_file ? 0 : MAP_ANONYMOUS), with_file ? file : -1,
                     with_file ? (off_t)from * (off_t)PAGE : 0);
    CHECK(got == place(run.arena, run.first), "mmap");
    for (int i = 0; i < run.count; i++)
        model[run.arena][run.first + i] = (struct page){EMPTY, 0, with_file ? from + i : -1, 1};
    for (int i = 0; i < run.count; i++)
        if (below(2)) fill(run.arena, run.first + i);
}

static void unmap_run(void) {
    struct run run = any_run(0);
    CHECK(!munmap(place(run.arena, run.first), (size_t)run.count * PAGE), "munmap");
    for (int i = 0; i < run.count; i++) model[run.arena][run.first + i].state = UNMAPPED;
}

// Moves pages to another place, over what is there; or the run stays mapped, empty.
static void move_run(void) {
    struct run from = one_mapping(any_run(0)), to = any_run(1);
    if (below(2)) { // beside a neighbour: the kernel may merge them
        to.arena = from.arena;
        to.first = from.first + (below(2) ? from.count : -from.count);
    }
    if (!from.count || is_file(to.arena) != is_file(from.arena) || to.first < 0) return;
    if (to.first + from.count > PAGES) return;
    if (to.arena == from.arena && abs(to.first - from.first) < from.count) return;
    int stays = below(3) == 0 && !is_file(from.arena);
    move_pages(place(from.arena, from.first), place(to.arena, to.first), from.count, stays ? MREMAP_DONTUNMAP : 0);
    for (int i = 0; i < from.count; i++) {
        struct page *old = &model[from.arena][from.first + i];
        model[to.arena][to.first + i] = *old;
        old->state = stays ? EMPTY : UNMAPPED;
    }
}

// There and back again: the same addresses, the same pages, another mapping.
static void swap_runs(void) {
    struct run one = one_mapping(any_run(1)), two = one_mapping(any_run(1));
    if (one.count > two.count) one.count = two.count;
    two.count = one.count;
    if (!one.count || (one.arena == two.arena && abs(one.first - two.first) < one.count)) return;
    size_t len = (size_t)one.count * PAGE;
    unsigned char *a = place(one.arena, one.first), *b = place(two.arena, two.first);
    for (int times = 1 + below(6); times; times--) {
        unsigned char *aside = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(aside != MAP_FAILED, "mmap");
        move_pages(a, aside, one.count, 0);
        move_pages(b, a, one.count, 0);
        move_pages(aside, b, one.count, 0);
        for (int i = 0; i < one.count; i++) {
            struct page kept = model[one.arena][one.first + i];
            model[one.arena][one.first + i] = model[two.arena][two.first + i];
            model[two.arena][two.first + i] = kept;
        }
        if (below(2)) usleep(2000);
    }
}

// Cuts the end of a mapping off, or everything after its first page, and has it grow again in place.
static void grow_again(void) {
    struct run run = one_mapping(any_run(1));
    if (run.count < 2) return;
    int kept = 1 + below(run.count - 1);
    size_t whole = (size_t)run.count * PAGE, part = (size_t)kept * PAGE;
    unsigned char *at = place(run.arena, run.first);
    if (below(2))
        CHECK(mremap(at, whole, part, 0) == at, "mremap to less");
    else
        CHECK(!munmap(at + part, whole - part), "munmap");
    if (mremap(at, part, whole, 0) != at) { // several mappings do not grow as one
        CHECK(errno == EFAULT, "mremap to more, in place");
            void *got = mmap(at + part, whole - part, PROT_READ | (model[run.arena][run.first].writable ? PROT_WRITE : 0),
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        CHECK(got == at + part, "mmap");
    }
    for (int i = kept; i < run.count; i++) model[run.arena][run.first + i].state = EMPTY;
}

static void drop_run(void) {
    struct run run = one_mapping(any_run(0));
    if (!run.count) return;
    CHECK(!madvise(place(run.arena, run.first), (size_t)run.count * PAGE, MADV_DONTNEED), "madvise");
    for (int i = 0; i < run.count; i++) model[run.arena][run.first + i].state = EMPTY;
}

// Advice parts mappings, and goes with what is unmapped.
static void advise_run(void) {
    static const int all[] = {MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DONTDUMP, MADV_DODUMP, MADV_SEQUENTIAL, MADV_NORMAL};
    struct run run = one_mapping(any_run(1));
    int advice = all[below(sizeof all / sizeof *all)];
    if (!run.count) return;
    int given = madvise(place(run.arena, run.first), (size_t)run.count * PAGE, advice);
    CHECK(!given || (errno == EINVAL && advice <= MADV_NOHUGEPAGE && advice >= MADV_HUGEPAGE), "madvise %d", advice);
}

static void protect_run(void) {
    struct run run = one_mapping(any_run(0));
    int writable = below(3) != 0;
    if (!run.count) return;
    CHECK(!mprotect(place(run.arena, run.first), (size_t)run.count * PAGE, PROT_READ | (writable ? PROT_WRITE : 0)),
          "mprotect");
    for (int i = 0; i < run.count; i++) model[run.arena][run.first + i].writable = writable;
}

static void write_some(void) {
    for (int i = 0; i < 12; i++) fill(below(ARENAS), below(PAGES));
}

// The file holds `pages` whole pages again, of which the first `kept` were never away.
static void write_file(int kept, int pages) {
    static unsigned char bytes[PAGES * PAGE];
    size_t from = (size_t)kept * PAGE, to = (size_t)pages * PAGE;
    pattern_fill(bytes, FILE_SEED, from, to);
    CHECK(pwrite(file, bytes + from, to - from, (off_t)from) == (ssize_t)(to - from), "write the file");
    file_pages = pages;
}

// Private copies of the pages past the new end are gone.
static void truncate_file(void) {
    int kept = below(file_pages + 1), how = below(3), pages = PAGES / 2 + below(PAGES / 2);
    if (how == 0) kept = 0;
    if (how == 0) {
        int again = open("mapped", O_RDWR | O_TRUNC | O_CLOEXEC);
        CHECK(again >= 0 && !close(again), "open with O_TRUNC");
    } else if (how == 1) {
        CHECK(!truncate("mapped", (off_t)kept * (off_t)PAGE), "truncate");
    } else {
        CHECK(!ftruncate(file, (off_t)kept * (off_t)PAGE), "ftruncate");
    }
    for (int i = 0; i < PAGES; i++) {
        struct page *page = &model[FILE_ARENA][i];
        if (page->state != UNMAPPED && page->of_file >= kept) page->state = EMPTY;
    }
    write_file(kept, pages > kept ? pages : kept);
}

// A hole leaves private copies alone; what reads the file sees zeros until it is written again.
static void punch_file(void) {
    int from = below(file_pages), count = 1 + below(file_pages - from);
    CHECK(!fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from * (off_t)PAGE,
                     (off_t)count * (off_t)PAGE),
          "punch a hole");
    write_file(from, file_pages);
}

static void hold_still(void) { usleep((useconds_t)(1000 * (1 + below(12)))); }

// ---- all of it ----

static uint64_t digest_all(void) {
    uint64_t digest = (uint64_t)file_pages;
    check_all();
    for (int arena = 0; arena < ARENAS; arena++)
        for (int i = 0; i < PAGES; i++) {
            struct page *page = &model[arena][i];
            digest = fold(digest, (uint64_t)page->state);
            if (can_read(page)) digest = fold_bytes(digest, place(arena, i), PAGE);
        }
    return digest;
}

int main(int argc, char **argv) {
    static char out[4096];
    setvbuf(stdout, out, _IOFBF, sizeof out);
    long rounds = scale(argc, argv, 40);
    random_state = argc > 2 ? strtoull(argv[2], NULL, 10) : 11;
    unsigned char *room = mmap(NULL, ARENAS * PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(room != MAP_FAILED && !munmap(room, ARENAS * PAGES * PAGE), "find room");
    for (int arena = 0; arena < ARENAS; arena++) arena_at[arena] = room + (size_t)arena * PAGES * PAGE;
    file = open("mapped", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(file >= 0, "open");
    write_file(0, PAGES);
    void (*steps[])(void) = {map_run,  map_run,  unmap_run,   move_run,   move_run,   swap_runs,     grow_again,
                             drop_run, write_some, protect_run, advise_run, hold_still, hold_still, truncate_file, punch_file};
    for (long round = 1; round <= rounds; round++) {
        for (int i = 0; i < STEPS; i++) {
            steps[below(sizeof steps / sizeof *steps)]();
            if (below(4) == 0) check_all();
        }
        printf("round %ld of %ld: %016llx\n", round, rounds, (unsigned long long)digest_all());
        fflush(stdout);
    }
    return 0;
}
