// Processes tied together by sockets: each knows what it must hear from whom.
//
// - workers, made by fork and by exec, each on a pair of streams, packets or datagrams with its parent; some with a child
//   that has the pair from it;
// - a pair that all workers read from, and a ring of pairs between neighbours;
// - the parent polls all pairs; workers wait by a poll descriptor of their own, for edges too, with an event counter, a
//   timer and a signal descriptor in it; one poll descriptor is shared by all;
// - a process that sleeps in poll(2) while others work, with unread words and edges in sockets of its own;
// - half-closes, ends with and without unread bytes, flags and options set by one process and seen by another.
//
// Usage: c_ties [ROUNDS]
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 4, MANY = 6, UNREAD = 1000 };
enum { TALK = 1, JOBS, TELL, PASS, NONBLOCK, LEAVE };

struct word { uint64_t what, value; };

static struct worker { pid_t pid; int tie, kind; uint64_t sent, digest; } workers[WORKERS];
static int jobs[2], ring[WORKERS][2], shared_poll, counter;
static const char *program;
static uint64_t chance = 5;

static uint64_t below(uint64_t n) { return next_random(&chance) % n; }

static void put(int fd, uint64_t what, uint64_t value) {
    struct word word = {what, value};
    CHECK(send(fd, &word, sizeof word, MSG_NOSIGNAL) == sizeof word, "send %d", (int)what);
}

// 0 at the end.
static int get(int fd, struct word *word) {
    size_t got = 0;
    while (got < sizeof *word) {
        ssize_t some = recv(fd, (char *)word + got, sizeof *word - got, 0);
        if (some < 0 && errno == EINTR) continue;
        if (some < 0 && errno == EAGAIN) {
            struct pollfd asked = {.fd = fd, .events = POLLIN};
            CHECK(poll(&asked, 1, -1) == 1 || errno == EINTR, "poll");
            continue;
        }
        CHECK(some >= 0, "recv");
        CHECK(some > 0 || got == 0, "half a word");
        if (some == 0) return 0;
        got += (size_t)some;
    }
    return 1;
}

static void watch(int poll_fd, int fd, uint32_t events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    CHECK(!epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &event), "watch %d", fd);
}

// ---- a worker ----

static int own_poll, own_counter, own_timer, own_signals, expected_nonblock;

static int is_ready(int fd) {
    struct pollfd asked = {.fd = fd, .events = POLLIN};
    return poll(&asked, 1, 0) == 1;
}

// The edge of what is left unread was told: it is looked for before the wait.
static void wait_for(int fd) {
    while (!is_ready(fd)) {
        struct epoll_event events[8];
        int ready = epoll_wait(own_poll, events, 8, -1);
        CHECK(ready > 0 || errno == EINTR, "epoll_wait");
    }
}

static void begin_waiting(int tie) {
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR1);
    CHECK(!sigprocmask(SIG_BLOCK, &set, NULL), "sigprocmask");
    own_poll = epoll_create1(EPOLL_CLOEXEC), own_counter = eventfd(0, EFD_NONBLOCK);
    own_timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), own_signals = signalfd(-1, &set, SFD_NONBLOCK);
    CHECK(own_poll >= 0 && own_counter >= 0 && own_timer >= 0 && own_signals >= 0, "descriptors");
    watch(own_poll, tie, EPOLLIN | EPOLLET), watch(own_poll, own_counter, EPOLLIN | EPOLLET);
    watch(own_poll, own_timer, EPOLLIN), watch(own_poll, own_signals, EPOLLIN);
}

// A signal that the parent sends, a timer and a count, all by the poll descriptor.
static uint64_t tell(int tie, uint64_t value) {
    struct signalfd_siginfo info;
    struct itimerspec soon = {.it_value.tv_nsec = 3000000};
    uint64_t count = 1 + value % 1000, got = 0;
    put(tie, TELL, 0);
    wait_for(own_signals);
    CHECK(read(own_signals, &info, sizeof info) == sizeof info && info.ssi_int == (int)(value & 0xffff), "signal %d", info.ssi_int);
    CHECK(!timerfd_settime(own_timer, 0, &soon, NULL), "timer");
    wait_for(own_timer);
    CHECK(read(own_timer, &got, sizeof got) == sizeof got && got == 1, "the timer rang %d times", (int)got);
    CHECK(write(own_counter, &count, sizeof count) == sizeof count, "count");
    wait_for(own_counter);
    CHECK(read(own_counter, &got, sizeof got) == sizeof got && got == count, "counted %d", (int)got);
    return fold(value, count);
}

