// A program in calls that a stop could cut short, or end too early: each must do what it does alone.
//
// - counts: reads of endless devices, getrandom, writes and writevs to a pipe of its own that is read slowly,
//   sends and receipts of all, sendfile, copy_file_range, getdents: all the bytes that were asked for; a write to a
//   pipe whose reader leaves, as many as went into it;
// - waits whose time is up: never early, never EINTR;
// - waits that another thread ends, without a limit and with one far away;
// - signals: with a handler they end a wait with EINTR and a write with a short count; an ignored one is not
//   noticed.
//
// A thread works beside them, so that stops come all the time.
//
// Usage: c_calls [ROUNDS]
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { MANY = 1 << 20, FILE_BYTES = 3 << 20, NAMES = 1500 };

static unsigned char bytes[2 * MANY];
static const uint64_t SEED = 0xca115;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void pause_ms(int ms) {
    struct timespec t = {0, ms * 1000000l};
    CHECK(!nanosleep(&t, NULL), "nanosleep of %d ms", ms);
}

// Something always runs: no stop is left out. The handler may end its pauses.
static void *work(void *unused) {
    struct timespec t = {0, 20000};
    for (uint64_t word = 1;; nanosleep(&t, NULL)) word = spin(word, 1000);
    return unused;
}

// ---- counts ----

static int device(const char *name) {
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0, "open %s", name);
    return fd;
}

static void endless_devices(void) {
    const char *names[] = {"/dev/zero", "/dev/full", "/dev/urandom", "/dev/random"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int fd = device(names[i]);
        ssize_t n = read(fd, bytes, MANY);
        CHECK(n == MANY, "read of %s: %zd bytes", names[i], n);
        struct iovec parts[40];
        size_t at = 0;
        for (int k = 0; k < 40; k++) {
            parts[k] = (struct iovec){bytes + at, 1000 + 997 * (size_t)k};
            at += parts[k].iov_len;
        }
        n = readv(fd, parts, 40);
        CHECK(n == (ssize_t)at, "readv of %s: %zd bytes, not %zu", names[i], n, at);
        n = pread(fd, bytes, MANY, 12345);
        CHECK(n == MANY, "pread of %s: %zd bytes", names[i], n);
        if (i < 2)
            for (size_t k = 0; k < MANY; k++) CHECK(!bytes[k], "%s: byte %zu", names[i], k);
        close(fd);
    }
    ssize_t n = getrandom(bytes, MANY, 0);
    CHECK(n == MANY, "getrandom: %zd bytes", n);
    size_t zeros = 0;
    for (size_t k = 0; k < MANY; k++) zeros += !bytes[k];
    CHECK(zeros > MANY / 512 && zeros < MANY / 128, "getrandom: %zu zeros", zeros);
}

static int pipe_ends[2];

// Reads until the other end is closed.
static void *slow_reader(void *total) {
    static unsigned char some[50000];
    size_t at = 0;
    ssize_t n;
    while ((n = read(pipe_ends[0], some, sizeof some)) > 0) {
        for (ssize_t i = 0; i < n; i++, at++)
            CHECK(some[i] == pattern_byte(SEED, at), "byte %zu of the pipe is %02x", at, some[i]);
        pause_ms(1);
    }
    CHECK(!n, "read of a pipe");
    *(size_t *)total = at;
    return NULL;
}

static void own_pipe(void) {
    pthread_t reader;
    size_t total = 0;
    CHECK(!pipe2(pipe_ends, O_CLOEXEC), "pipe2");
    CHECK(!pthread_create(&reader, NULL, slow_reader, &total), "a reader");
    pattern_fill(bytes, SEED, 0, 2 * MANY);
    ssize_t n = write(pipe_ends[1], bytes, MANY);
    CHECK(n == MANY, "write to a pipe: %zd bytes", n);
    struct iovec parts[50];
    size_t at = MANY;
    for (int k = 0; k < 50; k++) {
        size_t len = (size_t)k % 7 == 3 ? 0 : 400 * (size_t)k + 1;
        parts[k] = (struct iovec){bytes + at, len};
        at += len;
    }
    n = writev(pipe_ends[1], parts, 50);
    CHECK(n == (ssize_t)(at - MANY), "writev to a pipe: %zd bytes, not %zu", n, at - MANY);
    close(pipe_ends[1]);
    pthread_join(reader, NULL);
    close(pipe_ends[0]);
    CHECK(total == at, "%zu bytes were read from the pipe, not %zu", total, at);
}

