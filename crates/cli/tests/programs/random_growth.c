// Files that a program only adds to, as a seed draws it: opened new, emptied or to append, closed, renamed, removed and
// read back, always beside a copy in memory. Of an odd seed it does now and then what is no adding: of one kind, or of all
// that there are (it seeks, overwrites, cuts, maps, links, opens a file twice). After a resume the files must be those of
// the very epoch that the memory is of. It ends with files open.
//
// It works in its current directory, which should be empty. Usage: random_growth SEED ROUNDS
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FILES = 8, LARGEST = 96 * 1024, STEPS = 40, RARELY = 80, KINDS = 12 };

// What one file must be. `fd` is -1 while it is closed.
static struct file {
    char name[8];
    int exists, fd, appends, reads;
    size_t len;
    unsigned char bytes[LARGEST];
} files[FILES];

static uint64_t chance;
static unsigned char scratch[LARGEST];
static uint64_t below(uint64_t n) { return next_random(&chance) % n; }

static size_t some_bytes(size_t most) {
    size_t len = below(4) ? 1 + below(300) : 1 + below(9000);
    if (len > most) len = most;
    pattern_fill(scratch, next_random(&chance), 0, len);
    return len;
}

static struct file *one_that(int is_open) {
    for (uint64_t i = below(FILES), tried = 0; tried < FILES; i = (i + 1) % FILES, tried++)
        if ((files[i].fd >= 0) == is_open && (!is_open || files[i].exists)) return &files[i];
    return NULL;
}

static void set(struct file *f, size_t at, size_t len) {
    if (at > f->len) memset(f->bytes + f->len, 0, at - f->len);
    memcpy(f->bytes + at, scratch, len);
    if (at + len > f->len) f->len = at + len;
}

static void open_one(struct file *f) {
    static const int ways[] = {O_WRONLY | O_TRUNC, O_WRONLY | O_APPEND, O_RDWR | O_APPEND, O_WRONLY | O_EXCL,
                               O_WRONLY | O_APPEND | O_TRUNC};
    int way = ways[below(5)];
    if (way & O_EXCL && f->exists) way = O_WRONLY | O_TRUNC;
    f->fd = open(f->name, O_CREAT | way | (below(2) ? O_CLOEXEC : 0), 0640);
    CHECK(f->fd >= 0, "open %s", f->name);
    if (way & O_TRUNC || !f->exists) f->len = 0;
    f->exists = 1, f->appends = !!(way & O_APPEND), f->reads = (way & O_ACCMODE) == O_RDWR;
}

static void grow(struct file *f) {
    size_t len = some_bytes(LARGEST - f->len);
    struct iovec halves[] = {{scratch, len / 3}, {scratch + len / 3, len - len / 3}};
    ssize_t written = below(3) ? write(f->fd, scratch, len) : writev(f->fd, halves, 2);
    CHECK(written == (ssize_t)len, "write %zu bytes to %s", len, f->name);
    set(f, f->len, len);
}

static void close_one(struct file *f) {
    CHECK(!close(f->fd), "close %s", f->name);
    f->fd = -1;
}

static void compare(struct file *f) {
    struct stat stat;
    int fd = open(f->name, O_RDONLY);
    CHECK((fd >= 0) == f->exists, "open %s, which %s there", f->name, f->exists ? "is" : "is not");
    if (fd < 0) return;
    CHECK(!fstat(fd, &stat) && (size_t)stat.st_size == f->len, "%s has %ld bytes, not %zu", f->name, (long)stat.st_size, f->len);
    CHECK(read(fd, scratch, LARGEST) == (ssize_t)f->len, "read %s", f->name);
    CHECK(!memcmp(scratch, f->bytes, f->len), "what %s holds", f->name);
    CHECK(!close(fd), "close %s", f->name);
}

static void look(struct file *f) {
    if (!f->appends) CHECK(lseek(f->fd, 0, SEEK_CUR) == (off_t)f->len, "the offset of %s", f->name);
    if (!f->reads || !f->len) return;
    size_t at = below(f->len), len = f->len - at;
    CHECK(pread(f->fd, scratch, len, (off_t)at) == (ssize_t)len, "read %s", f->name);
    CHECK(!memcmp(scratch, f->bytes + at, len), "what %s holds", f->name);
}

static void take_place(struct file *from, struct file *to) {
    if (from == to || !from->exists) return;
    CHECK(!rename(from->name, to->name), "rename %s to %s", from->name, to->name);
    memcpy(to->bytes, from->bytes, to->len = from->len);
    to->exists = 1, from->exists = 0, from->len = 0;
}

static void remove_one(struct file *f) {
    CHECK((unlink(f->name) == 0) == f->exists, "unlink %s", f->name);
    f->exists = 0, f->len = 0;
}

static void overwrite(struct file *f, int fd, size_t at) {
    size_t len = some_bytes(LARGEST - at);
    CHECK(lseek(fd, (off_t)at, SEEK_SET) == (off_t)at, "seek in %s", f->name);
    CHECK(write(fd, scratch, len) == (ssize_t)len, "write to %s", f->name);
    set(f, at, len);
}

static void to_end(struct file *f) {
    if (!f->appends) CHECK(lseek(f->fd, 0, SEEK_END) == (off_t)f->len, "seek to the end of %s", f->name);
}