static uint64_t do_jobs(uint64_t many) {
    uint64_t sum = 0;
    struct word word;
    for (uint64_t i = 0; i < many; i++) {
        CHECK(get(jobs[1], &word) && word.what == JOBS, "a job");
        sum += fold(7, word.value);
    }
    return sum;
}

// Its child answers over the tie that it has from it.
static void answer_by_child(int tie, uint64_t value) {
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        spin(value, 2000000);
        put(tie, TALK, fold(value, 1));
        _exit(3);
    }
    int status;
    while (waitpid(pid, &status, 0) != pid) CHECK(errno == EINTR, "wait");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3, "status %x", status);
}

// Its child sets the flags of the open file that both have.
static void set_by_child(int tie, int nonblock) {
    int flags = fcntl(tie, F_GETFL), status;
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) _exit(fcntl(tie, F_SETFL, nonblock ? flags | O_NONBLOCK : flags & ~O_NONBLOCK));
    while (waitpid(pid, &status, 0) != pid) CHECK(errno == EINTR, "wait");
    CHECK(status == 0, "status %x", status);
    expected_nonblock = nonblock;
}

static void work(int tie, int index) {
    uint64_t heard = 0, digest = 1;
    struct word word;
    begin_waiting(tie);
    for (;; heard++) {
        wait_for(tie);
        if (!get(tie, &word)) break;
        digest = fold(digest, word.value);
        CHECK(!(fcntl(tie, F_GETFL) & O_NONBLOCK) == !expected_nonblock, "O_NONBLOCK");
        switch (word.what) {
        case TALK:
            if (word.value % 5 == 0) answer_by_child(tie, word.value);
            else put(tie, TALK, fold(word.value, 1));
            break;
        case JOBS: put(tie, JOBS, do_jobs(word.value)); break;
        case TELL: put(tie, TELL, tell(tie, word.value)); break;
        case PASS: {
            struct word token = word;
            if (index > 0) CHECK(get(ring[index - 1][1], &token), "a token");
            token.value = fold(token.value, (uint64_t)index);
            if (index + 1 < WORKERS) put(ring[index][0], PASS, token.value);
            else put(tie, PASS, token.value);
            break;
        }
        case NONBLOCK: set_by_child(tie, (int)word.value), put(tie, NONBLOCK, word.value); break;
        case LEAVE:
            put(tie, LEAVE, fold(digest, heard));
            while (word.value >= UNREAD && !is_ready(tie)) usleep(1000); // and leaves it
            _exit((int)(word.value % 100));
        default: CHECK(0, "told %d", (int)word.what);
        }
        eventfd_t one = 1;
        if (word.what == TALK) CHECK(!eventfd_write(counter, one), "count for all");
    }
    put(tie, LEAVE, fold(digest, heard));
    _exit(0);
}

// ---- a process that sleeps ----

static int dreamer;
static pid_t dreams;

// For each word it takes one that it sent itself before, and sends itself another.
static void dream(int tie) {
    int own[2], polls = epoll_create1(0);
    struct word word, old;
    struct epoll_event event;
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, own) && polls >= 0, "descriptors");
    watch(polls, own[1], EPOLLIN | EPOLLET);
    for (uint64_t i = 0; i < 3; i++) put(own[0], TALK, i);
    for (;;) {
        struct pollfd asked = {.fd = tie, .events = POLLIN};
        while (poll(&asked, 1, -1) != 1) CHECK(errno == EINTR, "poll");
        if (!get(tie, &word)) _exit(0);
        put(own[0], TALK, word.value);
        CHECK(epoll_wait(polls, &event, 1, 0) == 1, "an edge");
        CHECK(get(own[1], &old), "a word");
        put(tie, TALK, old.value);
    }
}

static void begin_dreamer(void) {
    int tie[2];
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, tie), "socketpair");
    dreams = fork();
    CHECK(dreams >= 0, "fork");
    if (dreams == 0) close(tie[0]), dream(tie[1]);
    close(tie[1]);
    dreamer = tie[0];
}

