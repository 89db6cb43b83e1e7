// A program that knows what its socket pairs, named pipes and signal descriptors must hold.
//
// - pairs of streams, datagrams and sequenced packets beside a model: bytes in order, messages with their
//   bounds, flags, options, half-closes, ends closed with and without unread data, duplicates;
// - epoll on their ends; a blocked thread on the other side;
// - a named pipe of its own, open for reading, writing and both; signals read from a descriptor;
// - options of the process, and identity changed to what it is.
//
// It works in its current directory, which should be empty. Usage: c_pairs [ROUNDS]
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PAIRS = 9, QUEUE = 40, LARGEST = 3000, STEPS = 150 };

static uint64_t random_state = 29;
static uint64_t below(uint64_t n) { return next_random(&random_state) % n; }

// ---- pairs ----

// What waits at one end: messages, each made from a seed. Of a stream only their bytes in order count.
struct queue {
    struct { uint64_t seed; size_t len, read; } waiting[QUEUE];
    int count;
};

static struct pair {
    int kind, end[2], twin; // twin: a duplicate of end[0], or -1
    struct queue to[2];
    int shut[2]; // end i sends no more
    int timeout_ms, nonblock;
} pairs[PAIRS];

static void open_pair(struct pair *p, int kind) {
    memset(p, 0, sizeof *p);
    p->kind = kind;
    CHECK(!socketpair(AF_UNIX, kind | SOCK_CLOEXEC, 0, p->end), "socketpair");
    p->twin = below(2) ? fcntl(p->end[0], F_DUPFD, 100 + (int)below(100)) : -1;
    p->nonblock = (int)below(2);
    if (p->nonblock) CHECK(!fcntl(p->end[1], F_SETFL, O_NONBLOCK), "F_SETFL");
    p->timeout_ms = 1000 + (int)below(9) * 40;
    struct timeval limit = {p->timeout_ms / 1000, p->timeout_ms % 1000 * 1000};
    CHECK(!setsockopt(p->end[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), "SO_RCVTIMEO");
    struct linger linger = {1, p->timeout_ms};
    CHECK(!setsockopt(p->end[0], SOL_SOCKET, SO_LINGER, &linger, sizeof linger), "SO_LINGER");
}

static void send_some(struct pair *p, int from) {
    struct queue *q = &p->to[!from];
    if (p->shut[from] || q->count == QUEUE) return;
    unsigned char bytes[LARGEST];
    size_t len = 1 + below(below(4) ? 40 : LARGEST);
    uint64_t seed = next_random(&random_state);
    pattern_fill(bytes, seed, 0, len);
    struct iovec parts[2] = {{bytes, len / 2}, {bytes + len / 2, len - len / 2}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    int fd = from == 0 && p->twin >= 0 && below(2) ? p->twin : p->end[from];
    ssize_t sent = 0;
    switch (below(4)) {
    case 0: sent = send(fd, bytes, len, MSG_DONTWAIT); break;
    case 1: sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL); break;
    case 2: sent = writev(fd, parts, 2); break;
    case 3: sent = write(fd, bytes, len); break;
    }
    CHECK(sent == (ssize_t)len, "sent %zd of %zu", sent, len);
    q->waiting[q->count].seed = seed, q->waiting[q->count].len = len, q->waiting[q->count++].read = 0;
}

static void drop_first(struct queue *q) { memmove(q->waiting, q->waiting + 1, sizeof *q->waiting * (size_t)--q->count); }

static void receive_some(struct pair *p, int at) {
    struct queue *q = &p->to[at];
    unsigned char bytes[LARGEST];
    size_t room = p->kind == SOCK_STREAM ? 1 + below(LARGEST) : LARGEST;
    ssize_t got = recv(p->end[at], bytes, room, MSG_DONTWAIT | (below(2) ? MSG_TRUNC * (p->kind != SOCK_STREAM) : 0));
    if (!q->count) {
        if (p->shut[!at] && p->kind != SOCK_DGRAM) CHECK(got == 0, "the end is %zd", got);
        else CHECK(got < 0 && errno == EAGAIN, "%zd bytes where none wait", got);
        return;
    }
    CHECK(got > 0, "nothing where %d wait", q->count);
    if (p->kind != SOCK_STREAM) {
        CHECK((size_t)got == q->waiting[0].len, "a message of %zd bytes, not %zu", got, q->waiting[0].len);
        for (ssize_t i = 0; i < got; i++) CHECK(bytes[i] == pattern_byte(q->waiting[0].seed, (size_t)i), "byte %zd", i);
        drop_first(q);
        return;
    }
    size_t want = 0;
    for (int i = 0; i < q->count; i++) want += q->waiting[i].len - q->waiting[i].read;
    CHECK((size_t)got == (want < room ? want : room), "%zd bytes, not the smaller of %zu and %zu", got, want, room);
    for (ssize_t i = 0; i < got; i++) {
        CHECK(bytes[i] == pattern_byte(q->waiting[0].seed, q->waiting[0].read), "byte %zd", i);
        if (++q->waiting[0].read == q->waiting[0].len) drop_first(q);
    }
}

static void check_pair(struct pair *p) {
    for (int at = 0; at < 2; at++) {
        int value = 0, waiting = 0;
        socklen_t len = sizeof value;
        CHECK(!getsockopt(p->end[at], SOL_SOCKET, SO_TYPE, &value, &len) && value == p->kind, "a socket of kind %d", value);
        CHECK(!ioctl(p->end[at], FIONREAD, &waiting) && !waiting == !p->to[at].count, "%d bytes wait", waiting);
        struct pollfd asked = {.fd = p->end[at], .events = POLLIN | POLLOUT | POLLRDHUP};
        CHECK(poll(&asked, 1, 0) >= 0, "poll");
        int ended = p->shut[!at] && p->kind != SOCK_DGRAM;
        CHECK(!(asked.revents & POLLRDHUP) == !ended, "end %d says %x", at, asked.revents);
        CHECK(!(asked.revents & POLLIN) == !(p->to[at].count || ended), "end %d says %x", at, asked.revents);
    }
    struct timeval limit;
    socklen_t len = sizeof limit;
    CHECK(!getsockopt(p->end[0], SOL_SOCKET, SO_RCVTIMEO, &limit, &len), "SO_RCVTIMEO");
    CHECK(limit.tv_sec * 1000 + limit.tv_usec / 1000 == p->timeout_ms, "another time limit");
    struct linger linger;
    len = sizeof linger;
    CHECK(!getsockopt(p->end[0], SOL_SOCKET, SO_LINGER, &linger, &len), "SO_LINGER");
    CHECK(linger.l_onoff && linger.l_linger == p->timeout_ms, "it lingers for %d s", linger.l_linger);
    CHECK(!(fcntl(p->end[1], F_GETFL) & O_NONBLOCK) == !p->nonblock, "O_NONBLOCK");
    CHECK(!(fcntl(p->end[0], F_GETFL) & O_NONBLOCK), "O_NONBLOCK at the other end");
    struct ucred peer;
    len = sizeof peer;
    CHECK(!getsockopt(p->end[0], SOL_SOCKET, SO_PEERCRED, &peer, &len) && peer.pid == getpid(), "the peer is %d", peer.pid);
}

// One end is closed; the other reads what waited, hears of the end, and is closed too.
static void end_pair(struct pair *p) {
    int stays = (int)below(2), unread = p->to[!stays].count;
    // Packets unread on both sides when one is closed are refused by name.
    while (p->kind == SOCK_SEQPACKET && unread && p->to[stays].count) receive_some(p, stays);
    CHECK(!close(p->end[!stays]), "close");
    if (p->twin >= 0) {
        if (!stays) close(p->twin);
        else CHECK(!close(p->twin), "close the duplicate");
    }
    for (volatile int spin = 0; spin < 2000000; spin++) {}
    struct queue *q = &p->to[stays];
    p->shut[!stays] = 1;
    char byte;
    if (p->kind == SOCK_SEQPACKET && unread) { // packets tell of it first, streams last
        CHECK(recv(p->end[stays], &byte, 1, MSG_DONTWAIT) < 0 && errno == ECONNRESET, "the peer left %d unread", unread);
        unread = 0;
    }
    while (q->count) receive_some(p, stays);
    ssize_t got = recv(p->end[stays], &byte, 1, MSG_DONTWAIT);
    if (p->kind == SOCK_DGRAM) {
        CHECK(got < 0 && errno == EAGAIN, "recv from nobody: %zd", got);
        CHECK(send(p->end[stays], "x", 1, MSG_NOSIGNAL) < 0 && errno == ECONNREFUSED, "send to nobody");
        for (volatile int spin = 0; spin < 2000000; spin++) {}
        CHECK(send(p->end[stays], "x", 1, MSG_NOSIGNAL) < 0 && errno == ENOTCONN, "send to nobody again");
    } else {
        if (unread) CHECK(got < 0 && errno == ECONNRESET, "the peer left %d unread: %zd", unread, got);
        else CHECK(got == 0, "the peer is gone: %zd", got);
        CHECK(send(p->end[stays], "x", 1, MSG_NOSIGNAL) < 0 && errno == EPIPE, "send to a closed end");
    }
    CHECK(!close(p->end[stays]), "close");
}

static const int kinds[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};

static void pairs_step(int number) {
    struct pair *p = &pairs[below(PAIRS)];
    int side = (int)below(2);
    switch (below(9)) {
    case 0 ... 3: send_some(p, side); break;
    case 4 ... 6: receive_some(p, side); break;
    case 7:
        if (p->kind != SOCK_DGRAM && !below(3)) {
            CHECK(!shutdown(p->end[side], SHUT_WR), "shutdown");
            p->shut[side] = 1;
        }
        break;
    case 8:
        if (below(3)) break;
        end_pair(p);
        open_pair(p, kinds[below(3)]);
        break;
    }
    check_pair(&pairs[number % PAIRS]);
}

// ---- a thread that answers, woken by epoll ----

static int asked[2];

static void *answer(void *nothing) {
    (void)nothing;
    int poll_fd = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 77};
    CHECK(!epoll_ctl(poll_fd, EPOLL_CTL_ADD, asked[1], &event), "epoll_ctl");
    for (uint64_t number = 0;; number++) {
        uint64_t word;
        int ready; // setuid(2) of another thread interrupts it: the library tells every thread
        while ((ready = epoll_wait(poll_fd, &event, 1, -1)) < 0 && errno == EINTR) {}
        CHECK(ready == 1 && event.data.u64 == 77, "epoll_wait");
        ssize_t got = read(asked[1], &word, sizeof word);
        if (!got) return NULL;
        CHECK(got == sizeof word && word == number, "asked %llu, not %llu", (unsigned long long)word, (unsigned long long)number);
        word = fold(word, 3);
        CHECK(write(asked[1], &word, sizeof word) == sizeof word, "answer");
    }
}

