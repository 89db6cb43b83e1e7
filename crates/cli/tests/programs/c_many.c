// A program with more than a thousand descriptors that knows what each must be.
//
// - opened, duplicated, put over others, closed one by one and in ranges, at numbers low and high;
// - which share an open file, with their offset and status flags; close-on-exec; the lowest free number;
// - locks of the process and of open files; files with many descriptors renamed and removed.
//
// Half of the calls are made by another thread. It works in its current directory, which should be empty.
// Usage: c_many ROUNDS [SEED], or c_many still MANY: opens MANY descriptors, and then one more again and again, or c_many
// busy MANY: duplicates one, and computes beside two children that have them too.
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NUMBERS = 1600, FIRST = 3, FILES = 8, STEPS = 400 };

static uint64_t random_state;
static uint64_t below(uint64_t n) { return next_random(&random_state) % n; }

// Open files, and the numbers that have them; open file 0 is none.
static struct { int uses, kind, flags, locked; off_t at; } opened[NUMBERS + 2];
static struct { int open, cloexec; } number[NUMBERS];
static int names; // of files, made so far
static struct { int name, record_locked; } files[FILES];
enum { EVENT = FILES };

static void file_name(char *into, int file) { sprintf(into, "f%d", files[file].name); }

static int lowest_free(int from) {
    while (from < NUMBERS && number[from].open) from++;
    return from;
}

static int new_open_file(void) {
    int i = 1;
    while (opened[i].uses) i++;
    return i;
}

static void let_go(int fd) {
    int open = number[fd].open;
    if (!open) return;
    // Any close of a file drops the locks that the process has on it: fcntl_locking(2).
    if (opened[open].kind < EVENT) files[opened[open].kind].record_locked = 0;
    if (!--opened[open].uses) opened[open].locked = 0;
    number[fd].open = 0;
}

static void holds(int fd, int open, int cloexec) {
    CHECK(fd >= 0 && fd < NUMBERS, "a descriptor beyond all: %d", fd);
    number[fd].open = open, number[fd].cloexec = cloexec;
    opened[open].uses++;
}

static int some_open(void) {
    int fd = FIRST + (int)below(NUMBERS - FIRST);
    for (int i = 0; i < NUMBERS && !number[fd].open; i++) fd = fd + 1 < NUMBERS ? fd + 1 : FIRST;
    return number[fd].open ? fd : -1;
}

static void open_one(void) {
    int want = lowest_free(0), open = new_open_file(), kind = (int)below(FILES + 2), cloexec = (int)below(2);
    char name[16];
    if (want >= NUMBERS) return;
    int fd;
    if (kind >= EVENT) {
        kind = EVENT;
        fd = eventfd(0, cloexec ? EFD_CLOEXEC : 0);
    } else {
        file_name(name, kind);
        fd = openat(AT_FDCWD, name, O_RDWR | O_CREAT | (cloexec ? O_CLOEXEC : 0), 0600);
    }
    CHECK(fd == want, "the lowest free number is %d, not %d", fd, want);
    opened[open] = (typeof(*opened)){.kind = kind, .flags = fcntl(fd, F_GETFL)};
    holds(fd, open, cloexec);
}

static void duplicate(int fd) {
    int least = below(3) ? 0 : (int)below(NUMBERS), cloexec = (int)below(2);
    int want = lowest_free(least);
    if (want >= NUMBERS) return;
    int copy = least || cloexec ? fcntl(fd, cloexec ? F_DUPFD_CLOEXEC : F_DUPFD, least) : dup(fd);
    CHECK(copy == want, "the lowest free number from %d is %d, not %d", least, copy, want);
    holds(copy, number[fd].open, cloexec);
}

static void put(int fd) {
    int to = FIRST + (int)below(NUMBERS - FIRST), cloexec = (int)below(2);
    if (to == fd) return;
    CHECK((cloexec ? dup3(fd, to, O_CLOEXEC) : dup2(fd, to)) == to, "dup2");
    int open = number[fd].open;
    opened[open].uses++; // it stays, whatever goes
    let_go(to);
    opened[open].uses--;
    holds(to, open, cloexec);
}

