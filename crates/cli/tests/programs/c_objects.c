// A program whose memory knows what files without a name, memory files and shared mappings must hold.
//
// Each object is written by write(2), through one shared mapping and through a second one, cut, lengthened and
// punched; files lose their names while they are open, are replaced, get their names back by another file, and
// get their first name by linkat(2). Everything is compared with a copy in private memory all the time.
//
// It works in its current directory, which should be empty. Usage: c_objects [ROUNDS]
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OBJECTS = 9, LARGEST = 40 * 4096, STEPS = 60 };

enum kind { REMOVED, REPLACED, UNNAMED, MEMORY, MAPPED, ANONYMOUS, PRIVATE, KINDS };

struct object {
    enum kind kind;
    int fd; // -1: only mapped
    size_t len, mapped;
    unsigned char *one, *two; // shared mappings of the first `mapped` bytes
    char name[32];            // what it is called, if anything
    unsigned char *bytes;     // what it must hold
};

static struct object objects[OBJECTS];
static uint64_t random_state = 7;
static unsigned char scratch[LARGEST];
static long made;

static uint64_t below(uint64_t n) { return next_random(&random_state) % n; }

static size_t some_bytes(size_t most) {
    size_t len = 1 + below(below(3) ? 500 : 9000);
    if (len > most) len = most;
    for (size_t i = 0; i < len; i++) scratch[i] = (unsigned char)(random_state >> (i & 31)) + (unsigned char)i;
    next_random(&random_state);
    return len;
}

static void map(struct object *o, size_t len, int twice) {
    int share = o->kind == PRIVATE ? MAP_PRIVATE : MAP_SHARED;
    o->mapped = len;
    o->one = mmap(NULL, len, PROT_READ | PROT_WRITE, share, o->fd, 0);
    CHECK(o->one != MAP_FAILED, "mmap");
    if (!twice) return;
    // The second is made writable only later; a checkpoint, and a kill, may come before.
    o->two = mmap(NULL, len, PROT_READ, MAP_SHARED, o->fd, 0);
    usleep(2000);
    CHECK(o->two != MAP_FAILED && !mprotect(o->two, len, PROT_READ | PROT_WRITE), "mmap again");
}

static void put_file(const char *name, size_t len) {
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0640);
    CHECK(fd >= 0 && write(fd, scratch, len) == (ssize_t)len && !close(fd), "make %s", name);
}

static void make(struct object *o) {
    o->kind = (enum kind)below(KINDS);
    o->len = o->mapped = 0;
    o->one = o->two = NULL;
    snprintf(o->name, sizeof o->name, "o%05ld", made++);
    size_t len = some_bytes(LARGEST);
    memset(o->bytes, 0, LARGEST);
    memcpy(o->bytes, scratch, len);
    o->len = len;
    switch (o->kind) {
    case REMOVED:
    case REPLACED:
        put_file(o->name, len);
        o->fd = open(o->name, O_RDWR | (below(2) ? O_APPEND : 0) | O_CLOEXEC);
        CHECK(o->fd >= 0, "open %s", o->name);
        break;
    case UNNAMED:
        o->fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0640);
        CHECK(o->fd >= 0 && write(o->fd, scratch, len) == (ssize_t)len, "O_TMPFILE");
        o->name[0] = 0;
        break;
    case MEMORY:
    case PRIVATE:
        o->fd = memfd_create(o->name, MFD_ALLOW_SEALING | MFD_CLOEXEC);
        CHECK(o->fd >= 0 && write(o->fd, scratch, len) == (ssize_t)len, "memfd_create");
        o->name[0] = 0;
        if (o->kind == PRIVATE) {
            map(o, 4096, 0);
            CHECK(!fcntl(o->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), "seal");
        } else if (below(2)) {
            CHECK(!ftruncate(o->fd, LARGEST), "ftruncate");
            o->len = LARGEST;
            map(o, LARGEST, 1);
        }
        break;
    case MAPPED:
        put_file(o->name, len);
        o->fd = open(o->name, O_RDWR | O_CLOEXEC);
        CHECK(o->fd >= 0 && !ftruncate(o->fd, LARGEST), "open %s", o->name);
        o->len = LARGEST;
        map(o, LARGEST, 1);
        if (below(2)) {
            close(o->fd); // as sem_open(3) does
            o->fd = -1;
        }
        break;
    default:
        o->fd = -1;
        o->name[0] = 0;
        o->mapped = o->len = LARGEST;
        o->one = mmap(NULL, LARGEST, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(o->one != MAP_FAILED, "mmap");
        memcpy(o->one, o->bytes, LARGEST);
    }
}

