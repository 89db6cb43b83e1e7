// A program that knows what its descriptors, its directory and its identity must be.
//
// - offsets shared by duplicated descriptors and not shared by others; O_APPEND; high numbers;
// - close-on-exec and status flags, which numbers are open and which are free;
// - a directory read a few names at a time; devices everyone has (null, zero, urandom);
// - the current directory, the umask, and what /proc/self says of the program.
//
// It works in its current directory, which should be empty. Usage: c_descriptors [ROUNDS]
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STEPS = 120, SIZE = 100000, NAMES = 150, HIGHEST = 420 };

static uint64_t random_state = 13;
static uint64_t below(uint64_t n) { return next_random(&random_state) % n; }

// ---- shared and separate offsets ----

// Four descriptors on one file: `twin` shares the offset of `first`, `own` has its own, `high` is read-only.
static struct {
    int first, twin, own, high;
    off_t shared_at, own_at, high_at;
    unsigned char bytes[SIZE];
} data;

static off_t offset_of(int fd) { return lseek(fd, 0, SEEK_CUR); }

static void write_at(int fd, off_t *at) {
    unsigned char bytes[700];
    size_t len = 1 + below(sizeof bytes);
    if (*at + (off_t)len > SIZE) *at = lseek(fd, (off_t)below(SIZE - sizeof bytes), SEEK_SET);
    pattern_fill(bytes, next_random(&random_state), 0, len);
    CHECK(write(fd, bytes, len) == (ssize_t)len, "write");
    memcpy(data.bytes + *at, bytes, len);
    *at += (off_t)len;
}

static void read_high(void) {
    unsigned char bytes[900];
    ssize_t got = read(data.high, bytes, sizeof bytes);
    ssize_t want = SIZE - data.high_at < (off_t)sizeof bytes ? SIZE - data.high_at : (ssize_t)sizeof bytes;
    CHECK(got == want, "read gave %zd, not %zd", got, want);
    CHECK(!memcmp(bytes, data.bytes + data.high_at, (size_t)got), "the file differs from its copy in memory");
    data.high_at += got;
    if (!got) data.high_at = lseek(data.high, 0, SEEK_SET);
}

static void offsets_step(void) {
    CHECK(offset_of(data.first) == data.shared_at, "the first offset is not %lld", (long long)data.shared_at);
    CHECK(offset_of(data.twin) == data.shared_at, "a duplicated descriptor has another offset");
    CHECK(offset_of(data.own) == data.own_at, "a separate descriptor lost its offset");
    CHECK(offset_of(data.high) == data.high_at, "a high descriptor lost its offset");
    switch (below(4)) {
    case 0:
        write_at(data.first, &data.shared_at);
        break;
    case 1:
        write_at(data.twin, &data.shared_at);
        break;
    case 2:
        write_at(data.own, &data.own_at);
        break;
    case 3:
        read_high();
        break;
    }
}

