// A program whose memory knows exactly what its files must hold.
//
// It appends, overwrites in place, truncates, extends, renames (also over another file), unlinks, creates,
// makes and removes directories, through descriptors it keeps open and through ones it opens anew, always
// beside a copy in memory; and reads back and compares all the time. After a resume the files must be
// those of the very epoch the memory is of, or a comparison fails within milliseconds.
//
// It works in its current directory, which should be empty. Usage: c_files [ROUNDS]
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { FILES = 12, DIRS = 3, LARGEST = 160 * 1024, STEPS = 60 };

// What one file must be. `fd` is kept open over many rounds, with its offset in `at`, or is -1.
struct file {
    char name[32];
    int exists, fd, appends;
    off_t at;
    mode_t mode;
    size_t len;
    unsigned char *bytes;
};

static struct file files[FILES];
static int dirs[DIRS];
static uint64_t random_state = 42;
static unsigned char scratch[LARGEST];

static uint64_t below(uint64_t n) { return next_random(&random_state) % n; }

static size_t some_bytes(size_t most) {
    size_t len = below(4) ? 1 + below(600) : 1 + below(20000);
    if (len > most) len = most;
    for (size_t i = 0; i < len; i++) scratch[i] = (unsigned char)(random_state >> (i & 31)) + (unsigned char)i;
    next_random(&random_state);
    return len;
}

// A descriptor for writing: the one kept open, or a new one the caller closes with `done`.
static int begin(struct file *f) {
    if (f->fd >= 0) return f->fd;
    int fd = open(f->name, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0, "open %s", f->name);
    return fd;
}

static void done(struct file *f, int fd) {
    if (fd != f->fd) CHECK(!close(fd), "close %s", f->name);
}

static void set_shadow(struct file *f, size_t at, size_t len) {
    if (at > f->len) memset(f->bytes + f->len, 0, at - f->len);
    memcpy(f->bytes + at, scratch, len);
    if (at + len > f->len) f->len = at + len;
}

// ---- the operations ----

