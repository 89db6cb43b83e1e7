// A program that holds what has no ordinary name, and knows what each must be.
//
// - places (O_PATH) of a directory, a file, a symbolic link, named and other pipes, sockets and its own output; names that are not UTF-8, hold a line end
//   or a backslash, or end as the kernel marks what is deleted;
// - mapped files that were unlinked or replaced; a working directory and an open one that were removed;
// - positions in files of /proc; what it wrote to them about itself.
//
// It works in its current directory, which should be empty. Usage: c_places [ROUNDS]
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { SIZE = 3 * 4096 };

static int new_file(const char *name, uint64_t seed, size_t size) {
    static unsigned char bytes[SIZE];
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    pattern_fill(bytes, seed, 0, size);
    CHECK(fd >= 0 && write(fd, bytes, size) == (ssize_t)size, "a file %s", name);
    return fd;
}

// ---- places ----

static int place_dir, place_file, place_link;
static int fifo_place, socket_place, bound_place, pipe_place, output_place, pipe_ends[2];

static int bound_socket(const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, name);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(fd >= 0 && !bind(fd, (struct sockaddr *)&address, sizeof address), "bind %s", name);
    return fd;
}

static int place_of(int fd) {
    char name[32];
    sprintf(name, "/proc/self/fd/%d", fd);
    int place = open(name, O_PATH);
    CHECK(place >= 0, "open the place of %d", fd);
    return place;
}

// What is no file: named pipes, sockets, pipes, the program's own output.
static void special_places_start(void) {
    CHECK(!mkfifo("fifo", 0600) && !close(bound_socket("left")) && bound_socket("bound") >= 0, "make them");
    fifo_place = open("fifo", O_PATH);
    socket_place = open("left", O_PATH);
    bound_place = open("bound", O_PATH);
    CHECK(fifo_place >= 0 && socket_place >= 0 && bound_place >= 0, "open their places");
    // The place has a lower number than the ends.
    int hole = dup(fifo_place);
    CHECK(!pipe(pipe_ends) && fcntl(pipe_ends[1], F_SETPIPE_SZ, 8192) == 8192 && !close(hole), "a pipe");
    pipe_place = place_of(pipe_ends[0]);
    CHECK(pipe_place == hole, "the place is %d", pipe_place);
    output_place = place_of(1);
}

static void special_place(int place, mode_t type) {
    struct stat st;
    char byte;
    CHECK(!fstat(place, &st) && (!type || (st.st_mode & S_IFMT) == type), "place %d has mode %o", place, st.st_mode);
    CHECK(fcntl(place, F_GETFL) & O_PATH, "place %d is open", place);
    CHECK(read(place, &byte, 1) == -1 && errno == EBADF, "place %d was read", place);
    CHECK(write(place, "x", 1) == -1 && errno == EBADF, "place %d was written", place);
}

static void special_places_step(void) {
    struct stat place, end;
    special_place(fifo_place, S_IFIFO);
    special_place(socket_place, S_IFSOCK);
    special_place(bound_place, S_IFSOCK);
    special_place(pipe_place, S_IFIFO);
    special_place(output_place, 0);
    CHECK(!fstat(pipe_place, &place) && !fstat(pipe_ends[0], &end) && place.st_ino == end.st_ino, "it is another pipe");
    CHECK(!fstat(output_place, &place) && !fstat(1, &end) && place.st_ino == end.st_ino, "it is another output");
    CHECK(!fstat(bound_place, &place) && !stat("bound", &end) && place.st_ino == end.st_ino, "it is another socket");
    CHECK(fcntl(pipe_ends[0], F_GETPIPE_SZ) == 8192, "the pipe has another size");
}

static void places_start(void) {
    CHECK(!mkdir("place", 0700) && !symlink("place/file", "link"), "make a place");
    CHECK(!close(new_file("place/file", 1, 10)), "close");
    place_dir = open("place", O_PATH | O_DIRECTORY);
    place_file = open("place/file", O_PATH);
    place_link = open("link", O_PATH | O_NOFOLLOW);
    CHECK(place_dir >= 0 && place_file >= 0 && place_link >= 0, "open a place");
    special_places_start();
}

static void places_step(void) {
    struct stat st;
    char text[32];
    CHECK(!fstat(place_link, &st) && S_ISLNK(st.st_mode), "the link is %o", st.st_mode);
    CHECK(readlinkat(place_link, "", text, sizeof text) == 10, "readlinkat");
    CHECK(read(place_file, text, 1) == -1 && errno == EBADF, "a place was read");
    int fd = openat(place_dir, "file", O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text) == 10 && !close(fd), "openat");
    special_places_step();
}