// Reads a little and leaves.
static void *leaving_reader(void *unused) {
    char some[10];
    (void)unused;
    CHECK(read(pipe_ends[0], some, sizeof some) == sizeof some, "read of a pipe");
    pause_ms(3);
    close(pipe_ends[0]);
    return NULL;
}

// A write that its reader leaves alone says how much went into the pipe, with an ignored signal.
static void left_pipe(void) {
    pthread_t reader;
    CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR, "ignore SIGPIPE");
    CHECK(!pipe2(pipe_ends, O_CLOEXEC), "pipe2");
    int room = fcntl(pipe_ends[1], F_GETPIPE_SZ);
    CHECK(!pthread_create(&reader, NULL, leaving_reader, NULL), "a reader");
    ssize_t n = write(pipe_ends[1], bytes, MANY);
    CHECK(n == room, "write to a pipe whose reader left: %zd bytes, not %d", n, room);
    CHECK(write(pipe_ends[1], bytes, 1) == -1 && errno == EPIPE, "write to a pipe without a reader");
    pthread_join(reader, NULL);
    close(pipe_ends[1]);
    CHECK(signal(SIGPIPE, SIG_DFL) == SIG_IGN, "SIGPIPE as it was");
}

// The same through a pair of sockets, and back: all that was asked for.
static int socket_ends[2];

static void *echo(void *unused) {
    static unsigned char some[30000];
    ssize_t n = recv(socket_ends[0], some, sizeof some, MSG_WAITALL);
    CHECK(n == sizeof some, "recv of all: %zd bytes", n);
    pattern_check(some, SEED, 0, sizeof some, "what came through a socket");
    size_t total = 0;
    (void)unused;
    for (size_t at = sizeof some; (n = read(socket_ends[0], some, sizeof some)) > 0; at += (size_t)n) {
        for (ssize_t i = 0; i < n; i++)
            CHECK(some[i] == pattern_byte(SEED, at + (size_t)i), "byte %zu of the socket", at + (size_t)i);
        total = at + (size_t)n;
        if (n > 20000) pause_ms(1);
    }
    CHECK(total == 2 * MANY, "%zu bytes came through the socket", total);
    return NULL;
}

static void socket_pair(void) {
    pthread_t reader;
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socket_ends), "socketpair");
    CHECK(!pthread_create(&reader, NULL, echo, NULL), "a reader");
    pattern_fill(bytes, SEED, 0, 2 * MANY);
    const size_t part = MANY / 2;
    for (size_t at = 0; at < 30000; at += 10000) {
        CHECK(write(socket_ends[1], bytes + at, 10000) == 10000, "write to a socket");
        pause_ms(2);
    }
    ssize_t n = send(socket_ends[1], bytes + 30000, part - 30000, 0);
    CHECK(n == (ssize_t)part - 30000, "send: %zd bytes", n);
    n = write(socket_ends[1], bytes + part, part);
    CHECK(n == (ssize_t)part, "write to a socket: %zd bytes", n);
    struct iovec parts[2] = {{bytes + 2 * part, 1000}, {bytes + 2 * part + 1000, part - 1000}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    n = sendmsg(socket_ends[1], &message, 0);
    CHECK(n == (ssize_t)part, "sendmsg: %zd bytes", n);
    struct timeval patient = {1000, 0};
    CHECK(!setsockopt(socket_ends[1], SOL_SOCKET, SO_SNDTIMEO, &patient, sizeof patient), "a limit");
    n = send(socket_ends[1], bytes + 3 * part, part, 0);
    CHECK(n == (ssize_t)part, "send with a limit: %zd bytes", n);
    close(socket_ends[1]);
    pthread_join(reader, NULL);
    close(socket_ends[0]);
}

static int new_file(const char *name) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0, "open %s", name);
    return fd;
}

static void check_file(int fd, size_t len) {
    CHECK(lseek(fd, 0, SEEK_END) == (off_t)len, "a file's length");
    for (size_t at = 0; at < len; at += MANY) {
        CHECK(pread(fd, bytes, MANY, (off_t)at) == MANY, "pread");
        pattern_check(bytes - at, SEED, at, at + MANY, "a copied file");
    }
}