static uint64_t ask(void) {
    static uint64_t number;
    uint64_t word = number++;
    CHECK(write(asked[0], &word, sizeof word) == sizeof word, "ask");
    CHECK(recv(asked[0], &word, sizeof word, MSG_WAITALL) == sizeof word && word == fold(number - 1, 3), "another answer");
    return word;
}

// ---- a named pipe ----

static int fifo_both = -1, fifo_out = -1;
static unsigned char piped[4096];
static size_t piped_len;

static void fifo_start(void) {
    unlink("fifo");
    CHECK(!mkfifo("fifo", 0600), "mkfifo");
    fifo_both = open("fifo", O_RDWR | O_NONBLOCK);
    fifo_out = open("fifo", O_WRONLY | O_CLOEXEC);
    CHECK(fifo_both >= 0 && fifo_out >= 0, "open a named pipe");
}

static void fifo_step(void) {
    size_t len = 1 + below(300);
    if (below(2) && piped_len + len <= sizeof piped) {
        pattern_fill(piped + piped_len, next_random(&random_state), 0, len);
        CHECK(write(fifo_out, piped + piped_len, len) == (ssize_t)len, "write to a named pipe");
        piped_len += len;
    } else if (piped_len) {
        unsigned char bytes[300];
        ssize_t got = read(fifo_both, bytes, len);
        CHECK((size_t)got == (len < piped_len ? len : piped_len), "%zd bytes of a named pipe", got);
        CHECK(!memcmp(bytes, piped, (size_t)got), "other bytes came out of a named pipe");
        memmove(piped, piped + got, piped_len -= (size_t)got);
    }
}