// ---- an absolute name, which starts at the root whatever descriptor comes with it ----

static char absolute[4096];
static int is_there;

static void absolute_start(void) {
    CHECK(getcwd(absolute, sizeof absolute - 16), "getcwd");
    strcat(absolute, "/absolute");
}

static void absolute_step(void) {
    if (is_there) {
        CHECK(!unlinkat(-1, absolute, 0), "unlinkat");
    } else {
        int fd = openat(-1, absolute, O_CREAT | O_EXCL | O_WRONLY, 0600);
        CHECK(fd >= 0 && !close(fd), "openat");
    }
    is_there = !is_there;
}

// ---- names ----

static const char *const names[] = {"caf\xe9", "a\xff\xfe", "x (deleted)", "new\nline", "back\\012slash", "pipe:[1]"};
enum { NAMES = sizeof names / sizeof *names };
static int named[NAMES];
static unsigned char *named_map[NAMES];

static void names_start(void) {
    for (int i = 0; i < NAMES; i++) {
        named[i] = new_file(names[i], (uint64_t)i, 100);
        named_map[i] = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, named[i], 0);
        CHECK(named_map[i] != MAP_FAILED, "mmap");
    }
}

static void names_step(void) {
    for (int i = 0; i < NAMES; i++) {
        pattern_check(named_map[i], (uint64_t)i, 0, 100, names[i]);
        int again = open(names[i], O_RDONLY);
        struct stat one, other;
        CHECK(again >= 0 && !fstat(again, &one) && !fstat(named[i], &other), "open %s", names[i]);
        CHECK(one.st_ino == other.st_ino && !close(again), "%s is another file", names[i]);
        CHECK(lseek(named[i], 0, SEEK_CUR) == 100, "the position in %s", names[i]);
    }
}

// ---- mapped files without a name ----

static unsigned char *unlinked, *replaced;
static uint64_t private_seed = 50;

static void gone_maps_start(void) {
    int fd = new_file("library", 20, SIZE);
    unlinked = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(unlinked != MAP_FAILED && !close(fd) && !unlink("library"), "a mapped file");
    fd = new_file("old", 21, SIZE);
    replaced = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(replaced != MAP_FAILED && !close(fd), "a mapped file");
    CHECK(!close(new_file("new", 22, SIZE)) && !rename("new", "old"), "replace it");
    pattern_fill(replaced + 4096, private_seed, 0, 4096);
}

static void gone_maps_step(void) {
    pattern_check(unlinked, 20, 0, SIZE, "an unlinked mapping");
    pattern_check(replaced, 21, 0, 4096, "a replaced mapping");
    pattern_check(replaced + 4096, private_seed, 0, 4096, "its private page");
    pattern_fill(replaced + 4096, ++private_seed, 0, 4096);
    if (private_seed % 64) return;
    // Another one comes and goes.
    int fd = new_file("library", private_seed, SIZE);
    CHECK(!munmap(unlinked, SIZE), "munmap");
    unlinked = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(unlinked != MAP_FAILED && !close(fd) && !unlink("library"), "a mapped file");
    pattern_check(unlinked, private_seed, 0, SIZE, "a new mapping");
    CHECK(!munmap(unlinked, SIZE), "munmap");
    fd = new_file("library", 20, SIZE);
    unlinked = mmap(unlinked, SIZE, PROT_READ, MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd, 0);
    CHECK(unlinked != MAP_FAILED && !close(fd) && !unlink("library"), "a mapped file");
}

// ---- removed directories ----

static int removed;

static void gone_directories_start(void) {
    CHECK(!mkdir("removed", 0711), "mkdir");
    removed = open("removed", O_RDONLY | O_DIRECTORY);
    CHECK(removed >= 0 && !rmdir("removed"), "rmdir");
}

static void gone_directories_step(void) {
    struct stat st;
    CHECK(!fstat(removed, &st) && S_ISDIR(st.st_mode) && !st.st_nlink, "the removed directory has %lu links",
          (unsigned long)st.st_nlink);
    CHECK((st.st_mode & 07777) == 0711, "the removed directory has mode %o", st.st_mode);
    CHECK(openat(removed, "x", O_CREAT | O_RDWR, 0600) == -1 && errno == ENOENT, "a file in a removed directory");
    char path[4096];
    CHECK(!mkdir("here", 0700) && !chdir("here") && !rmdir("../here"), "remove the working directory");
    spin(private_seed, 3000000);
    CHECK(!getcwd(path, sizeof path) && errno == ENOENT, "the removed directory is %s", path);
    CHECK(!fchdir(place_dir) && !chdir(".."), "go back");
}