// What is no adding, to an open file.
static void change(struct file *f, uint64_t kind) {
    size_t at = f->len ? below(f->len) : 0, len;
    int fd;
    unsigned char *map;
    switch (kind < KINDS ? kind : below(KINDS)) {
    case 0:
        if (!f->appends) overwrite(f, f->fd, at), to_end(f);
        break;
    case 1:
        CHECK((fd = dup(f->fd)) >= 0, "dup");
        if (!f->appends) overwrite(f, fd, at), to_end(f);
        CHECK(!close(fd), "close");
        break;
    case 2:
        CHECK((fd = fcntl(f->fd, F_DUPFD_CLOEXEC, 40)) >= 40, "F_DUPFD_CLOEXEC");
        if (!f->appends) overwrite(f, fd, at), to_end(f);
        CHECK(!close(fd), "close");
        break;
    case 3:
        if (f->appends) break;
        len = some_bytes(LARGEST - at);
        CHECK(pwrite(f->fd, scratch, len, (off_t)at) == (ssize_t)len, "pwrite to %s", f->name);
        set(f, at, len), to_end(f);
        break;
    case 4:
        len = below(2) ? at : at + (LARGEST - at) / 2;
        CHECK(below(2) ? !ftruncate(f->fd, (off_t)len) : !truncate(f->name, (off_t)len), "truncate %s", f->name);
        if (len > f->len) memset(f->bytes + f->len, 0, len - f->len);
        f->len = len;
        if (below(2) && !f->appends && at < f->len) overwrite(f, f->fd, at);
        to_end(f);
        break;
    case 5:
        CHECK((fd = open(f->name, O_RDWR | O_CLOEXEC)) >= 0, "open %s again", f->name);
        overwrite(f, fd, at);
        CHECK(!close(fd), "close");
        to_end(f);
        break;
    case 6:
        CHECK(!fcntl(f->fd, F_SETFL, f->appends ? 0 : O_APPEND), "F_SETFL");
        f->appends = !f->appends;
        if (!f->appends) overwrite(f, f->fd, at);
        to_end(f);
        break;
    case 7:
        CHECK(!rename(f->name, "moved"), "rename %s", f->name);
        grow(f);
        CHECK(!rename("moved", f->name), "rename it back to %s", f->name);
        break;
    case 8: // written without a name, and gone
        CHECK(!unlink(f->name), "unlink %s", f->name);
        grow(f), close_one(f);
        f->exists = 0, f->len = 0;
        break;
    case 9:
        CHECK(!link(f->name, "other"), "link %s", f->name);
        grow(f);
        CHECK(!unlink("other"), "unlink the other name of %s", f->name);
        break;
    case 10:
        CHECK((fd = open(f->name, O_RDONLY)) >= 0, "open %s", f->name);
        map = mmap(NULL, LARGEST, PROT_READ, MAP_SHARED, fd, 0);
        CHECK(map != MAP_FAILED && !close(fd), "map %s", f->name);
        grow(f);
        CHECK(!memcmp(map, f->bytes, f->len), "what %s holds where it is mapped", f->name);
        CHECK(!munmap(map, LARGEST), "munmap");
        break;
    case 11: // another file gets its name
        CHECK((fd = open("fresh", O_WRONLY | O_CREAT | O_TRUNC, 0600)) >= 0, "open fresh");
        len = some_bytes(LARGEST);
        CHECK(write(fd, scratch, len) == (ssize_t)len && !close(fd), "write fresh");
        CHECK(!rename("fresh", f->name), "rename fresh to %s", f->name);
        memcpy(f->bytes, scratch, f->len = len);
        len = some_bytes(LARGEST);
        CHECK(write(f->fd, scratch, len) == (ssize_t)len, "write to what was %s", f->name);
        close_one(f);
        break;
    }
}

static void step(uint64_t seed) {
    struct file *f = one_that(1), *closed = one_that(0), *other = one_that(0);
    if (f && seed % 2 && !below(RARELY)) return change(f, seed / 2 % (KINDS + 1));
    if (f && !below(4)) compare(f);
    switch (below(16)) {
    case 0 ... 8:
        if (f && f->len < LARGEST) grow(f);
        else if (f) close_one(f);
        break;
    case 9 ... 10:
        if (closed && !f) open_one(closed);
        else if (closed && below(2)) open_one(closed);
        break;
    case 11:
        if (f) close_one(f);
        break;
    case 12:
        if (f) look(f);
        break;
    case 13: compare(&files[below(FILES)]); break;
    case 14:
        if (closed && other) take_place(closed, other);
        break;
    case 15:
        if (closed && closed->exists && !below(2)) remove_one(closed);
        else if (f && !below(4)) CHECK(!fsync(f->fd), "fsync");
        break;
    }
}

int main(int argc, char **argv) {
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, digest = 0;
    long rounds = argc > 2 ? strtol(argv[2], NULL, 10) : 200;
    chance = seed;
    for (int i = 0; i < FILES; i++) snprintf(files[i].name, sizeof files[i].name, "f%d", i), files[i].fd = -1;
    for (long round = 0; round < rounds; round++) {
        for (int i = 0; i < STEPS; i++) step(seed);
        for (int i = 0; i < FILES; i++) {
            compare(&files[i]);
            digest = fold_bytes(digest, files[i].bytes, files[i].len);
        }
        printf("%ld %08x\n", round, (unsigned)digest);
        fflush(stdout);
        usleep(2000);
    }
}