static void file_to_file(void) {
    int from = new_file("from"), to = new_file("to");
    for (size_t at = 0; at < FILE_BYTES; at += MANY) {
        pattern_fill(bytes - at, SEED, at, at + MANY);
        CHECK(write(from, bytes, MANY) == MANY, "write");
    }
    off_t at = 0;
    ssize_t n = sendfile(to, from, &at, FILE_BYTES + 1000);
    CHECK(n == FILE_BYTES && at == FILE_BYTES, "sendfile: %zd bytes, to %ld", n, (long)at);
    check_file(to, FILE_BYTES);
    CHECK(!ftruncate(to, 0), "ftruncate");
    off_t out = 0;
    at = 0;
    n = copy_file_range(from, &at, to, &out, FILE_BYTES, 0);
    CHECK(n == FILE_BYTES && at == FILE_BYTES && out == FILE_BYTES, "copy_file_range: %zd bytes", n);
    check_file(to, FILE_BYTES);
    close(from), close(to);
}

static void directory(void) {
    int count = 0;
    struct dirent *entry;
    DIR *dir = opendir("names");
    CHECK(dir, "opendir");
    while ((entry = readdir(dir))) count += entry->d_name[0] == 'n';
    closedir(dir);
    CHECK(count == NAMES, "%d names are in the directory, not %d", count, NAMES);
}

// ---- waits whose time is up ----

static const struct timespec SHORT = {0, 12000000}; // in memory that cannot be written
static int64_t began_ns;
static void begin(void) { began_ns = now_ns(); }
static void in_time(const char *what) {
    int64_t took = now_ns() - began_ns;
    CHECK(took >= SHORT.tv_nsec, "%s lasted %lld ns only", what, (long long)took);
}
#define ENDS(call, value, error)                                                                      \
    do {                                                                                              \
        begin();                                                                                      \
        long answer = (long)(call);                                                                   \
        CHECK(answer == (value) && (answer != -1 || errno == (error)), "a wait answered %ld", answer);\
        in_time(#call);                                                                               \
    } while (0)

static void time_is_up(void) {
    struct epoll_event event;
    struct timespec at, left = SHORT;
    struct timeval part = {0, SHORT.tv_nsec / 1000};
    sigset_t none, usr2;
    sem_t never;
    int word = 5, epoll = epoll_create1(EPOLL_CLOEXEC);
    sigemptyset(&none), sigemptyset(&usr2), sigaddset(&usr2, SIGUSR2);
    sem_init(&never, 0, 0);
    ENDS(nanosleep(&SHORT, NULL), 0, 0);
    ENDS(nanosleep(&SHORT, &left), 0, 0);
    ENDS(clock_nanosleep(CLOCK_MONOTONIC, 0, &SHORT, NULL), 0, 0);
    ENDS(clock_nanosleep(CLOCK_REALTIME, 0, &SHORT, NULL), 0, 0);
    clock_gettime(CLOCK_MONOTONIC, &at);
    if ((at.tv_nsec += SHORT.tv_nsec + 1000000) >= 1000000000) at.tv_sec++, at.tv_nsec -= 1000000000;
    ENDS(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL), 0, 0);
    ENDS(poll(NULL, 0, 12), 0, 0);
    ENDS(syscall(SYS_ppoll, NULL, 0, &SHORT, NULL, 8), 0, 0);
    ENDS(syscall(SYS_pselect6, 0, NULL, NULL, NULL, &SHORT, NULL), 0, 0);
    ENDS(select(0, NULL, NULL, NULL, &part), 0, 0);
    CHECK(!part.tv_sec && !part.tv_usec, "select left %ld us", part.tv_usec);
    ENDS(epoll_wait(epoll, &event, 1, 12), 0, 0);
    ENDS(epoll_pwait(epoll, &event, 1, 12, &none), 0, 0);
    ENDS(syscall(SYS_epoll_pwait2, epoll, &event, 1, &SHORT, NULL, 8), 0, 0);
    ENDS(sigtimedwait(&usr2, NULL, &SHORT), -1, EAGAIN);
    ENDS(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 5, &SHORT, NULL, 0), -1, ETIMEDOUT);
    clock_gettime(CLOCK_REALTIME, &at);
    if ((at.tv_nsec += SHORT.tv_nsec + 1000000) >= 1000000000) at.tv_sec++, at.tv_nsec -= 1000000000;
    ENDS(sem_timedwait(&never, &at), -1, ETIMEDOUT);
    // A limit of a socket is counted in ticks of the kernel. They may be late, and the limit is up sooner by as much.
    int ends[2];
    part = (struct timeval){0, 40000};
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), "socketpair");
    CHECK(!setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &part, sizeof part), "a limit");
    ENDS(recv(ends[0], bytes, 1, 0), -1, EAGAIN);
    ENDS(read(ends[0], bytes, 1), -1, EAGAIN);
    close(ends[0]), close(ends[1]);
    close(epoll);
}

