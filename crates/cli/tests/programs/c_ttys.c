// Reads and writes of a terminal beside a thread that works, so that a stop comes all the time: each does what it
// does alone.
//
// - reads that wait for a number of bytes (VMIN), for a time (VTIME), for both, and for a line;
// - reads of the master, which wait for one byte whatever is set;
// - writes of more than there is room for, at both ends, and changes of the modes that wait for what was written;
// - a handler ends a read with EINTR, or has it begin again.
//
// Usage: c_ttys [ROUNDS]
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/uio.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum { MANY = 30000, TENTH_MS = 100 };
static const uint64_t SEED = 0x7e1e;
static int master, slave;

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000ll + t.tv_nsec / 1000000;
}

static void set(int lines, int at_least, int tenths, int when) {
    struct termios modes;
    CHECK(!tcgetattr(slave, &modes), "tcgetattr");
    cfmakeraw(&modes);
    if (lines) modes.c_lflag |= ICANON;
    modes.c_cc[VMIN] = (cc_t)at_least;
    modes.c_cc[VTIME] = (cc_t)tenths;
    CHECK(!tcsetattr(slave, when, &modes), "tcsetattr");
}

// Types these bytes after some ms, one after another.
struct typist {
    const char *text;
    long after_us;
    pthread_t thread;
};
static void *type(void *arg) {
    struct typist *typist = arg;
    for (const char *at = typist->text; *at; at++) {
        pause_us(typist->after_us);
        CHECK(write(master, at, 1) == 1, "a byte is typed");
    }
    return NULL;
}
static void types(struct typist *typist) {
    CHECK(!pthread_create(&typist->thread, NULL, type, typist), "a typist");
}

static void reads(const char *text, size_t room, const char *expected) {
    char bytes[64];
    struct typist typist = {text, 3000, 0};
    types(&typist);
    ssize_t n = read(slave, bytes, room);
    CHECK(n == (ssize_t)strlen(expected) && !memcmp(bytes, expected, (size_t)n), "read of a terminal: %zd bytes", n);
    pthread_join(typist.thread, NULL);
    tcflush(slave, TCIFLUSH); // what it did not take
    types(&typist);
    struct iovec parts[] = {{bytes, 1}, {bytes + 1, 0}, {bytes + 1, room - 1}};
    n = readv(slave, parts, 3);
    CHECK(n == (ssize_t)strlen(expected) && !memcmp(bytes, expected, (size_t)n), "readv of a terminal: %zd bytes", n);
    pthread_join(typist.thread, NULL);
    tcflush(slave, TCIFLUSH);
}

static void by_number(void) {
    set(0, 6, 0, TCSANOW);
    reads("number", 6, "number");
    reads("number", 64, "number");
    reads("number", 4, "numb");
    // No more than 64 bytes come at once.
    char text[65], bytes[200];
    memset(text, 'x', 64), text[64] = 0;
    set(0, 100, 0, TCSANOW);
    struct typist typist = {text, 300, 0};
    types(&typist);
    ssize_t n = read(slave, bytes, sizeof bytes);
    CHECK(n == 64, "read of 100 bytes or more: %zd", n);
    pthread_join(typist.thread, NULL);
}

static void by_time(void) {
    set(0, 0, 1, TCSANOW);
    char bytes[64];
    for (int i = 0; i < 3; i++) {
        struct iovec part = {bytes, sizeof bytes};
        int64_t from = now_ms();
        ssize_t n = i % 2 ? readv(slave, &part, 1) : read(slave, bytes, sizeof bytes);
        int64_t took = now_ms() - from;
        CHECK(!n && took >= TENTH_MS - 1, "a read with a time limit answered %zd after %lld ms", n, (long long)took);
    }
    set(0, 0, 255, TCSANOW);
    reads("b", 64, "b");
}

static void by_both(void) {
    const int tenths = 8;
    set(0, 6, tenths, TCSANOW);
    reads("number", 64, "number");
    reads("number", 4, "numb");
    char bytes[64];
    struct typist typist = {"abc", 3000, 0};
    types(&typist);
    int64_t from = now_ms();
    ssize_t n = read(slave, bytes, sizeof bytes);
    int64_t took = now_ms() - from;
    CHECK(n == 3 && !memcmp(bytes, "abc", 3), "a read that no further byte came to: %zd bytes", n);
    CHECK(took >= tenths * TENTH_MS - 1, "it lasted %lld ms", (long long)took);
    pthread_join(typist.thread, NULL);
}

