// Processes and a thread that become other users, as servers do, and open files that send signals when they become
// ready. Each knows its user, groups, capabilities and options, and that each signal comes once. Without root's rights
// the workers stay what they are. It works in its current directory, which should be empty. Usage: c_users ROUNDS
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 4, TEXT = 512 };

static int is_root; // with other users to become

// What the kernel says of this thread's credentials.
static void credentials(char text[TEXT]) {
    static const char *const names[] = {"Uid:", "Gid:", "Groups:", "CapInh:", "CapPrm:", "CapEff:", "CapBnd:"};
    char line[256];
    FILE *status = fopen("/proc/thread-self/status", "r");
    CHECK(status, "open the status");
    size_t len = 0;
    while (fgets(line, sizeof line, status))
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (!strncmp(line, names[i], strlen(names[i]))) len += (size_t)snprintf(text + len, TEXT - len, "%s", line);
    fclose(status);
    CHECK(len > 100 && len < TEXT, "%zu bytes of credentials", len);
}

static unsigned long mapped_users(void) {
    unsigned long first, outside, count, all = 0;
    FILE *map = fopen("/proc/self/uid_map", "r");
    CHECK(map, "open the map of users");
    while (fscanf(map, "%lu %lu %lu", &first, &outside, &count) == 3) all += count;
    fclose(map);
    return all;
}

// As libraries do that drop what a process may have: it has none.
static void drop_ambient(void) {
    CHECK(!prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_CHOWN, 0, 0), "an ambient capability");
    CHECK(!prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "drop ambient capabilities");
}

static void become(int which) {
    static const gid_t groups[] = {20, 21, 4000};
    if (!is_root) return;
    if (which == 0) { // for good, as a server's worker does
        CHECK(!setgid(33) && !setgroups(3, groups) && !setuid(33), "become 33");
    } else if (which == 1) { // for a while: root is saved
        CHECK(!setgroups(0, NULL) && !setresgid(100, 101, 102) && !setresuid(1000, 1001, 0), "become 1001");
    } else if (which == 2) { // root with fewer rights
        struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
        struct __user_cap_data_struct data[2] = {{1 << CAP_CHOWN, 1 << CAP_CHOWN | 1 << CAP_KILL, 1 << CAP_KILL}, {0, 0, 0}};
        CHECK(!syscall(SYS_capset, &head, data), "give up capabilities");
    }
}

// What a worker is and may do.
static void work(int which, const char *self, int dumpable, char round) {
    char now[TEXT], name[32];
    struct stat st;
    credentials(now);
    CHECK(!strcmp(now, self), "worker %d was\n%sand is\n%s", which, self, now);
    int parent_dies = 0;
    CHECK(!prctl(PR_GET_PDEATHSIG, &parent_dies) && parent_dies == SIGTERM, "the signal is %d", parent_dies);
    CHECK(prctl(PR_GET_DUMPABLE) == dumpable, "dumpable %d", prctl(PR_GET_DUMPABLE));
    CHECK(prctl(PR_GET_KEEPCAPS) == (which % 2 == 0), "worker %d keeps capabilities: %d", which, prctl(PR_GET_KEEPCAPS));
    snprintf(name, sizeof name, "of-%d", which);
    if (round % 16 == 0) unlink(name);
    int fd = open(name, O_WRONLY | O_CREAT | O_APPEND, 0644);
    CHECK(fd >= 0 && write(fd, &round, 1) == 1 && !fstat(fd, &st) && !close(fd), "write to %s", name);
    CHECK(st.st_uid == geteuid() && st.st_gid == getegid(), "%s is of %u and %u", name, st.st_uid, st.st_gid);
    fd = open("root", O_RDONLY);
    CHECK((fd >= 0) == (geteuid() == 0) || !is_root, "root's file: %d", fd);
    if (fd >= 0) close(fd);
}

// A byte comes in and goes out again by the end of the parent's that sends signals.
static void be_worker(int which, int end) {
    char self[TEXT], round;
    drop_ambient();
    CHECK(!prctl(PR_SET_KEEPCAPS, which % 2 == 0), "keep capabilities"); // the first one loses its user and not these
    become(which);
    if (which == 0) CHECK(!prctl(PR_SET_DUMPABLE, 1), "dumpable");
    CHECK(!prctl(PR_SET_PDEATHSIG, SIGTERM), "pdeathsig");
    credentials(self);
    int dumpable = prctl(PR_GET_DUMPABLE);
    while (read(end, &round, 1) == 1) {
        work(which, self, dumpable, round);
        CHECK(write(end, &round, 1) == 1, "answer");
    }
    _exit(0);
}

static volatile int thread_rounds, thread_ends;

