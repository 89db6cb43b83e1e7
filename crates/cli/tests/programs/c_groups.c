// Sessions, process groups, orphans and stopped children: each process asks in every round who it is, and it is always
// the same. Usage: c_groups ROUNDS
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

struct self { pid_t pid, parent, group, session; };

static struct self who(void) { return (struct self){getpid(), getppid(), getpgrp(), getsid(0)}; }

static volatile sig_atomic_t heard;
static void hear(int signal) { heard = signal; }

// A process that answers every byte with who it is, and whether it heard a signal since.
struct answer { struct self self; int heard; };
struct link { int to, from; pid_t pid; struct self self; };

static void must_read(int fd, void *into, size_t len) {
    ssize_t n;
    while ((n = read(fd, into, len)) < 0 && errno == EINTR) {}
    CHECK(n == (ssize_t)len, "read gives %zd", n);
}

static void serve(int in, int out) {
    struct self self = who();
    signal(SIGUSR1, hear);
    char byte;
    write(out, &self, sizeof self);
    for (;;) {
        ssize_t n = read(in, &byte, 1);
        if (n < 0 && errno == EINTR) continue;
        if (n != 1) _exit(7);
        struct answer answer = {who(), heard};
        heard = 0;
        CHECK(memcmp(&answer.self, &self, sizeof self) == 0, "%d is another", self.pid);
        CHECK(write(out, &answer, sizeof answer) == sizeof answer, "write");
    }
}

// `make` calls `serve` in some descendant.
static struct link begin(void (*make)(int, int), int waits) {
    int there[2], back[2];
    CHECK(pipe2(there, O_CLOEXEC) == 0 && pipe2(back, O_CLOEXEC) == 0, "pipes");
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        close(there[1]), close(back[0]);
        make(there[0], back[1]);
        _exit(0);
    }
    close(there[0]), close(back[1]);
    struct link link = {.to = there[1], .from = back[0], .pid = child};
    must_read(link.from, &link.self, sizeof link.self);
    if (waits) CHECK(waitpid(child, NULL, 0) == child, "it ended");
    return link;
}

static int ask(struct link *link) {
    struct answer answer;
    CHECK(write(link->to, "?", 1) == 1, "write");
    must_read(link->from, &answer, sizeof answer);
    CHECK(memcmp(&answer.self, &link->self, sizeof link->self) == 0, "%d is another", link->self.pid);
    return answer.heard;
}

static void plain(int in, int out) { serve(in, out); }
static void own_group(int in, int out) { setpgid(0, 0), serve(in, out); }
static void own_session(int in, int out) { setsid(), serve(in, out); }
static void in_session(int in, int out) {
    setsid();
    pid_t child = fork();
    if (child == 0) setpgid(0, 0), serve(in, out);
    close(in), close(out);
    waitpid(child, NULL, 0);
}
// An orphan in the first session.
static void near_orphan(int in, int out) {
    pid_t maker = getpid();
    if (fork() == 0) {
        while (getppid() == maker) usleep(1000);
        serve(in, out);
    }
}
// Its maker ended: an orphan, in the maker's session, which has no leader any more.
static void orphan(int in, int out) {
    setsid();
    near_orphan(in, out);
}
// The leader of its group has ended, and was waited for.
static void leaderless(int in, int out) {
    int gate[2];
    CHECK(pipe(gate) == 0, "pipe");
    pid_t leader = fork();
    char byte;
    if (leader == 0) {
        close(gate[1]);
        read(gate[0], &byte, 1);
        _exit(0);
    }
    setpgid(leader, leader);
    pid_t member = fork();
    if (member == 0) {
        CHECK(setpgid(0, leader) == 0, "group");
        close(gate[0]), close(gate[1]);
        waitpid(leader, NULL, 0);
        while (kill(leader, 0) == 0) usleep(1000);
        serve(in, out);
    }
    setpgid(member, leader);
    close(gate[0]), close(gate[1]), close(in), close(out);
    waitpid(leader, NULL, 0);
    waitpid(member, NULL, 0);
}

enum { LINKS = 7, BYTES = 1 << 20 };

int main(int argc, char **argv) {
    static unsigned char work[BYTES];
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    void (*const kinds[LINKS])(int, int) = {plain, own_group, own_session, in_session, orphan, near_orphan, leaderless};
    struct link links[LINKS];
    for (int i = 0; i < LINKS; i++) links[i] = begin(kinds[i], i == 4 || i == 5);
    CHECK(links[2].self.session == links[2].pid && links[4].self.session != links[4].self.pid, "sessions");
    CHECK(links[4].self.parent != links[4].pid && links[5].self.parent != links[5].pid, "orphans");
    CHECK(links[6].self.group != links[6].self.pid && kill(links[6].self.group, 0) < 0, "a leaderless group");
    uint64_t digest = 0;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < LINKS; i++) CHECK(ask(&links[i]) == 0, "it heard nothing");
        CHECK(kill(-links[6].self.group, SIGUSR1) == 0, "a group hears");
        CHECK(kill(-links[1].self.group, SIGUSR1) == 0, "another hears");
        struct link *stopped = &links[round % 2];
        int status;
        CHECK(kill(stopped->pid, SIGSTOP) == 0, "stop");
        if (round % 4 < 2) CHECK(waitpid(stopped->pid, &status, WUNTRACED) == stopped->pid && WIFSTOPPED(status), "it stops");
        pattern_fill(work, digest, 0, BYTES);
        digest = fold_bytes(digest, work, BYTES);
        if (round % 4 < 2) CHECK(waitpid(stopped->pid, &status, WUNTRACED | WNOHANG) == 0, "told once: %x", status);
        else CHECK(waitpid(stopped->pid, &status, WUNTRACED) == stopped->pid && WIFSTOPPED(status), "told late");
        CHECK(kill(stopped->pid, SIGCONT) == 0, "continue");
        int heard[LINKS];
        for (int i = 0; i < LINKS; i++) heard[i] = ask(&links[i]);
        for (int i = 0; i < LINKS; i++) CHECK(heard[i] == (i == 1 || i == 6 ? SIGUSR1 : 0), "%d heard %d", i, heard[i]);
        printf("round %d: %016llx\n", round, (unsigned long long)digest);
        fflush(stdout);
    }
    for (int i = 0; i < LINKS; i++) close(links[i].to);
    for (int i = 0; i < LINKS; i++) {
        if (i == 4 || i == 5) continue;
        int status;
        CHECK(waitpid(links[i].pid, &status, 0) == links[i].pid, "child %d", i);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == (i < 3 ? 7 : 0), "child %d ended with %x", i, status);
    }
    return 0;
}