static void by_lines(void) {
    set(1, 1, 0, TCSANOW);
    reads("line\n", 64, "line\n");
    reads("\n", 64, "\n");
}

static void at_master(void) {
    set(0, 6, 0, TCSANOW);
    char bytes[64];
    for (int i = 0; i < 20; i++) {
        CHECK(write(slave, "ab", 2) == 2, "write to a terminal");
        ssize_t n = read(master, bytes, sizeof bytes);
        CHECK(n > 0 && n <= 2, "read of a master: %zd bytes", n);
        if (n == 1) CHECK(read(master, bytes, sizeof bytes) == 1, "the second byte");
    }
}

static void *slow_reader(void *arg) {
    static unsigned char some[3000];
    int fd = *(int *)arg;
    for (size_t at = 0; at < 2 * MANY;) {
        ssize_t n = read(fd, some, sizeof some);
        CHECK(n > 0, "read of what was written");
        for (ssize_t i = 0; i < n; i++, at++)
            CHECK(some[i] == pattern_byte(SEED, at), "byte %zu through a terminal is %02x", at, some[i]);
        pause_us(200);
    }
    return NULL;
}

static void all_is_written(void) {
    static unsigned char bytes[2 * MANY];
    set(0, 1, 0, TCSANOW);
    pattern_fill(bytes, SEED, 0, sizeof bytes);
    int *ends[2][2] = {{&slave, &master}, {&master, &slave}};
    for (int i = 0; i < 2; i++) {
        pthread_t reader;
        CHECK(!pthread_create(&reader, NULL, slow_reader, ends[i][1]), "a reader");
        ssize_t n = write(*ends[i][0], bytes, MANY);
        CHECK(n == MANY, "write to a terminal: %zd bytes", n);
        if (!i) set(0, 1, 0, TCSADRAIN);
        struct iovec parts[] = {{bytes + MANY, 1000}, {bytes + MANY + 1000, MANY - 1000}};
        n = writev(*ends[i][0], parts, 2);
        CHECK(n == MANY, "writev to a terminal: %zd bytes", n);
        pthread_join(reader, NULL);
    }
}

static pthread_t waiter;
static volatile sig_atomic_t handled, answered;
static void handler(int signal) { handled = signal; }

// Again and again, for the signal may come before the call.
static void *disturb(void *again) {
    do {
        pause_us(9000);
        pthread_kill(waiter, SIGUSR1);
    } while (again && !answered);
    return NULL;
}

static void handlers(void) {
    char bytes[64];
    pthread_t other;
    waiter = pthread_self();
    struct sigaction action = {.sa_handler = handler};
    CHECK(!sigaction(SIGUSR1, &action, NULL), "sigaction");
    const int settings[][2] = {{6, 0}, {0, 255}, {6, 255}};
    for (int i = 0; i < 3; i++) {
        set(0, settings[i][0], settings[i][1], TCSANOW);
        handled = answered = 0;
        CHECK(!pthread_create(&other, NULL, disturb, bytes), "a thread");
        ssize_t n = read(slave, bytes, sizeof bytes);
        CHECK(n == -1 && errno == EINTR && handled, "a read that a handler ended answered %zd", n);
        answered = 1;
        pthread_join(other, NULL);
    }
    action.sa_flags = SA_RESTART;
    CHECK(!sigaction(SIGUSR1, &action, NULL), "sigaction");
    set(0, 0, 3, TCSANOW);
    handled = 0;
    CHECK(!pthread_create(&other, NULL, disturb, NULL), "a thread");
    ssize_t n = read(slave, bytes, sizeof bytes);
    CHECK(!n, "a read that began again after a handler answered %zd", n);
    pthread_join(other, NULL);
    CHECK(handled, "the handler did not run");
}

int main(int argc, char **argv) {
    static char out[4096];
    setvbuf(stdout, out, _IOFBF, sizeof out);
    long rounds = scale(argc, argv, 2);
    master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    CHECK(master >= 0 && !grantpt(master) && !unlockpt(master), "a pseudo-terminal");
    slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    CHECK(slave >= 0, "its other end");
    pthread_t worker;
    CHECK(!pthread_create(&worker, NULL, keep_running, NULL), "a worker");
    static const struct part parts[] = {
        {"by number", by_number}, {"by time", by_time},    {"by both", by_both},   {"by lines", by_lines},
        {"a master", at_master},  {"all", all_is_written}, {"handlers", handlers},
    };
    run_parts(parts, sizeof parts / sizeof *parts, rounds);
    return 0;
}