static void wake(void) {
    static uint64_t sent[3] = {0, 1, 2}, next;
    struct word word;
    uint64_t value = next_random(&chance);
    put(dreamer, TALK, value);
    CHECK(get(dreamer, &word) && word.value == sent[next % 3], "it dreamt of something else");
    sent[next++ % 3] = value;
}

// ---- the parent ----

static void begin_worker(int index) {
    static const int kinds[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM, SOCK_STREAM};
    struct worker *w = &workers[index];
    int tie[2], by_exec = (int)below(2);
    *w = (struct worker){.kind = kinds[below(4)], .digest = 1};
    CHECK(!socketpair(AF_UNIX, w->kind | SOCK_CLOEXEC, 0, tie), "socketpair");
    fflush(stdout);
    w->pid = fork();
    CHECK(w->pid >= 0, "fork");
    if (w->pid == 0) {
        for (int i = 0; i < WORKERS; i++)
            if (i != index && workers[i].pid) close(workers[i].tie);
        close(tie[0]);
        if (!by_exec) work(tie[1], index);
        // As its standard streams, as interpreters do.
        CHECK(dup2(tie[1], 0) == 0, "dup2");
        char words[5][16];
        snprintf(words[0], 16, "%d", index), snprintf(words[1], 16, "%d", jobs[1]), snprintf(words[2], 16, "%d", counter);
        snprintf(words[3], 16, "%d", index ? ring[index - 1][1] : -1), snprintf(words[4], 16, "%d", ring[index][0]);
        execl(program, program, "worker", words[0], words[1], words[2], words[3], words[4], NULL);
        CHECK(0, "exec of %s", program);
    }
    close(tie[1]);
    w->tie = tie[0];
    watch(shared_poll, w->tie, EPOLLIN | (below(2) ? EPOLLET : 0));
}

static void ask(struct worker *w, uint64_t what, uint64_t value) {
    put(w->tie, what, value);
    w->digest = fold(w->digest, value), w->sent++;
}

static uint64_t hear(struct worker *w, uint64_t what) {
    struct word word;
    CHECK(get(w->tie, &word) && word.what == what, "heard %d, not %d", (int)word.what, (int)what);
    return word.value;
}

static void end_worker(struct worker *w) {
    int how = (int)below(3), status;
    uint64_t left = below(100);
    if (w->kind == SOCK_DGRAM && how == 0) how = 1;
    if (how == 0) CHECK(!shutdown(w->tie, SHUT_WR), "shutdown");
    else ask(w, LEAVE, how == 2 ? UNREAD + left : left), w->sent--;
    CHECK(hear(w, LEAVE) == fold(w->digest, w->sent), "it heard something else");
    if (how == 2) put(w->tie, TALK, 1); // it stays unread
    while (waitpid(w->pid, &status, 0) != w->pid) CHECK(errno == EINTR, "wait");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == (int)(how ? left : 0), "status %x", status);
    spin(left, 3000000); // a checkpoint has the end that is left alone
    char byte;
    ssize_t got = recv(w->tie, &byte, 1, MSG_DONTWAIT);
    if (w->kind == SOCK_DGRAM) {
        CHECK(got < 0 && errno == EAGAIN, "from nobody: %zd", got);
        CHECK(send(w->tie, "x", 1, MSG_NOSIGNAL) < 0 && errno == ECONNREFUSED, "to nobody");
    } else if (how == 2) CHECK(got < 0 && errno == ECONNRESET, "it left one unread: %zd", got);
    else CHECK(got == 0, "it is gone: %zd", got);
    CHECK(!close(w->tie), "close");
}

static int is_new(int *done) { return !*done && (*done = 1); }

static void talk_to_all(void) {
    uint64_t said[WORKERS][MANY];
    int done[WORKERS] = {0};
    for (int i = 0; i < WORKERS * MANY; i++) ask(&workers[i % WORKERS], TALK, said[i % WORKERS][i / WORKERS] = next_random(&chance) >> 8);
    int heard[WORKERS] = {0};
    for (int left = WORKERS; left;) {
        struct epoll_event events[WORKERS];
        int ready = epoll_wait(shared_poll, events, WORKERS, -1);
        CHECK(ready > 0 || errno == EINTR, "epoll_wait");
        for (int i = 0; i < ready; i++)
            for (int at = 0; at < WORKERS; at++) {
                struct worker *w = &workers[at];
                if (w->tie != events[i].data.fd) continue;
                while (heard[at] < MANY && is_ready(w->tie)) // an edge is told once
                    CHECK(hear(w, TALK) == fold(said[at][heard[at]++], 1), "worker %d", at);
                left -= heard[at] == MANY && is_new(&done[at]);
            }
    }
    eventfd_t count = 0, some;
    for (; count < WORKERS * MANY; count += some) CHECK(!eventfd_read(counter, &some), "count");
    CHECK(count == WORKERS * MANY, "counted %d", (int)count);
}