static void close_some(int fd) {
    int last = below(6) ? fd : fd + (int)below(60);
    if (last >= NUMBERS) last = NUMBERS - 1;
    CHECK(last == fd ? !close(fd) : !close_range((unsigned)fd, (unsigned)last, 0), "close");
    for (; fd <= last; fd++) let_go(fd);
}

static void lock_one(int fd) {
    int open = number[fd].open, file = opened[open].kind;
    if (file >= EVENT) return;
    struct flock all = {.l_type = F_WRLCK};
    if (below(2)) {
        int locks = 0;
        for (int i = 1; i < NUMBERS; i++) locks += opened[i].kind == file && opened[i].locked && i != open;
        CHECK(flock(fd, LOCK_EX | LOCK_NB) == (locks ? -1 : 0), "flock of f%d", file);
        if (!locks) opened[open].locked = 1;
    } else {
        all.l_len = 10;
        CHECK(!fcntl(fd, F_SETLK, &all), "F_SETLK");
        files[file].record_locked = 1;
    }
}

static void unlock_one(int fd) {
    CHECK(!flock(fd, LOCK_UN), "unlock");
    opened[number[fd].open].locked = 0;
}

static void change_names(void) {
    char from[16], to[16];
    int file = (int)below(FILES);
    file_name(from, file);
    if (access(from, F_OK)) return;
    if (below(4)) {
        files[file].name = names++;
        file_name(to, file);
        CHECK(!rename(from, to), "rename %s", from);
        return;
    }
    for (int i = 1; i < NUMBERS; i++) if (opened[i].uses && opened[i].kind == file) return; // not yet
    CHECK(!unlink(from), "unlink %s", from);
    files[file].record_locked = 0;
}

static void step(void) {
    int fd = some_open(), kind = (int)below(20);
    if (fd < 0 || kind < 5) { open_one(); return; }
    int open = number[fd].open;
    switch (kind) {
    case 5 ... 8: duplicate(fd); return;
    case 9: put(fd); return;
    case 10 ... 14: close_some(fd); return;
    case 15:
        number[fd].cloexec = !number[fd].cloexec;
        CHECK(!fcntl(fd, F_SETFD, number[fd].cloexec ? FD_CLOEXEC : 0), "F_SETFD");
        return;
    case 16:
        opened[open].flags ^= O_NONBLOCK;
        CHECK(!fcntl(fd, F_SETFL, opened[open].flags), "F_SETFL");
        return;
    case 17:
        if (opened[open].kind >= EVENT) return;
        opened[open].at = (off_t)below(1000);
        CHECK(lseek(fd, opened[open].at, SEEK_SET) == opened[open].at, "lseek");
        return;
    case 18: if (below(2)) lock_one(fd); else if (opened[open].kind < EVENT) unlock_one(fd); return;
    case 19: change_names(); return;
    }
}

// Whether locks are held can be seen by another open file only.
static void check_locks(int file) {
    char name[16];
    file_name(name, file);
    int fd = openat(AT_FDCWD, name, O_RDWR), locked = 0;
    if (fd < 0) return;
    for (int i = 1; i < NUMBERS; i++) locked |= opened[i].uses && opened[i].kind == file && opened[i].locked;
    CHECK(flock(fd, LOCK_EX | LOCK_NB) == (locked ? -1 : 0), "f%d: the lock of an open file", file);
    struct flock asked = {.l_type = F_WRLCK, .l_len = 20};
    CHECK(!fcntl(fd, F_OFD_GETLK, &asked), "F_OFD_GETLK");
    CHECK((asked.l_type != F_UNLCK) == files[file].record_locked, "f%d: the lock of the process is %d, not %d", file,
          asked.l_type != F_UNLCK, files[file].record_locked);
    close(fd);
    files[file].record_locked = 0;
}

