// A program whose own file is removed, and replaced by another, while it runs.
//
// - it copies itself into its current directory and goes on as the copy;
// - the copy is removed in one run and replaced by rename(2) in another;
// - /proc/self/exe gives the bytes of the program, whatever is called by its name now.
//
// It works in its current directory, which should be empty. Usage: c_own ROUNDS [remove|replace]
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static unsigned char own[1 << 20];

static ssize_t read_own(void) {
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0, "open /proc/self/exe");
    ssize_t len = read(fd, own, sizeof own);
    CHECK(len > 0 && len < (ssize_t)sizeof own && !close(fd), "read /proc/self/exe");
    return len;
}

static void write_file(const char *name, const void *bytes, size_t len, mode_t mode) {
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, mode);
    CHECK(fd >= 0 && write(fd, bytes, len) == (ssize_t)len && !close(fd), "write %s", name);
}

int main(int argc, char **argv) {
    CHECK(argc > 1, "usage: c_own ROUNDS [remove|replace]");
    ssize_t len = read_own();
    if (argc < 4) {
        int replace = argc > 2 && !strcmp(argv[2], "replace");
        write_file("own", own, (size_t)len, 0700);
        execl("./own", "./own", argv[1], replace ? "replace" : "remove", "copy", NULL);
        CHECK(0, "exec of the copy");
    }
    uint64_t digest = fold_bytes(0, own, (size_t)len), word = 1;
    int rounds = atoi(argv[1]);
    for (int round = 0; round < rounds; round++) {
        if (round == rounds / 4) {
            if (!strcmp(argv[2], "replace")) {
                write_file("new", "not a program\n", 14, 0600);
                CHECK(!rename("new", "own"), "rename");
            } else {
                CHECK(!unlink("own"), "unlink");
            }
        }
        len = read_own();
        CHECK(fold_bytes(0, own, (size_t)len) == digest, "/proc/self/exe has other bytes");
        word = spin(word, 4000000);
        printf("round %d: %016llx\n", round, (unsigned long long)word);
        fflush(stdout);
    }
    CHECK(access("own", F_OK) == (strcmp(argv[2], "replace") ? -1 : 0), "the name of the copy");
    return 0;
}
