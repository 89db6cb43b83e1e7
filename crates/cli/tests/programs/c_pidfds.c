// Descriptors of processes (pidfd_open(2), clone3(2) with CLONE_PIDFD): of one that lives, that has ended and that was
// waited for; of a parent, of a brother, of oneself; with a poll descriptor that waits for an end; signals and waits
// through them. Usage: c_pidfds ROUNDS
#define _GNU_SOURCE
#include "check.h"

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif
enum { STEPS = 800000, CODE = 9, NOBODY = -1 };

static volatile sig_atomic_t signals;

static void count(int signal) {
    (void)signal;
    signals++;
}

static int open_pidfd(pid_t pid) {
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    CHECK(fd >= 0, "pidfd_open of %d", pid);
    return fd;
}

static int send_to(int fd, int signal) { return (int)syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0); }

// What the descriptor says of its process.
static pid_t named(int fd) {
    char path[64], line[128];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *info = fopen(path, "r");
    CHECK(info, "%s", path);
    long pid = 0;
    while (fgets(line, sizeof line, info)) sscanf(line, "Pid: %ld", &pid);
    fclose(info);
    return (pid_t)pid;
}

static int has_ended(int fd) {
    struct pollfd asked = {fd, POLLIN, 0};
    int told = poll(&asked, 1, 0);
    CHECK(told >= 0, "poll");
    return told == 1;
}

static char hear(int fd) {
    char byte;
    ssize_t got;
    while ((got = read(fd, &byte, 1)) < 0 && errno == EINTR) {}
    CHECK(got == 1, "a byte");
    return byte;
}

static void say(int fd, char byte) { CHECK(write(fd, &byte, 1) == 1, "a byte"); }

struct child {
    pid_t pid;
    int fd, to, from;
};

// A child that counts signals, says how many it was sent when it is asked, and ends when its pipe does. Its parent and
// a brother are watched by it through descriptors.
static void be_child(int in, int out, int brother) {
    int parent = open_pidfd(getppid()), own = open_pidfd(getpid());
    int polled = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.u64 = 77}};
    if (brother >= 0) CHECK(epoll_ctl(polled, EPOLL_CTL_ADD, brother, &event) == 0, "epoll_ctl");
    uint64_t word = 5;
    char byte;
    for (ssize_t got; (got = read(in, &byte, 1)) != 0;) {
        if (got < 0 && errno == EINTR) continue;
        CHECK(got == 1, "a byte");
        CHECK(named(parent) == getppid() && named(own) == getpid(), "parent and oneself");
        CHECK(!has_ended(parent) && send_to(parent, 0) == 0 && send_to(own, 0) == 0, "both live");
        word = spin(word, STEPS);
        if (byte == 'b') {
            CHECK(epoll_wait(polled, &event, 1, -1) == 1 && event.data.u64 == 77, "the brother ended");
            CHECK(has_ended(brother), "the brother ended");
        }
        say(out, (char)signals);
    }
    _exit(CODE);
}

static struct child make(int by_clone, const struct child *brother) {
    int there[2], back[2], fd = -1;
    CHECK(pipe(there) == 0 && pipe(back) == 0, "pipes");
    struct {
        uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
    } args = {.flags = 0x1000, .pidfd = (uint64_t)(uintptr_t)&fd, .exit_signal = SIGCHLD};
    signals = 0;
    pid_t pid = by_clone ? (pid_t)syscall(SYS_clone3, &args, sizeof args) : fork();
    CHECK(pid >= 0, "a child");
    if (pid == 0) {
        close(there[1]), close(back[0]);
        if (brother) close(brother->to), close(brother->from);
        be_child(there[0], back[1], brother ? brother->fd : NOBODY);
    }
    close(there[0]), close(back[1]);
    return (struct child){pid, by_clone ? fd : open_pidfd(pid), there[1], back[0]};
}

// It is asked, and had this many signals.
static void ask(struct child *child, char question, int sent) {
    say(child->to, question);
    CHECK(hear(child->from) == sent, "%d signals", sent);
}

static void end(struct child *child) {
    close(child->to);
    close(child->from);
}

static void wait_for(struct child *child) {
    siginfo_t info = {0};
    CHECK(waitid(P_PIDFD, (id_t)child->fd, &info, WEXITED) == 0, "waitid");
    CHECK(info.si_pid == child->pid && info.si_status == CODE, "its end");
}

int main(int argc, char **argv) {
    long rounds = scale(argc, argv, 60);
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0, "sigaction");
    uint64_t word = 3;
    int gone = NOBODY, again = NOBODY;
    for (long round = 0; round < rounds; round++) {
        struct child first = make(round % 2 == 0, NULL);
        struct child other = make(round % 3 == 0, &first);
        int polled = epoll_create1(0), copy = dup(first.fd);
        struct epoll_event event = {EPOLLIN | (round % 2 ? EPOLLET : 0), {.u64 = 41}};
        CHECK(epoll_ctl(polled, EPOLL_CTL_ADD, first.fd, &event) == 0, "epoll_ctl");
        CHECK(send_to(first.fd, SIGUSR1) == 0 && send_to(copy, 0) == 0, "a signal");
        ask(&first, 'a', 1);
        ask(&other, 'a', 0);
        CHECK(!has_ended(first.fd) && epoll_wait(polled, &event, 1, 0) == 0, "it lives");
        CHECK(named(copy) == first.pid && named(other.fd) == other.pid, "the processes");
        word = spin(word, STEPS);
        end(&first);
        CHECK(epoll_wait(polled, &event, 1, -1) == 1 && event.data.u64 == 41, "it ended");
        ask(&other, 'b', 0);
        word = spin(word, STEPS); // it has ended, and was not waited for
        CHECK(has_ended(first.fd) && has_ended(copy) && named(first.fd) == first.pid, "it has ended");
        wait_for(&first);
        CHECK(send_to(first.fd, 0) < 0 && errno == ESRCH && named(copy) == -1, "it was waited for");
        if (gone >= 0) {
            CHECK(has_ended(gone) && named(gone) == -1 && named(again) == -1, "one of long ago");
            siginfo_t info;
            CHECK(waitid(P_PIDFD, (id_t)gone, &info, WEXITED) < 0 && errno == ECHILD, "nobody is waited for twice");
            close(gone), close(again);
        }
        gone = first.fd, again = copy;
        end(&other);
        wait_for(&other);
        close(other.fd), close(polled);
        if (round % 4 == 0) {
            printf("round %ld: %016llx\n", round, (unsigned long long)word);
            fflush(stdout);
        }
    }
    printf("end: %016llx\n", (unsigned long long)word);
    return 0;
}