static void check_number(int fd) {
    int open = number[fd].open, flags = fcntl(fd, F_GETFL), on_exec = fcntl(fd, F_GETFD);
    if (!open) {
        CHECK(flags == -1 && errno == EBADF, "descriptor %d is open", fd);
        return;
    }
    CHECK(flags == opened[open].flags, "descriptor %d has flags %o, not %o", fd, flags, opened[open].flags);
    CHECK(!!(on_exec & FD_CLOEXEC) == number[fd].cloexec, "descriptor %d: close-on-exec is %d", fd, on_exec);
    if (opened[open].kind >= EVENT) return;
    CHECK(lseek(fd, 0, SEEK_CUR) == opened[open].at, "descriptor %d is at another place", fd);
    struct stat st, named;
    char name[16];
    file_name(name, opened[open].kind);
    CHECK(!fstat(fd, &st) && !stat(name, &named) && st.st_ino == named.st_ino, "descriptor %d is not %s", fd, name);
}

static void *steps(void *count) {
    for (long i = 0; i < (long)count; i++) {
        step();
        for (int j = 0; j < 3; j++) check_number(FIRST + (int)below(NUMBERS - FIRST));
        for (volatile int spin = 0; spin < 30000; spin++) {}
    }
    return NULL;
}

static void still(int many) {
    struct timespec pause = {0, 2000000};
    for (int i = 0; i < many; i++) CHECK((i % 4 ? dup(FIRST) : openat(AT_FDCWD, "f", O_RDWR | O_CREAT, 0600)) >= 0, "open");
    for (int i = 0; i < 300; i++) {
        int fd = dup(FIRST);
        CHECK(fd >= 0 && !close(i % 2 ? fd : FIRST + 4), "close");
        if (i % 2 == 0) CHECK(dup2(fd, FIRST + 4) == FIRST + 4 && !close(fd), "dup2");
        nanosleep(&pause, NULL);
    }
}

static void busy(int many) {
    pid_t children[2];
    CHECK(openat(AT_FDCWD, "f", O_RDWR | O_CREAT, 0600) >= 0, "open");
    for (int i = 0; i < many; i++) CHECK(dup(FIRST) >= 0, "dup");
    for (int i = 0; i < 2; i++)
        if (!(children[i] = fork())) for (;;) continue;
    while (clock() < CLOCKS_PER_SEC) continue;
    for (int i = 0; i < 2; i++) CHECK(!kill(children[i], SIGKILL) && waitpid(children[i], NULL, 0) > 0, "the end of a child");
}

int main(int argc, char **argv) {
    struct rlimit limit;
    CHECK(argc > 1 && !getrlimit(RLIMIT_NOFILE, &limit), "usage: c_many ROUNDS [SEED]");
    int is_still = !strcmp(argv[1], "still"), is_busy = !strcmp(argv[1], "busy");
    rlim_t room = (argc > 2 && (is_still || is_busy) ? strtoull(argv[2], NULL, 10) : NUMBERS) + 100;
    limit.rlim_cur = room < limit.rlim_max ? room : limit.rlim_max;
    CHECK(!setrlimit(RLIMIT_NOFILE, &limit), "setrlimit");
    if (is_still || is_busy) {
        CHECK(argc == 3, "usage: c_many still|busy MANY");
        (is_still ? still : busy)(atoi(argv[2]));
        puts("done");
        return 0;
    }
    random_state = argc > 2 ? strtoull(argv[2], NULL, 10) : 11;
    close_range(FIRST, ~0U, 0);
    for (int fd = 0; fd < FIRST; fd++) opened[NUMBERS + 1].uses++, number[fd].open = NUMBERS + 1;
    for (int i = 0; i < FILES; i++) files[i].name = names++;
    for (int i = 0; i < NUMBERS / 2; i++) open_one();
    for (int round = 0; round < atoi(argv[1]); round++) {
        pthread_t other;
        steps((void *)(STEPS / 2));
        CHECK(!pthread_create(&other, NULL, steps, (void *)(STEPS / 2)) && !pthread_join(other, NULL), "a thread");
        uint64_t digest = 0;
        for (int fd = FIRST; fd < NUMBERS; fd++) {
            check_number(fd);
            digest = fold(digest, (uint64_t)number[fd].open << 1 | (uint64_t)number[fd].cloexec);
        }
        if (lowest_free(0) < NUMBERS) for (int file = 0; file < FILES; file++) check_locks(file);
        printf("round %d: %016llx\n", round, (unsigned long long)digest);
        fflush(stdout);
    }
    return 0;
}