static void create(struct file *f) {
    int fd = open(f->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    CHECK(fd >= 0, "create %s", f->name);
    CHECK(!close(fd), "close %s", f->name);
    f->exists = 1, f->len = 0, f->fd = -1, f->mode = 0640;
}

static void append(struct file *f) {
    if (f->len == LARGEST) return;
    size_t len = some_bytes(LARGEST - f->len);
    int fd = f->fd >= 0 && f->appends ? f->fd : open(f->name, O_WRONLY | O_APPEND | O_CLOEXEC);
    CHECK(fd >= 0, "open %s to append", f->name);
    struct iovec halves[] = {{scratch, len / 3}, {scratch + len / 3, len - len / 3}};
    CHECK(writev(fd, halves, 2) == (ssize_t)len, "append to %s", f->name);
    set_shadow(f, f->len, len);
    if (fd == f->fd) f->at = (off_t)f->len;
    done(f, fd);
}

static void overwrite(struct file *f) {
    if (!f->len) return;
    size_t at = below(f->len), len = some_bytes(f->len - at);
    int fd = begin(f);
    if (f->fd >= 0 && f->appends) return; // pwrite on an O_APPEND descriptor appends
    CHECK(pwrite(fd, scratch, len, (off_t)at) == (ssize_t)len, "overwrite %s", f->name);
    set_shadow(f, at, len);
    done(f, fd);
}

// Through the offset of the kept descriptor, which must be where the last write left it.
static void write_on(struct file *f) {
    if (f->fd < 0 || f->appends) return;
    CHECK(lseek(f->fd, 0, SEEK_CUR) == f->at, "the offset of %s is not %lld", f->name, (long long)f->at);
    if ((size_t)f->at >= LARGEST || !below(5)) f->at = lseek(f->fd, (off_t)below(f->len + 1), SEEK_SET);
    size_t len = some_bytes(LARGEST - (size_t)f->at);
    CHECK(write(f->fd, scratch, len) == (ssize_t)len, "write %s", f->name);
    set_shadow(f, (size_t)f->at, len);
    f->at += (off_t)len;
}

static void resize(struct file *f) {
    size_t len = below(2) ? below(f->len + 1) : below(LARGEST);
    if (f->fd >= 0)
        CHECK(!ftruncate(f->fd, (off_t)len), "ftruncate %s", f->name);
    else
        CHECK(!truncate(f->name, (off_t)len), "truncate %s", f->name);
    if (len > f->len) memset(f->bytes + f->len, 0, len - f->len);
    f->len = len;
}

static void start_over(struct file *f) {
    static const char *const own[] = {"/proc/self/fd/%d", "/proc/thread-self/fd/%d", "/dev/fd/%d"};
    char name[64];
    if (f->fd >= 0) // by the name that only this process knows it by
        snprintf(name, sizeof name, own[below(3)], f->fd);
    else
        snprintf(name, sizeof name, "%s", f->name);
    int fd = open(name, O_WRONLY | O_TRUNC | O_CLOEXEC);
    CHECK(fd >= 0, "open %s with O_TRUNC", name);
    f->mode = 0600 | (mode_t)below(8);
    CHECK(!chmod(name, f->mode), "chmod %s", name);
    size_t len = some_bytes(LARGEST);
    CHECK(write(fd, scratch, len) == (ssize_t)len, "write %s", f->name);
    CHECK(!close(fd), "close %s", f->name);
    f->len = 0;
    set_shadow(f, 0, len);
}

static void keep_open(struct file *f) {
    if (f->fd >= 0) {
        CHECK(!close(f->fd), "close %s", f->name);
        f->fd = -1;
        return;
    }
    f->appends = (int)below(2), f->at = 0;
    f->fd = open(f->name, O_RDWR | O_CLOEXEC | (f->appends ? O_APPEND : 0));
    CHECK(f->fd >= 0, "open %s", f->name);
}

static void forget(struct file *f) {
    if (f->fd >= 0) keep_open(f); // an open file without a name is another test's matter
    CHECK(!unlink(f->name), "unlink %s", f->name);
    f->exists = 0, f->len = 0;
}

static void move(struct file *from, struct file *to) {
    if (from == to) return;
    if (to->exists && to->fd >= 0) keep_open(to);
    CHECK(!rename(from->name, to->name), "rename %s to %s", from->name, to->name);
    char name[sizeof to->name];
    unsigned char *bytes = to->bytes;
    memcpy(name, to->name, sizeof name);
    *to = *from;
    memcpy(to->name, name, sizeof name);
    *from = (struct file){.fd = -1, .bytes = bytes};
    snprintf(from->name, sizeof from->name, "f%02d", (int)(from - files));
}

static void directory(int i) {
    char name[8], inside[32];
    snprintf(name, sizeof name, "d%d", i);
    snprintf(inside, sizeof inside, "%s/one", name);
    if (dirs[i]) {
        CHECK(!unlink(inside) && !rmdir(name), "rmdir %s", name);
    } else {
        CHECK(!mkdir(name, 0750), "mkdir %s", name);
        int fd = open(inside, O_WRONLY | O_CREAT | O_EXCL, 0600);
        CHECK(fd >= 0 && write(fd, name, 2) == 2 && !close(fd), "create %s", inside);
    }
    dirs[i] = !dirs[i];
}

// ---- the checks ----

static void check_file(struct file *f) {
    struct stat st;
    if (!f->exists) {
        CHECK(stat(f->name, &st) && errno == ENOENT, "%s must not exist", f->name);
        return;
    }
    int fd = begin(f);
    CHECK(!fstat(fd, &st), "fstat %s", f->name);
    CHECK((size_t)st.st_size == f->len, "%s has %lld bytes, not %zu", f->name, (long long)st.st_size, f->len);
    CHECK((st.st_mode & 07777) == f->mode, "%s has mode %o, not %o", f->name, st.st_mode, f->mode);
    CHECK(pread(fd, scratch, LARGEST, 0) == (ssize_t)f->len, "read %s", f->name);
    for (size_t i = 0; i < f->len; i++)
        CHECK(scratch[i] == f->bytes[i], "byte %zu of %s is %02x, not %02x", i, f->name, scratch[i], f->bytes[i]);
    if (f->fd >= 0 && !f->appends)
        CHECK(lseek(f->fd, 0, SEEK_CUR) == f->at, "the offset of %s is not %lld", f->name, (long long)f->at);
    done(f, fd);
}

// Names in the directory: those that exist and no other.
static void check_names(void) {
    DIR *here = opendir(".");
    CHECK(here, "opendir");
    int found = 0, want = 0;
    for (struct dirent *e; (e = readdir(here));) found += e->d_name[0] == 'f' || e->d_name[0] == 'd';
    closedir(here);
    for (int i = 0; i < FILES; i++) want += files[i].exists;
    for (int i = 0; i < DIRS; i++) want += dirs[i];
    CHECK(found == want, "the directory has %d names, not %d", found, want);
}

static uint64_t step(void) {
    struct file *f = &files[below(FILES)];
    uint64_t what = below(40);
    if (what == 0) directory((int)below(DIRS));
    if (!f->exists)
        create(f);
    else if (what < 12)
        append(f);
    else if (what < 20)
        overwrite(f);
    else if (what < 27)
        write_on(f);
    else if (what < 30)
        resize(f);
    else if (what < 32)
        start_over(f);
    else if (what < 36)
        keep_open(f);
    else if (what < 38)
        move(f, &files[below(FILES)]);
    else if (what < 39)
        forget(f);
    check_file(&files[below(FILES)]);
    return spin(random_state, 300000);
}

static uint64_t digest_all(void) {
    uint64_t digest = 0;
    for (int i = 0; i < FILES; i++) {
        check_file(&files[i]);
        digest = fold(digest, (uint64_t)files[i].exists);
        digest = fold_bytes(digest, files[i].bytes, files[i].exists ? files[i].len : 0);
    }
    check_names();
    return digest;
}

int main(int argc, char **argv) {
    long rounds = scale(argc, argv, 60);
    umask(0);
    for (int i = 0; i < FILES; i++) {
        files[i] = (struct file){.fd = -1, .bytes = malloc(LARGEST)};
        CHECK(files[i].bytes, "malloc");
        snprintf(files[i].name, sizeof files[i].name, "f%02d", i);
    }
    uint64_t digest = 0;
    for (long round = 1; round <= rounds; round++) {
        for (int i = 0; i < STEPS; i++) digest = fold(digest, step());
        printf("round %ld of %ld: %016llx\n", round, rounds, (unsigned long long)fold(digest, digest_all()));
        fflush(stdout);
    }
    printf("digest %016llx\n", (unsigned long long)fold(digest, digest_all()));
    return 0;
}