static void forget(struct object *o) {
    if (o->one) CHECK(!munmap(o->one, o->mapped), "munmap");
    if (o->two) CHECK(!munmap(o->two, o->mapped), "munmap");
    if (o->fd >= 0) CHECK(!close(o->fd), "close");
    if (o->name[0]) CHECK(!unlink(o->name), "unlink %s", o->name);
    make(o);
}

// A private mapping of a memory file is a copy from the first write on.
static int is_copy(struct object *o) { return o->kind == PRIVATE; }

static void write_some(struct object *o) {
    if (is_copy(o)) {
        size_t len = some_bytes(4096);
        memcpy(o->one, scratch, len);
        memcpy(o->bytes, scratch, len);
        return;
    }
    size_t at = below(LARGEST - 10000), len = some_bytes(10000);
    if (o->one && below(3)) {
        memcpy((o->two && below(2) ? o->two : o->one) + at, scratch, len);
    } else if (o->fd >= 0 && (fcntl(o->fd, F_GETFL) & O_APPEND)) {
        if (o->len + len > LARGEST) return;
        at = o->len;
        CHECK(write(o->fd, scratch, len) == (ssize_t)len, "append");
    } else if (o->fd >= 0) {
        CHECK(pwrite(o->fd, scratch, len, (off_t)at) == (ssize_t)len, "pwrite");
    } else {
        return;
    }
    memcpy(o->bytes + at, scratch, len);
    if (at + len > o->len) o->len = at + len;
}

static void resize(struct object *o) {
    if (o->fd < 0 || is_copy(o)) return;
    size_t len = below(LARGEST);
    if (o->mapped || below(2)) {
        size_t from = below(len + 1);
        CHECK(!fallocate(o->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(len - from + 1)),
              "punch");
        memset(o->bytes + from, 0, len - from + 1);
        return;
    }
    CHECK(!ftruncate(o->fd, (off_t)len), "ftruncate");
    if (len < o->len) memset(o->bytes + len, 0, o->len - len);
    o->len = len;
}

// Names go, come and change.
static void rename_some(struct object *o) {
    char other[32];
    snprintf(other, sizeof other, "o%05ld", made++);
    if (o->kind == UNNAMED && !o->name[0]) {
        char link[32];
        snprintf(link, sizeof link, "/proc/self/fd/%d", o->fd);
        CHECK(!linkat(AT_FDCWD, link, AT_FDCWD, other, AT_SYMLINK_FOLLOW), "linkat %s", other);
        memcpy(o->name, other, sizeof other);
    } else if (!o->name[0]) {
        return;
    } else if (o->kind == REPLACED) {
        put_file(other, 1);
        CHECK(!rename(other, o->name) && !unlink(o->name), "replace %s", o->name);
        o->name[0] = 0;
    } else if (below(2)) {
        CHECK(!link(o->name, other) && !unlink(o->name), "link %s", o->name);
        memcpy(o->name, other, sizeof other);
    } else {
        CHECK(!unlink(o->name), "unlink %s", o->name);
        put_file(o->name, 3); // another file under the same name
        CHECK(!unlink(o->name), "unlink %s", o->name);
        o->name[0] = 0;
    }
    if (!o->name[0]) o->kind = o->mapped ? MAPPED : REMOVED; // what had a name never gets one again
}