// ---- waits that another thread ends ----

static int wake_fd, lock_held;
static sem_t wake_sem;
static int wake_word;
static pthread_t waiter;
static int answered;

static void *waker(void *how) {
    uint64_t one = 1;
    pause_ms(9);
    switch ((long)how) {
    case 0: CHECK(write(wake_fd, &one, 8) == 8, "write to an eventfd"); break;
    case 1: sem_post(&wake_sem); break;
    case 2: // until it is asleep, and woken
        __atomic_store_n(&wake_word, 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &wake_word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        break;
    case 3: CHECK(!flock(lock_held, LOCK_UN), "flock"); break;
    default: // the number of a signal: again and again, for it may come before the call
        do {
            pthread_kill(waiter, (int)(long)how);
            pause_ms(5);
        } while (how == (void *)SIGUSR1 && !__atomic_load_n(&answered, __ATOMIC_SEQ_CST));
    }
    return NULL;
}

static pthread_t other;
static void wake_by(long how) {
    waiter = pthread_self();
    answered = 0;
    CHECK(!pthread_create(&other, NULL, waker, (void *)how), "a thread");
}
static void woken(void) {
    __atomic_store_n(&answered, 1, __ATOMIC_SEQ_CST);
    pthread_join(other, NULL);
}

static void empty(int fd) {
    uint64_t count;
    CHECK(read(fd, &count, 8) == 8 && count == 1, "read of an eventfd");
}

static void another_ends_it(void) {
    struct epoll_event event = {.events = EPOLLIN};
    struct timespec far = {1000, 0};
    int epoll = epoll_create1(EPOLL_CLOEXEC), n;
    wake_fd = eventfd(0, EFD_CLOEXEC);
    struct pollfd polled = {wake_fd, POLLIN, 0};
    CHECK(!epoll_ctl(epoll, EPOLL_CTL_ADD, wake_fd, &event), "epoll_ctl");
    wake_by(0), n = epoll_wait(epoll, &event, 1, -1), woken();
    CHECK(n == 1, "epoll_wait answered %d", n);
    empty(wake_fd);
    wake_by(0), n = epoll_wait(epoll, &event, 1, 1000000), woken();
    CHECK(n == 1, "epoll_wait with a limit answered %d", n);
    empty(wake_fd);
    wake_by(0), n = (int)syscall(SYS_epoll_pwait2, epoll, &event, 1, &far, NULL, 8), woken();
    CHECK(n == 1, "epoll_pwait2 answered %d", n);
    empty(wake_fd);
    wake_by(0), n = poll(&polled, 1, 1000000), woken();
    CHECK(n == 1, "poll answered %d", n);
    empty(wake_fd);
    wake_by(0), n = ppoll(&polled, 1, &far, NULL), woken();
    CHECK(n == 1, "ppoll answered %d", n);
    empty(wake_fd);
    wake_by(0), empty(wake_fd), woken(); // read(2) waits
    close(epoll), close(wake_fd);

    sem_init(&wake_sem, 0, 0);
    wake_by(1), n = sem_wait(&wake_sem), woken();
    CHECK(!n, "sem_wait");
    wake_word = 0;
    wake_by(2);
    while (!__atomic_load_n(&wake_word, __ATOMIC_SEQ_CST)) {
        n = (int)syscall(SYS_futex, &wake_word, FUTEX_WAIT_PRIVATE, 0, &far, NULL, 0);
        CHECK(!n || errno == EAGAIN, "futex answered %d", n);
    }
    woken();

    int waits = open("lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    lock_held = open("lock", O_RDWR | O_CLOEXEC);
    CHECK(waits >= 0 && !flock(lock_held, LOCK_EX), "flock");
    wake_by(3), n = flock(waits, LOCK_EX), woken();
    CHECK(!n, "flock that waits");
    close(waits), close(lock_held);

    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    struct itimerspec once = {.it_value = SHORT};
    CHECK(!timerfd_settime(timer, 0, &once, NULL), "timerfd_settime");
    empty(timer);
    close(timer);
}

// ---- signals ----

static volatile sig_atomic_t handled;
static void handler(int signal) { handled = signal; }

// The call ends with EINTR, after the handler ran.
#define INTERRUPTED(call)                                                              \
    do {                                                                               \
        handled = 0;                                                                   \
        wake_by(SIGUSR1);                                                              \
        long answer = (long)(call);                                                    \
        CHECK(answer == -1 && errno == EINTR, #call " answered %ld", answer);            \
        CHECK(handled == SIGUSR1, "the handler did not run");                          \
        woken();                                                                       \
    } while (0)

static void signals(void) {
    struct epoll_event event;
    struct timespec far = {1000, 0}, left = {0, 0};
    int epoll = epoll_create1(EPOLL_CLOEXEC), ends[2];
    sigset_t usr2, without_usr1, before;
    sigemptyset(&usr2), sigaddset(&usr2, SIGUSR2);
    INTERRUPTED(nanosleep(&far, &left));
    CHECK(left.tv_sec > 500 && left.tv_sec < 1000, "%ld s are left of a sleep", left.tv_sec);
    INTERRUPTED(poll(NULL, 0, 1000000));
    INTERRUPTED(ppoll(NULL, 0, &far, NULL));
    INTERRUPTED(select(0, NULL, NULL, NULL, NULL));
    INTERRUPTED(epoll_wait(epoll, &event, 1, 1000000));
    INTERRUPTED(epoll_wait(epoll, &event, 1, -1));
    INTERRUPTED(syscall(SYS_epoll_pwait2, epoll, &event, 1, &far, NULL, 8));
    INTERRUPTED(sigtimedwait(&usr2, NULL, &far));
    INTERRUPTED(pause());
    // Blocked outside the call, let in by it.
    sigemptyset(&without_usr1), sigaddset(&without_usr1, SIGUSR1);
    CHECK(!pthread_sigmask(SIG_BLOCK, &without_usr1, &before), "a mask");
    INTERRUPTED(sigsuspend(&before));
    INTERRUPTED(epoll_pwait(epoll, &event, 1, 1000000, &before));
    CHECK(!pthread_sigmask(SIG_SETMASK, &before, NULL), "a mask");

    CHECK(!pipe2(ends, O_CLOEXEC), "pipe2");
    handled = 0;
    wake_by(SIGUSR1);
    ssize_t n = write(ends[1], bytes, MANY); // nobody reads
    CHECK(n > 0 && n < MANY && handled == SIGUSR1, "a write that a handler ended: %zd", n);
    woken();
    close(ends[0]), close(ends[1]);

    for (int i = 0; i < 2; i++) { // SIGURG is ignored
        wake_by(SIGURG);
        if (i) ENDS(epoll_wait(epoll, &event, 1, 30), 0, 0);
        if (!i) ENDS(sigtimedwait(&usr2, NULL, &(struct timespec){0, 30000000}), -1, EAGAIN);
        woken();
    }
    close(epoll);
}

// ---- all of it ----

int main(int argc, char **argv) {
    static char out[4096];
    setvbuf(stdout, out, _IOFBF, sizeof out);
    long rounds = scale(argc, argv, 6);
    struct sigaction action = {.sa_handler = handler};
    sigset_t usr2;
    sigemptyset(&usr2), sigaddset(&usr2, SIGUSR2);
    CHECK(!sigaction(SIGUSR1, &action, NULL) && !sigprocmask(SIG_BLOCK, &usr2, NULL), "signals");
    pthread_t worker;
    CHECK(!pthread_create(&worker, NULL, work, NULL), "a worker");
    CHECK(!mkdir("names", 0700), "mkdir");
    for (int i = 0; i < NAMES; i++) {
        char name[64];
        snprintf(name, sizeof name, "names/n%d-and-some-more-letters", i);
        close(new_file(name));
    }
    static const struct part parts[] = {
        {"endless devices", endless_devices}, {"a pipe", own_pipe},        {"a socket", socket_pair},
        {"file to file", file_to_file},       {"a directory", directory},  {"time is up", time_is_up},
        {"woken", another_ends_it},           {"signals", signals},      {"a reader leaves", left_pipe},
    };
    run_parts(parts, sizeof parts / sizeof *parts, rounds);
    return 0;
}
