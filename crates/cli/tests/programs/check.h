// What every C program here shares: a check that ends the program by name, a small deterministic
// generator and a digest. A program that finds its own data wrong aborts, so that a damaged resume is
// seen as a wrong exit code and as a line on stderr, never only as a wrong number at the end.
#ifndef TWINPAGE_TESTS_CHECK_H
#define TWINPAGE_TESTS_CHECK_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(holds, ...)                                                                    \
    do {                                                                                     \
        if (!(holds)) {                                                                      \
            int check_errno = errno;                                                         \
            fprintf(stderr, "%s:%d: does not hold: %s: ", __FILE__, __LINE__, #holds);       \
            fprintf(stderr, __VA_ARGS__);                                                    \
            fprintf(stderr, " (errno %d, %s)\n", check_errno, strerror(check_errno));        \
            abort();                                                                         \
        }                                                                                    \
    } while (0)

// splitmix64: one word of state, so a generator can live anywhere.
static inline uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// Folds one word into a digest; the order matters.
static inline uint64_t fold(uint64_t digest, uint64_t word) {
    digest = (digest ^ word) * 0xff51afd7ed558ccdu;
    return digest ^ (digest >> 32);
}

// Folds bytes into a digest.
static inline uint64_t fold_bytes(uint64_t digest, const void *bytes, size_t len) {
    const unsigned char *at = bytes;
    for (; len >= 8; at += 8, len -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        digest = fold(digest, word);
    }
    uint64_t last = len;
    while (len--) last = last << 8 | *at++;
    return fold(digest, last);
}

// The bytes a block made from `seed` must hold. Any part can be checked without the rest.
static inline unsigned char pattern_byte(uint64_t seed, size_t at) {
    uint64_t z = (seed + (at >> 3)) * 0x9e3779b97f4a7c15u;
    return (unsigned char)((z ^ (z >> 29)) >> ((at & 7) * 8));
}

static inline void pattern_fill(void *block, uint64_t seed, size_t from, size_t to) {
    unsigned char *bytes = block;
    for (size_t at = from; at < to; at++) bytes[at] = pattern_byte(seed, at);
}

static inline void pattern_check(const void *block, uint64_t seed, size_t from, size_t to, const char *what) {
    const unsigned char *bytes = block;
    for (size_t at = from; at < to; at++)
        CHECK(bytes[at] == pattern_byte(seed, at), "%s: byte %zu of the block at %p is %02x", what, at, block,
              bytes[at]);
}

// The scale of a run: the first argument, or what the program thinks right for some seconds of work.
static inline long scale(int argc, char **argv, long otherwise) {
    long n = argc > 1 ? strtol(argv[1], NULL, 10) : otherwise;
    CHECK(n > 0, "the scale must be a positive number, not %s", argc > 1 ? argv[1] : "?");
    return n;
}

// Work that stays in registers, to spread a run over time without touching memory.
static inline uint64_t spin(uint64_t word, long steps) {
    for (long i = 0; i < steps; i++) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
    }
    return word;
}

static inline void pause_us(long us) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    CHECK(!nanosleep(&t, NULL), "nanosleep");
}

// A thread that always runs, so that no stop is left out.
static inline void *keep_running(void *unused) {
    for (uint64_t word = 1;; pause_us(20)) word = spin(word, 1000);
    return unused;
}

// One of several things that a program does in every round, and checks.
struct part {
    const char *name;
    void (*run)(void);
};

static inline void run_parts(const struct part *parts, size_t count, long rounds) {
    for (long round = 1; round <= rounds; round++)
        for (size_t i = 0; i < count; i++) {
            parts[i].run();
            printf("round %ld of %ld: %s: as alone\n", round, rounds, parts[i].name);
            fflush(stdout);
        }
}

#endif