// ---- what it is, in /proc ----

static int memory, status;
static volatile uint64_t poked = 1;
static char before[64];

static void set(const char *name, const char *value) {
    int fd = open(name, O_WRONLY | O_TRUNC);
    CHECK(fd >= 0 && write(fd, value, strlen(value)) == (ssize_t)strlen(value) && !close(fd), "set %s", name);
}

static void expect(const char *name, const char *value) {
    char text[64] = {0};
    int fd = open(name, O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && !close(fd), "read %s", name);
    CHECK(!strcmp(text, value), "%s is %s, not %s", name, text, value);
}

static char group[64];

static ssize_t read_group(char text[64]) {
    int fd = open("/proc/self/autogroup", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, 63);
    CHECK(n >= 0 && (fd < 0 || !close(fd)), "read /proc/self/autogroup");
    text[n] = 0;
    return n;
}

/* The kernel may have no scheduling groups, and this session none of its own. Without CAP_SYS_ADMIN all programs of the
   machine together may set one ten times a second. */
static void group_start(void) {
    int fd = open("/proc/self/autogroup", O_WRONLY);
    int is_set = 0;
    for (int i = 0; fd >= 0 && !is_set && i < 100; i++) {
        is_set = write(fd, "5\n", 2) == 2;
        if (!is_set && errno != EAGAIN) break;
        if (!is_set) usleep(20000);
    }
    CHECK(fd < 0 || !close(fd), "close /proc/self/autogroup");
    if (!is_set || !read_group(group))
        fprintf(stderr, "skipped: /proc/self/autogroup cannot be set here\n");
}

static void group_step(void) {
    char text[64];
    if (!group[0])
        return;
    CHECK(read_group(text), "the scheduling group is gone");
    CHECK(!strcmp(text, group) && strstr(text, "nice 5"), "the scheduling group is %s, not %s", text, group);
}

static void proc_start(void) {
    memory = open("/proc/self/mem", O_RDWR);
    status = open("/proc/self/stat", O_RDONLY);
    CHECK(memory >= 0 && status >= 0 && read(status, before, 4) == 4, "open /proc/self");
    set("/proc/self/oom_score_adj", "321\n");
    set("/proc/self/coredump_filter", "0x77\n");
    set("/proc/self/timerslack_ns", "77777\n");
    set("/proc/self/comm", "line\n");
    CHECK(!prctl(PR_SET_PDEATHSIG, SIGUSR1, 0, 0, 0), "prctl");
    group_start();
}

static void proc_step(void) {
    uint64_t next = poked + 1;
    CHECK(pwrite(memory, &next, 8, (off_t)(uintptr_t)&poked) == 8 && poked == next, "write to /proc/self/mem");
    CHECK(lseek(status, 0, SEEK_CUR) == 4, "the position in /proc/self/stat");
    char text[256] = {0};
    CHECK(pread(status, text, sizeof text - 1, 0) > 0 && atoi(text) == getpid(), "/proc/self/stat is of %d", atoi(text));
    expect("/proc/self/oom_score_adj", "321\n");
    expect("/proc/self/coredump_filter", "00000077\n");
    expect("/proc/self/timerslack_ns", "77777\n");
    expect("/proc/self/comm", "line\n\n");
    int signal = 0;
    CHECK(!prctl(PR_GET_PDEATHSIG, &signal) && signal == SIGUSR1, "the signal of a parent's death is %d", signal);
    group_step();
}

// ---- all of it ----

int main(int argc, char **argv) {
    long rounds = scale(argc, argv, 100);
    places_start();
    absolute_start();
    names_start();
    gone_maps_start();
    gone_directories_start();
    proc_start();
    uint64_t word = 1;
    for (long round = 0; round < rounds; round++) {
        for (int i = 0; i < 8; i++) {
            places_step();
        absolute_step();
            names_step();
            gone_maps_step();
            gone_directories_step();
            proc_step();
            word = spin(word, 2000000);
        }
        printf("round %ld: %016llx\n", round, (unsigned long long)word);
        fflush(stdout);
    }
    CHECK(!unlink("fifo") && !unlink("left") && !unlink("bound"), "remove what is no file");
    return 0;
}