static void check_object(struct object *o) {
    const char *kinds[] = {"removed", "replaced", "unnamed", "memory", "mapped", "anonymous", "private"};
    for (int way = 0; way < 3; way++) {
        const unsigned char *bytes = way == 0 ? o->one : way == 1 ? o->two : scratch;
        size_t len = o->mapped;
        if (way == 2) {
            struct stat st;
            if (o->fd < 0 || is_copy(o)) continue;
            CHECK(!fstat(o->fd, &st) && (size_t)st.st_size == o->len, "a %s file has %lld bytes, not %zu",
                  kinds[o->kind], (long long)st.st_size, o->len);
            CHECK(st.st_nlink <= 1, "a %s file has %d links", kinds[o->kind], (int)st.st_nlink);
            CHECK(pread(o->fd, scratch, LARGEST, 0) == (ssize_t)o->len, "pread");
            len = o->len;
        }
        for (size_t i = 0; bytes && i < len; i++)
            CHECK(bytes[i] == o->bytes[i], "byte %zu of a %s file is %02x, not %02x, way %d", i, kinds[o->kind],
                  bytes[i], o->bytes[i], way);
    }
    if (o->name[0]) {
        struct stat st;
        CHECK(!stat(o->name, &st) && (size_t)st.st_size == o->len, "%s is gone or has another length", o->name);
    }
    if (o->kind == PRIVATE)
        CHECK(fcntl(o->fd, F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_GROW), "the seals of a memory file are gone");
}

// A removed directory stays one, a semaphore in shared memory counts, and a memory file that is sealed against
// writing stays so, also where it is mapped.
static int gone;
static sem_t *semaphore;
static int count;
static int sealed;
static char *constant;

static void seal_one(void) {
    sealed = memfd_create("sealed", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    CHECK(sealed >= 0 && write(sealed, "constant", 9) == 9 && !fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE), "seal");
    constant = mmap(NULL, 4096, PROT_READ, MAP_SHARED, sealed, 0);
    // Before Linux 6.7 even a mapping for reading is refused.
    CHECK(constant != MAP_FAILED || errno == EPERM, "map a sealed file");
}

static void check_others(void) {
    struct stat st;
    int value;
    CHECK(!fstat(gone, &st) && S_ISDIR(st.st_mode) && st.st_nlink == 0, "a removed directory");
    CHECK(pwrite(sealed, "x", 1, 0) == -1 && errno == EPERM, "a sealed file was written");
    if (constant != MAP_FAILED)
        CHECK(!strcmp(constant, "constant") && mprotect(constant, 4096, PROT_READ | PROT_WRITE) == -1, "a sealed mapping");
    CHECK(!sem_post(semaphore) && !sem_getvalue(semaphore, &value) && value == ++count, "the semaphore is %d, not %d",
          value, count);
}

int main(int argc, char **argv) {
    long rounds = scale(argc, argv, 40);
    CHECK(!mkdir("gone", 0700), "mkdir");
    gone = open("gone", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(gone >= 0 && !rmdir("gone"), "rmdir an open directory");
    char name[32];
    struct timespec now; // process ids repeat from one run to the next
    CHECK(!clock_gettime(CLOCK_REALTIME, &now), "the time");
    snprintf(name, sizeof name, "/twinpage-test-%ld-%ld", (long)now.tv_sec, now.tv_nsec);
    semaphore = sem_open(name, O_CREAT | O_EXCL, 0600, 0);
    CHECK(semaphore != SEM_FAILED && !sem_unlink(name), "sem_open");
    seal_one();
    for (int i = 0; i < OBJECTS; i++) {
        objects[i].bytes = malloc(LARGEST);
        CHECK(objects[i].bytes, "memory");
        make(&objects[i]);
    }
    uint64_t digest = 0;
    for (long round = 0; round < rounds; round++) {
        for (int i = 0; i < STEPS; i++) {
            struct object *o = &objects[below(OBJECTS)];
            uint64_t what = below(30);
            if (what < 18)
                write_some(o);
            else if (what < 24)
                resize(o);
            else if (what < 28)
                rename_some(o);
            else
                forget(o);
            check_object(&objects[below(OBJECTS)]);
            digest = fold(digest, spin(random_state, 300000));
        }
        check_others();
        for (int i = 0; i < OBJECTS; i++) {
            check_object(&objects[i]);
            digest = fold_bytes(digest, objects[i].bytes, objects[i].len);
        }
        printf("%ld %016llx\n", round, (unsigned long long)digest);
        fflush(stdout);
    }
    return 0;
}
