// Watches files and directories that it and its children change, some of them only for a while, and reads what happened
// after each change: the same watches tell the same. Two processes read from one descriptor in turn. Usage: c_inotify ROUNDS
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILES = 4, MASK = IN_CREATE | IN_DELETE | IN_MODIFY | IN_MOVED_FROM | IN_MOVED_TO | IN_CLOSE_WRITE | IN_ONLYDIR };

static int all, some, poll_fd;
static uint64_t digest;

// What there is to tell, without the numbers that say which two moves belong together.
static int take(int fd, const char *expected) {
    char bytes[4096] __attribute__((aligned(8)));
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    int found = 0;
    while (poll(&ready, 1, 0) == 1) {
        ssize_t n = read(fd, bytes, sizeof bytes);
        CHECK(n > 0, "read");
        for (char *at = bytes; at < bytes + n;) {
            struct inotify_event *event = (struct inotify_event *)at;
            digest = fold(fold(digest, (uint64_t)event->wd), event->mask);
            if (event->len) digest = fold_bytes(digest, event->name, strlen(event->name));
            found += expected && event->len && !strcmp(event->name, expected);
            at += sizeof *event + event->len;
        }
    }
    return found;
}

static void change(uint64_t *chance, long round) {
    char name[32], other[32];
    snprintf(name, sizeof name, "d/f%d", (int)(next_random(chance) % FILES));
    snprintf(other, sizeof other, "d/f%d", (int)(next_random(chance) % FILES));
    int fd = open(name, O_WRONLY | O_CREAT | O_APPEND, 0600);
    CHECK(fd >= 0 && write(fd, &round, 3) == 3 && !close(fd), "write %s", name);
    CHECK(take(all, name + 2) >= 2, "nothing is told of %s", name);
    if (round % 3 == 0 && strcmp(name, other)) CHECK(!rename(name, other), "rename %s", name);
    if (round % 5 == 0) unlink(other);
    take(all, NULL);
    take(some, NULL);
}

// A directory that is watched for some rounds.
static void now_and_then(long round) {
    static int number;
    if (round % 7 == 2) CHECK(!mkdir("e", 0700) && (number = inotify_add_watch(some, "e", MASK)) > 0, "watch e");
    if (round % 7 == 4) {
        int fd = open("e/x", O_CREAT | O_WRONLY, 0600);
        struct epoll_event event;
        CHECK(fd >= 0 && !close(fd) && epoll_wait(poll_fd, &event, 1, 0) == 1 && take(some, "x") == 2, "e/x");
        CHECK(!unlink("e/x") && take(some, "x") == 1, "remove e/x");
    }
    if (round % 7 == 6) CHECK(!inotify_rm_watch(some, number) && !rmdir("e"), "forget e");
    take(some, NULL);
    take(all, NULL);
}

int main(int argc, char **argv) {
    long rounds = scale(argc, argv, 300);
    uint64_t chance = 5;
    all = inotify_init1(IN_CLOEXEC), some = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    CHECK(all >= 0 && some >= 0 && !mkdir("d", 0700), "begin");
    CHECK(inotify_add_watch(all, "d", MASK) == 1 && inotify_add_watch(all, ".", MASK) == 2, "watches");
    struct epoll_event event = {.events = EPOLLIN};
    CHECK((poll_fd = epoll_create1(EPOLL_CLOEXEC)) >= 0 && !epoll_ctl(poll_fd, EPOLL_CTL_ADD, some, &event), "epoll");
    for (long round = 0; round < rounds; round++) {
        change(&chance, round);
        now_and_then(round);
        if (round % 20 == 10) {
            pid_t child = fork();
            if (!child) {
                int seen = inotify_add_watch(some, "d", MASK); // the parent gets the number after it
                CHECK(seen > 0 && !inotify_rm_watch(some, seen), "watch d");
                take(some, NULL);
                for (int i = 0; i < 3; i++) change(&chance, round + i), spin(1, 100000);
                _exit(0);
            }
            int status;
            CHECK(waitpid(child, &status, 0) == child && !status, "a child ends with %x", status);
        }
        digest = fold(digest, spin(digest | 1, 200000));
        printf("round %ld %016llx\n", round, (unsigned long long)digest);
        fflush(stdout);
    }
    return 0;
}