// Credentials are a thread's own, if it does not ask the C library.
static void *other_user(void *unused) {
    char self[TEXT], now[TEXT];
    if (is_root) CHECK(!syscall(SYS_setresuid, -1, 500, -1), "setresuid");
    credentials(self);
    while (!thread_ends) {
        credentials(now);
        CHECK(!strcmp(now, self), "the thread was\n%sand is\n%s", self, now);
        thread_rounds++;
        usleep(1000);
    }
    return unused;
}

// Has an open file send `signal`, by one of the ways there are.
static void ask_for_signals(int fd, int which, int signal) {
    int on = 1;
    if (signal != SIGIO) CHECK(!fcntl(fd, F_SETSIG, signal), "F_SETSIG");
    if (which % 2) {
        struct f_owner_ex owner = {which == 3 ? F_OWNER_TID : F_OWNER_PGRP, which == 3 ? gettid() : getpgrp()};
        CHECK(!fcntl(fd, F_SETOWN_EX, &owner), "F_SETOWN_EX");
        CHECK(!fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC), "O_ASYNC");
    } else {
        CHECK(!ioctl(fd, FIOASYNC, &on) && !fcntl(fd, F_SETOWN, getpid()), "FIOASYNC");
    }
}

int main(int argc, char **argv) {
    long rounds = scale(argc, argv, 60);
    is_root = geteuid() == 0 && mapped_users() > 1;
    // In a group of its own, so that signals to the group are this process's alone.
    if (getpgrp() != getpid()) CHECK(!setpgid(0, 0), "setpgid");
    sigset_t signals;
    sigemptyset(&signals);
    int first = SIGRTMIN + 2;
    sigaddset(&signals, SIGIO);
    for (int i = 0; i < WORKERS; i++) sigaddset(&signals, first + i);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    int root = open("root", O_WRONLY | O_CREAT, 0600);
    CHECK(root >= 0 && !close(root) && !chmod(".", 01777), "root's file");
    int ends[WORKERS];
    pid_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        int pair[2];
        CHECK(!socketpair(AF_UNIX, i == 2 ? SOCK_SEQPACKET : SOCK_STREAM, 0, pair), "socketpair");
        if ((workers[i] = fork()) == 0) {
            sigprocmask(SIG_UNBLOCK, &signals, NULL);
            for (int k = 0; k < i; k++) close(ends[k]);
            close(pair[0]);
            be_worker(i, pair[1]);
        }
        close(pair[1]);
        ends[i] = pair[0];
        // The workers are in a group of their own too.
        CHECK(!setpgid(workers[i], workers[0]), "setpgid");
        ask_for_signals(ends[i], i, i == 0 ? SIGIO : first + i);
    }
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, other_user, NULL), "a thread");
    CHECK(!prctl(PR_SET_KEEPCAPS, 1), "keep capabilities");
    drop_ambient();
    uint64_t chance = 1, digest = 0;
    for (long round = 0; round < rounds; round++) {
        CHECK(prctl(PR_GET_KEEPCAPS) == 1, "capabilities are kept no more");
        char byte = (char)round;
        for (int i = 0; i < WORKERS; i++) {
            siginfo_t info;
            char back;
            CHECK(write(ends[i], &byte, 1) == 1, "ask worker %d", i);
            int signal;
            while ((signal = sigwaitinfo(&signals, &info)) == -1 && errno == EINTR) {}
            CHECK(signal == (i == 0 ? SIGIO : first + i), "worker %d: signal %d of descriptor %d, code %d, band %lx", i,
                  signal, info.si_fd, info.si_code, info.si_band);
            if (i) CHECK(info.si_fd == ends[i] && info.si_band & 1, "signal of descriptor %d, %lx", info.si_fd, info.si_band);
            CHECK(read(ends[i], &back, 1) == 1 && back == byte, "worker %d answers %d", i, back);
            CHECK(fcntl(ends[i], F_GETFL) & O_ASYNC, "flags %o", fcntl(ends[i], F_GETFL));
            struct timespec none = {0, 0};
            signal = sigtimedwait(&signals, &info, &none);
            CHECK(signal == -1 && errno == EAGAIN, "signal %d of %d comes twice", signal, info.si_fd);
            digest = fold(digest, spin(next_random(&chance), 200000));
        }
        printf("round %ld %016llx\n", round, (unsigned long long)digest);
        fflush(stdout);
    }
    thread_ends = 1;
    CHECK(!pthread_join(thread, NULL) && thread_rounds > 0, "join");
    for (int i = 0; i < WORKERS; i++) {
        int status;
        close(ends[i]);
        CHECK(waitpid(workers[i], &status, 0) == workers[i] && status == 0, "worker %d ends with %x", i, status);
    }
    printf("all workers are done\n");
    return 0;
}