static void offsets_start(void) {
    data.first = open("data", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(data.first >= 0 && !ftruncate(data.first, SIZE), "create data");
    data.twin = dup3(data.first, 40, O_CLOEXEC);
    data.own = open("data", O_RDWR | O_CLOEXEC);
    int low = open("data", O_RDONLY);
    data.high = fcntl(low, F_DUPFD_CLOEXEC, 400);
    CHECK(data.twin == 40 && data.own >= 0 && data.high == 400 && !close(low), "open data");
}

// ---- two writers that append ----

static int append_a, append_b;
static off_t appended;
static uint64_t append_digest;

static void append_step(void) {
    struct stat st;
    char line[64];
    int len = snprintf(line, sizeof line, "line %llu\n", (unsigned long long)below(1000000000));
    CHECK(!fstat(append_a, &st) && st.st_size == appended, "the log has %lld bytes, not %lld", (long long)st.st_size,
          (long long)appended);
    CHECK(write(below(2) ? append_a : append_b, line, (size_t)len) == len, "append");
    appended += len;
    append_digest = fold_bytes(append_digest, line, (size_t)len);
}

static void append_check(void) {
    static char all[1 << 20];
    int fd = open("log", O_RDONLY);
    CHECK(fd >= 0 && appended < (off_t)sizeof all, "open the log");
    CHECK(read(fd, all, sizeof all) == appended && !close(fd), "the log is not %lld bytes long", (long long)appended);
    uint64_t digest = 0;
    for (char *line = all, *end; (end = memchr(line, '\n', (size_t)(all + appended - line))); line = end + 1)
        digest = fold_bytes(digest, line, (size_t)(end + 1 - line));
    CHECK(digest == append_digest, "the log differs from what was written");
}

// ---- flags, and which numbers are open ----

static int want_flags[HIGHEST + 1], want_close[HIGHEST + 1];

static void note_flags(void) {
    for (int fd = 0; fd <= HIGHEST; fd++) want_flags[fd] = fcntl(fd, F_GETFL), want_close[fd] = fcntl(fd, F_GETFD);
}

static void flags_step(void) {
    for (int fd = 3; fd <= HIGHEST; fd++) {
        int flags = fcntl(fd, F_GETFL), on_exec = fcntl(fd, F_GETFD);
        CHECK(flags == want_flags[fd], "descriptor %d has flags %o, not %o", fd, flags, want_flags[fd]);
        CHECK(on_exec == want_close[fd], "descriptor %d: close-on-exec is %d", fd, on_exec);
    }
    for (int fd = 0; fd < 3; fd++)
        CHECK((fcntl(fd, F_GETFL) == -1) == (want_flags[fd] == -1), "descriptor %d was opened or closed", fd);
    int fds[] = {data.first, data.own, data.high, append_a}, fd = fds[below(4)];
    int flags = (want_flags[fd] & ~O_NONBLOCK) | (below(2) ? O_NONBLOCK : 0);
    CHECK(!fcntl(fd, F_SETFL, flags) && !fcntl(fd, F_SETFD, below(2) ? FD_CLOEXEC : 0), "fcntl");
    want_flags[fd] = fcntl(fd, F_GETFL), want_close[fd] = fcntl(fd, F_GETFD);
    want_flags[data.twin] = want_flags[data.first]; // status flags are shared like the offset
    int free_number = 0;
    while (want_flags[free_number] != -1) free_number++;
    int next = dup(data.own);
    CHECK(next == free_number, "the next free descriptor is %d, not %d", next, free_number);
    CHECK(!close(next), "close");
}

// ---- a directory read a few names at a time ----

static int names_fd, names_read;
static unsigned char name_seen[NAMES];

static void names_step(void) {
    struct entry {
        uint64_t inode, offset;
        unsigned short len;
        unsigned char kind;
        char name[];
    };
    _Alignas(struct entry) char buffer[160];
    long got = syscall(SYS_getdents64, names_fd, buffer, sizeof buffer);
    CHECK(got >= 0, "getdents64");
    for (long at = 0; at < got;) {
        struct entry *e = (struct entry *)(buffer + at);
        int i = atoi(e->name + 1);
        at += e->len;
        if (e->name[0] != 'n') continue;
        CHECK(i < NAMES && !name_seen[i], "the directory gives %s twice", e->name);
        name_seen[i] = 1, names_read++;
    }
    if (got) return;
    CHECK(names_read == NAMES, "the directory gave %d names of %d", names_read, NAMES);
    memset(name_seen, 0, sizeof name_seen), names_read = 0;
    CHECK(!lseek(names_fd, 0, SEEK_SET), "rewind the directory");
}

static void names_start(void) {
    CHECK(!mkdir("names", 0700), "mkdir");
    for (int i = 0; i < NAMES; i++) {
        char name[32];
        snprintf(name, sizeof name, "names/n%d", i);
        int fd = open(name, O_WRONLY | O_CREAT, 0600);
        CHECK(fd >= 0 && !close(fd), "create %s", name);
    }
    names_fd = open("names", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(names_fd >= 0, "open the directory");
}

// ---- devices everyone has, and a namespace ----

static int null_fd, zero_fd, random_fd, space_fd;

static void devices_step(void) {
    struct stat open_one, own;
    CHECK(!fstat(space_fd, &open_one) && !stat("/proc/self/ns/uts", &own), "a namespace");
    CHECK(open_one.st_ino == own.st_ino, "it is of another namespace");
    unsigned char bytes[4096];
    memset(bytes, 7, sizeof bytes);
    CHECK(write(null_fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes, "/dev/null");
    CHECK(read(zero_fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes, "/dev/zero");
    for (size_t i = 0; i < sizeof bytes; i++) CHECK(!bytes[i], "/dev/zero gave %02x", bytes[i]);
    CHECK(read(random_fd, bytes, 32) == 32, "/dev/urandom");
    int some = 0;
    for (int i = 0; i < 32; i++) some |= bytes[i];
    CHECK(some, "/dev/urandom gave zeros");
}

// ---- where and who the program is ----

static char home[4096], cwd[4200], exe[4096], cmdline[8192];
static ssize_t cmdline_len;
static mode_t mask;
static int deep;

static ssize_t slurp(const char *path, char *into, size_t room) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0, "open %s", path);
    ssize_t len = read(fd, into, room);
    CHECK(len >= 0 && !close(fd), "read %s", path);
    return len;
}

static void place_step(void) {
    char now[8192];
    CHECK(getcwd(now, sizeof now) && !strcmp(now, cwd), "the current directory is %s, not %s", now, cwd);
    mode_t next = (mode_t)below(0777), was = umask(next);
    CHECK(was == mask, "the umask is %o, not %o", was, mask);
    mask = next;
    memset(now, 0, sizeof now);
    CHECK(readlink("/proc/self/exe", now, sizeof now - 1) > 0 && !strcmp(now, exe), "the program is %s", now);
    CHECK(slurp("/proc/self/cmdline", now, sizeof now) == cmdline_len, "the command line has another length");
    CHECK(!memcmp(now, cmdline, (size_t)cmdline_len), "the command line is %s", now);
    if (below(3)) return;
    CHECK(!chdir(deep ? ".." : "names"), "chdir");
    deep = !deep;
    snprintf(cwd, sizeof cwd, deep ? "%s/names" : "%s", home);
}

static void place_start(void) {
    CHECK(getcwd(home, sizeof home), "getcwd");
    snprintf(cwd, sizeof cwd, "%s", home);
    CHECK(readlink("/proc/self/exe", exe, sizeof exe - 1) > 0, "readlink");
    cmdline_len = slurp("/proc/self/cmdline", cmdline, sizeof cmdline);
    mask = 022;
    umask(mask);
}

// ---- all of it ----

int main(int argc, char **argv) {
    long rounds = scale(argc, argv, 100);
    pid_t pid = getpid();
    void (*steps[])(void) = {offsets_step, offsets_step, append_step,  flags_step,
                             names_step,   names_step,   devices_step, place_step};
    place_start();
    offsets_start();
    names_start();
    append_a = open("log", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    append_b = open("log", O_RDWR | O_APPEND);
    null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC), zero_fd = open("/dev/zero", O_RDONLY);
    random_fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC), space_fd = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC);
    CHECK(append_a >= 0 && append_b >= 0 && null_fd >= 0 && zero_fd >= 0 && random_fd >= 0, "open");
    CHECK(space_fd >= 0, "open of a namespace");
    note_flags();
    for (long round = 1; round <= rounds; round++) {
        uint64_t digest = random_state;
        for (int i = 0; i < STEPS; i++) {
            steps[below(sizeof steps / sizeof *steps)]();
            digest = fold(digest, spin(random_state, 150000));
        }
        CHECK(getpid() == pid, "the process changed its identity");
        CHECK(!chdir(home), "chdir");
        snprintf(cwd, sizeof cwd, "%s", home), deep = 0;
        append_check();
        digest = fold(fold_bytes(digest, data.bytes, SIZE), append_digest);
        printf("round %ld of %ld: %016llx\n", round, rounds, (unsigned long long)digest);
        fflush(stdout);
    }
    printf("digest %016llx\n", (unsigned long long)fold(random_state, append_digest));
    return 0;
}
