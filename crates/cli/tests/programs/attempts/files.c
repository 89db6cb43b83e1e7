// Files without a name, with several names, locks, holes, other times; devices and named pipes.
#include "attempts.h"

#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>

void device(void) {
    const char *devices[] = {"/dev/fuse", "/dev/net/tun", "/dev/kvm", "/dev/loop-control", "/dev/ptmx"};
    for (int i = 0; fd < 0 && i < 5; i++) fd = open(devices[i], O_RDWR | O_CLOEXEC);
    NEED(fd >= 0);
    FOR_A_WHILE step(i, 14);
}

void deleted_file(void) {
    fd = page_file();
    CHECK(!unlink("attempt.page"), "unlink");
    uint64_t word = 0, back;
    FOR_A_WHILE {
        CHECK(pwrite(fd, &word, 8, 0) == 8, "pwrite");
        step(i, word);
        CHECK(pread(fd, &back, 8, 0) == 8 && back == word, "a deleted file lost its content");
        word++;
    }
}

void unnamed_file(void) {
    fd = open(".", O_RDWR | O_TMPFILE, 0600);
    NEED(fd >= 0);
    uint64_t word = 0, back;
    FOR_A_WHILE {
        CHECK(pwrite(fd, &word, 8, 0) == 8 && pread(fd, &back, 8, 0) == 8 && back == word, "an unnamed file");
        step(i, word++);
    }
}

void named_pipe(void) {
    NEED(!mkfifo("attempt.fifo", 0600));
    fd = open("attempt.fifo", O_RDWR);
    CHECK(fd >= 0, "open a named pipe");
    use_pair(fd, fd);
    uint64_t last;
    CHECK(!unlink("attempt.fifo") && read(fd, &last, 8) == 8, "remove a named pipe");
    use_pair(fd, fd); // what has no name any more is still there
    CHECK(!close(fd), "close");
    // A reader that has seen no writer is told of none, also when its name is gone.
    CHECK(!mkfifo("attempt.fifo", 0600), "mkfifo");
    fd = open("attempt.fifo", O_RDONLY | O_NONBLOCK);
    CHECK(fd >= 0 && !unlink("attempt.fifo"), "open for reading");
    FOR_A_WHILE {
        struct pollfd asked = {.fd = fd, .events = POLLIN};
        CHECK(poll(&asked, 1, 0) == 0, "the end of writers is told");
        step(i, 1);
    }
    CHECK(!close(fd), "close");
    FOR_A_WHILE { // a name that was removed since the checkpoint is there again
        uint64_t word = (uint64_t)i, back = 0;
        CHECK(!mkfifo("attempt.fifo", 0600), "mkfifo");
        if (i % 2) step(i, word); // it is the program's own, though not open
        fd = open("attempt.fifo", O_RDWR);
        CHECK(fd >= 0 && write(fd, &word, 8) == 8, "write to a named pipe");
        if (!(i % 2)) step(i, word);
        CHECK(!unlink("attempt.fifo") && read(fd, &back, 8) == 8 && back == word && !close(fd), "read what was written");
    }
}

void hard_and_symbolic_links(void) {
    fd = page_file();
    CHECK(!link("attempt.page", "attempt.hard") && !symlink("attempt.page", "attempt.soft"), "link");
    FOR_A_WHILE {
        struct stat st;
        char to[64] = "";
        CHECK(!stat("attempt.hard", &st) && st.st_nlink == 2, "a hard link: %d names", (int)st.st_nlink);
        CHECK(readlink("attempt.soft", to, sizeof to) > 0 && !strcmp(to, "attempt.page"), "a link to %s", to);
        uint64_t word = (uint64_t)i, back = 0;
        int through = open(i % 2 ? "attempt.hard" : "attempt.soft", O_RDWR);
        CHECK(pwrite(fd, &word, 8, 0) == 8 && pread(through, &back, 8, 0) == 8 && back == word, "through a link");
        CHECK(!close(through), "close");
        step(i, word);
    }
}

void preallocated(void) {
    fd = page_file();
    struct stat st;
    NEED(!fallocate(fd, 0, 0, 1 << 20));
    CHECK(!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 8192), "fallocate");
    FOR_A_WHILE {
        uint64_t word = (uint64_t)i, back = 0;
        CHECK(!fstat(fd, &st) && st.st_size == 1 << 20, "the file has %lld bytes", (long long)st.st_size);
        CHECK(pwrite(fd, &word, 8, i * 4096) == 8 && pread(fd, &back, 8, i * 4096) == 8 && back == word, "a write");
        CHECK(!fallocate(fd, FALLOC_FL_ZERO_RANGE, i * 4096, 8), "fallocate");
        CHECK(pread(fd, &back, 8, i * 4096) == 8 && !back, "zeroed range");
        step(i, word);
    }
}

void file_attributes(void) {
    fd = page_file();
    FOR_A_WHILE {
        struct stat st;
        struct timespec times[2] = {{i * 1000, 0}, {i * 2000, 5}};
        CHECK(!fchmod(fd, (mode_t)(0600 | (i & 077))) && !futimens(fd, times), "fchmod");
        step(i, (uint64_t)i);
        CHECK(!fstat(fd, &st) && (st.st_mode & 0777) == (mode_t)(0600 | (i & 077)), "the mode is %o", st.st_mode);
        CHECK(st.st_mtim.tv_sec == i * 2000 && st.st_mtim.tv_nsec == 5, "the time is %lld", (long long)st.st_mtime);
    }
}

void copied_ranges(void) {
    fd = page_file();
    other = open("attempt.copy", O_RDWR | O_CREAT | O_TRUNC, 0600);
    FOR_A_WHILE {
        uint64_t word = (uint64_t)i, back = 0;
        loff_t from = 0, to = i * 8;
        CHECK(pwrite(fd, &word, 8, 0) == 8, "pwrite");
        NEED(copy_file_range(fd, &from, other, &to, 8, 0) == 8);
        step(i, word);
        CHECK(pread(other, &back, 8, i * 8) == 8 && back == word, "a copied range");
    }
}

void file_lock(void) {
    fd = page_file();
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
    NEED(!flock(fd, LOCK_EX) && !fcntl(fd, F_SETLK, &lock));
    FOR_A_WHILE {
        // The lock shows in /proc/locks with this process's id and this file's inode.
        struct stat st;
        char line[256], inode[64];
        int found = 0;
        CHECK(!fstat(fd, &st), "fstat");
        snprintf(inode, sizeof inode, ":%llu ", (unsigned long long)st.st_ino);
        FILE *locks = fopen("/proc/locks", "r");
        NEED(locks);
        while (fgets(line, sizeof line, locks)) found += !!strstr(line, inode);
        fclose(locks);
        CHECK(found >= 2, "a file lock was dropped: %d are left", found);
        step(i, 15);
    }
}

void proc_file(void) {
    fd = open("/proc/self/stat", O_RDONLY);
    FOR_A_WHILE {
        char bytes[64] = "";
        CHECK(pread(fd, bytes, sizeof bytes - 1, 0) > 0 && atoi(bytes) == getpid(), "/proc/self/stat is of %s", bytes);
        step(i, 16);
    }
}