static void share_jobs(void) {
    uint64_t sum = 0, expected = 0;
    for (int i = 0; i < WORKERS; i++) ask(&workers[i], JOBS, MANY / 2);
    for (int i = 0; i < WORKERS * (MANY / 2); i++) {
        uint64_t job = next_random(&chance);
        expected += fold(7, job);
        put(jobs[0], JOBS, job);
        if (i % 4 == 0) spin(job, 100000);
    }
    for (int i = 0; i < WORKERS; i++) sum += hear(&workers[i], JOBS);
    CHECK(sum == expected, "other jobs were done");
}

static void tell_all(void) {
    for (int i = 0; i < WORKERS; i++) {
        uint64_t value = next_random(&chance);
        ask(&workers[i], TELL, value);
        hear(&workers[i], TELL); // it listens
        union sigval with = {.sival_int = (int)(value & 0xffff)};
        CHECK(!sigqueue(workers[i].pid, SIGUSR1, with), "sigqueue");
        CHECK(hear(&workers[i], TELL) == fold(value, 1 + value % 1000), "worker %d", i);
    }
}

static void pass_around(void) {
    uint64_t token = next_random(&chance);
    for (int i = 0; i < WORKERS; i++) ask(&workers[i], PASS, token);
    for (int i = 0; i < WORKERS; i++) token = fold(token, (uint64_t)i);
    CHECK(hear(&workers[WORKERS - 1], PASS) == token, "another token");
}

static void change(struct worker *w) {
    struct timeval limit = {100 + (time_t)below(50), 0}, found;
    socklen_t len = sizeof found;
    CHECK(!setsockopt(w->tie, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), "SO_RCVTIMEO");
    ask(w, NONBLOCK, below(2));
    hear(w, NONBLOCK);
    CHECK(!getsockopt(w->tie, SOL_SOCKET, SO_RCVTIMEO, &found, &len) && found.tv_sec == limit.tv_sec, "SO_RCVTIMEO");
}

int main(int argc, char **argv) {
    program = "/proc/self/exe";
    if (argc == 7 && !strcmp(argv[1], "worker")) {
        int index = atoi(argv[2]);
        jobs[1] = atoi(argv[3]), counter = atoi(argv[4]), ring[index][0] = atoi(argv[6]);
        if (index) ring[index - 1][1] = atoi(argv[5]);
        work(0, index);
    }
    long rounds = scale(argc, argv, 12);
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, jobs), "socketpair");
    for (int i = 0; i < WORKERS; i++) CHECK(!socketpair(AF_UNIX, i % 2 ? SOCK_STREAM : SOCK_SEQPACKET, 0, ring[i]), "socketpair");
    shared_poll = epoll_create1(0), counter = eventfd(0, 0);
    CHECK(shared_poll >= 0 && counter >= 0, "descriptors");
    begin_dreamer();
    for (int i = 0; i < WORKERS; i++) begin_worker(i);
    for (long round = 1; round <= rounds; round++) {
        talk_to_all(), share_jobs(), tell_all(), pass_around();
        change(&workers[below(WORKERS)]);
        if (round % 3 == 0) wake();
        int index = (int)below(WORKERS);
        end_worker(&workers[index]);
        workers[index].pid = 0;
        begin_worker(index);
        printf("round %ld of %ld: %016llx\n", round, rounds, (unsigned long long)chance);
        fflush(stdout);
    }
    for (int i = 0; i < WORKERS; i++) end_worker(&workers[i]);
    int status;
    CHECK(!close(dreamer), "close");
    while (waitpid(dreams, &status, 0) != dreams) CHECK(errno == EINTR, "wait");
    CHECK(status == 0, "status %x", status);
    puts("done");
    return 0;
}