// ---- signals and options ----

static int signals = -1;

static void signals_step(void) {
    static int waiting;
    if (!waiting && below(2)) {
        union sigval value = {.sival_int = 4711};
        CHECK(!sigqueue(getpid(), SIGUSR1, value), "sigqueue");
        waiting = 1;
    } else if (waiting) {
        struct signalfd_siginfo info;
        CHECK(read(signals, &info, sizeof info) == sizeof info, "read a signal");
        CHECK(info.ssi_signo == SIGUSR1 && info.ssi_int == 4711, "signal %d with %d", info.ssi_signo, info.ssi_int);
        waiting = 0;
    }
    struct signalfd_siginfo none;
    CHECK(waiting || (read(signals, &none, sizeof none) < 0 && errno == EAGAIN), "a signal that was not sent");
}

static void options_step(void) {
    int subreaper = 0;
    CHECK(!prctl(PR_GET_CHILD_SUBREAPER, &subreaper) && subreaper == 1, "PR_GET_CHILD_SUBREAPER");
    CHECK(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1, "PR_GET_THP_DISABLE");
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CHECK(!fcntl(fifo_both, F_GETFD) && (fcntl(0, F_OFD_GETLK, &lock) == 0 || errno), "F_OFD_GETLK");
    CHECK(!setuid(getuid()) && !setgid(getgid()), "to itself");
    CHECK(!setresuid(-1, geteuid(), getuid()) && !setregid(getgid(), -1), "to itself");
    gid_t groups[64];
    int count = getgroups(64, groups);
    CHECK(count >= 0 && (!setgroups((size_t)count, groups) || errno == EPERM), "its own groups");
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 60;
    static char page[4096];
    CHECK(!mlock(page, sizeof page) && !munlock(page, sizeof page), "mlock");
    CHECK(!prctl(PR_SET_CHILD_SUBREAPER, 1) && !prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), "prctl");
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(!pthread_sigmask(SIG_BLOCK, &set, NULL), "sigmask");
    signals = signalfd(-1, &set, SFD_NONBLOCK);
    CHECK(signals >= 0, "signalfd");
    for (int i = 0; i < PAIRS; i++) open_pair(&pairs[i], kinds[i % 3]);
    fifo_start();
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, asked), "socketpair");
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, answer, NULL), "pthread_create");
    for (long round = 1; round <= rounds; round++) {
        uint64_t digest = 0;
        for (int step = 0; step < STEPS; step++) {
            pairs_step(step);
            fifo_step();
            signals_step();
            if (step % 10 == 0) digest = fold(digest, ask());
            if (step % 50 == 0) options_step();
        }
        for (volatile int spin = 0; spin < 3000000; spin++) {}
        printf("round %ld of %ld: %016llx\n", round, rounds, (unsigned long long)fold(digest, random_state));
        fflush(stdout);
    }
    CHECK(!shutdown(asked[0], SHUT_WR) && !pthread_join(thread, NULL), "the thread ends");
    for (int i = 0; i < PAIRS; i++) end_pair(&pairs[i]);
    CHECK(!close(fifo_both) && !close(fifo_out) && !unlink("fifo"), "remove a named pipe");
    puts("done");
    return 0;
}
