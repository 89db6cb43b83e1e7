// Calls that wait for others beside a thread that works, so that a stop comes all the time: each does what it does
// alone.
//
// - locks of files and of open files, a lock that lends its priority, futexes until a moment and of several words;
// - System V semaphores and message queues;
// - signals read from a descriptor, named pipes that wait for their other end, several messages in one call;
// - room for a file.
//
// Usage: c_held [ROUNDS]
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_futex_wait
#define SYS_futex_wait 455
#endif

enum { FILE_BYTES = 48 << 20, MESSAGES = 5, MESSAGE_BYTES = 3000 };
static const struct timespec SHORT = {0, 12000000}, FAR = {1000, 0};

static struct timespec later(clockid_t clock, struct timespec by) {
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_sec += by.tv_sec, t.tv_nsec += by.tv_nsec;
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    return t;
}

// The call answers so, and not before the moment.
#define ENDS_AT(clock, at, call, error)                                                              \
    do {                                                                                             \
        long ended = (long)(call);                                                                   \
        CHECK((error) ? ended == -1 && errno == (error) : !ended, #call " answered %ld", ended);      \
        struct timespec now = later(clock, (struct timespec){0, 0});                                 \
        CHECK(now.tv_sec > (at).tv_sec || (now.tv_sec == (at).tv_sec && now.tv_nsec >= (at).tv_nsec), \
              #call " ended too early");                                                             \
    } while (0)

static pthread_t other;
static void meanwhile(void *(*act)(void *), void *arg) {
    CHECK(!pthread_create(&other, NULL, act, arg), "a thread");
}
static void done(void) { CHECK(!pthread_join(other, NULL), "join"); }

// ---- locks ----

static int file_of(const char *name) {
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0, "open %s", name);
    return fd;
}

static void lock(int fd, int command, int type) {
    struct flock lock = {.l_type = (short)type, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5};
    CHECK(!fcntl(fd, command, &lock), "fcntl");
}

static void *unlock(void *fd) {
    pause_us(9000);
    lock(*(int *)fd, F_OFD_SETLK, F_UNLCK);
    return NULL;
}

static void file_locks(void) {
    int held = file_of("lock"), waits = file_of("lock");
    lock(held, F_OFD_SETLK, F_WRLCK);
    meanwhile(unlock, &held);
    lock(waits, F_OFD_SETLKW, F_WRLCK);
    done();
    lock(waits, F_OFD_SETLK, F_UNLCK);

    // Those of another process.
    int ends[2];
    char ready;
    CHECK(!pipe2(ends, O_CLOEXEC), "pipe2");
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (!child) {
        lock(held, F_SETLK, F_WRLCK);
        CHECK(write(ends[1], "", 1) == 1, "write");
        pause_us(9000);
        _exit(0);
    }
    CHECK(read(ends[0], &ready, 1) == 1, "read");
    lock(waits, F_SETLKW, F_WRLCK);
    int status;
    CHECK(waitpid(child, &status, 0) == child && !status, "the child ended with %x", status);
    close(held), close(waits), close(ends[0]), close(ends[1]);
}

static pthread_mutex_t mutex;
static int is_held, may_let_go;
static void *hold(void *us) {
    CHECK(!pthread_mutex_lock(&mutex), "a lock");
    __atomic_store_n(&is_held, 1, __ATOMIC_SEQ_CST);
    pause_us((long)us);
    while (!__atomic_load_n(&may_let_go, __ATOMIC_SEQ_CST)) pause_us(500);
    CHECK(!pthread_mutex_unlock(&mutex), "a lock");
    return NULL;
}

static void held_by_another(long us) {
    is_held = 0, may_let_go = us > 0;
    meanwhile(hold, (void *)us);
    while (!__atomic_load_n(&is_held, __ATOMIC_SEQ_CST)) pause_us(100);
}

static void lending_locks(void) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    CHECK(!pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT), "a lock that lends its priority");
    CHECK(!pthread_mutex_init(&mutex, &attributes), "a lock");
    held_by_another(9000);
    CHECK(!pthread_mutex_lock(&mutex), "a lock"); // FUTEX_LOCK_PI
    CHECK(!pthread_mutex_unlock(&mutex), "a lock");
    done();
    held_by_another(0);
    struct timespec at = later(CLOCK_REALTIME, SHORT);
    errno = pthread_mutex_timedlock(&mutex, &at);
    ENDS_AT(CLOCK_REALTIME, at, errno ? -1 : 0, ETIMEDOUT);
    __atomic_store_n(&may_let_go, 1, __ATOMIC_SEQ_CST);
    done();
}

// ---- futexes and sleeps until a moment ----

static int words[2];
static void *wake(void *unused) {
    pause_us(9000);
    __atomic_store_n(&words[1], 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &words[1], FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    return unused;
}

static long wait_of_two(const struct timespec *until) {
    struct futex_waitv both[2] = {{0, (uintptr_t)&words[0], FUTEX_32 | FUTEX_PRIVATE_FLAG, 0},
                                  {0, (uintptr_t)&words[1], FUTEX_32 | FUTEX_PRIVATE_FLAG, 0}};
    return syscall(SYS_futex_waitv, both, 2, 0, until, CLOCK_MONOTONIC);
}

static void until_a_moment(void) {
    words[1] = 0;
    struct timespec at = later(CLOCK_REALTIME, SHORT);
    ENDS_AT(CLOCK_REALTIME, at, clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &at, NULL), 0);
    at = later(CLOCK_MONOTONIC, SHORT);
    ENDS_AT(CLOCK_MONOTONIC, at, syscall(SYS_futex, words, FUTEX_WAIT_BITSET_PRIVATE, 0, &at, NULL, -1), ETIMEDOUT);
    at = later(CLOCK_MONOTONIC, SHORT);
    ENDS_AT(CLOCK_MONOTONIC, at, wait_of_two(&at), ETIMEDOUT);
    at = later(CLOCK_MONOTONIC, SHORT);
    long answer = syscall(SYS_futex_wait, words, 0, 0xfffffffful, FUTEX_32 | FUTEX_PRIVATE_FLAG, &at, CLOCK_MONOTONIC);
    if (answer != -1 || errno != ENOSYS) ENDS_AT(CLOCK_MONOTONIC, at, answer, ETIMEDOUT);
    at = later(CLOCK_MONOTONIC, FAR);
    meanwhile(wake, NULL);
    answer = wait_of_two(&at);
    CHECK(answer == 1 || (answer == -1 && errno == EAGAIN), "futex_waitv answered %ld", answer);
    done();
}

// ---- System V ----

static int set_of_semaphores, queue;
static void *give(void *unused) {
    struct sembuf one = {0, 1, 0};
    pause_us(9000);
    CHECK(!semop(set_of_semaphores, &one, 1), "semop");
    return unused;
}

static void semaphores(void) {
    struct sembuf take = {0, -1, 0};
    set_of_semaphores = semget(IPC_PRIVATE, 1, 0600);
    CHECK(set_of_semaphores >= 0, "semget");
    meanwhile(give, NULL);
    CHECK(!semop(set_of_semaphores, &take, 1), "semop that waits");
    done();
    meanwhile(give, NULL);
    CHECK(!semtimedop(set_of_semaphores, &take, 1, &FAR), "semtimedop that waits");
    done();
    struct timespec at = later(CLOCK_MONOTONIC, SHORT);
    ENDS_AT(CLOCK_MONOTONIC, at, semtimedop(set_of_semaphores, &take, 1, &SHORT), EAGAIN);
    CHECK(!semctl(set_of_semaphores, 0, IPC_RMID), "semctl");
}

struct message {
    long type;
    char text[MESSAGE_BYTES];
};

static void *exchange(void *receives) {
    static struct message message = {1, "from the other thread"};
    for (int i = 0; i < 8; i++) {
        pause_us(2000);
        if (receives)
            CHECK(msgrcv(queue, &message, sizeof message.text, 0, 0) == MESSAGE_BYTES, "msgrcv");
        else
            CHECK(!msgsnd(queue, &message, sizeof message.text, 0), "msgsnd");
    }
    return NULL;
}

static void messages(void) {
    static struct message message = {1, "from this one"};
    queue = msgget(IPC_PRIVATE, 0600);
    CHECK(queue >= 0, "msgget");
    meanwhile(exchange, NULL);
    for (int i = 0; i < 8; i++)
        CHECK(msgrcv(queue, &message, sizeof message.text, 0, 0) == MESSAGE_BYTES, "msgrcv that waits");
    done();
    meanwhile(exchange, &queue);
    for (int i = 0; i < 8; i++) // of which it holds five
        CHECK(!msgsnd(queue, &message, sizeof message.text, 0), "msgsnd that waits");
    done();
    CHECK(!msgctl(queue, IPC_RMID, NULL), "msgctl");
}

// ---- descriptors ----

static void *send_signal(void *unused) {
    pause_us(9000);
    CHECK(!kill(getpid(), SIGUSR2), "kill");
    return unused;
}

static void signals(void) {
    sigset_t usr2;
    struct signalfd_siginfo told;
    sigemptyset(&usr2), sigaddset(&usr2, SIGUSR2);
    int fd = signalfd(-1, &usr2, SFD_CLOEXEC);
    CHECK(fd >= 0, "signalfd");
    meanwhile(send_signal, NULL);
    ssize_t n = read(fd, &told, sizeof told);
    CHECK(n == sizeof told && told.ssi_signo == SIGUSR2 && told.ssi_pid == (uint32_t)getpid(), "signalfd: %zd bytes", n);
    done();
    close(fd);
}

static void *open_other_end(void *mode) {
    pause_us(9000);
    int fd = open("fifo", *(int *)mode | O_CLOEXEC);
    CHECK(fd >= 0, "the other end of a named pipe");
    if (*(int *)mode == O_WRONLY) CHECK(write(fd, "through", 7) == 7, "write to a named pipe");
    close(fd);
    return NULL;
}

static void named_pipe(void) {
    char bytes[10];
    int writes = O_WRONLY, reads = O_RDONLY;
    CHECK(!mkfifo("fifo", 0600), "mkfifo");
    meanwhile(open_other_end, &writes);
    int fd = open("fifo", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && read(fd, bytes, sizeof bytes) == 7 && !read(fd, bytes, sizeof bytes), "a named pipe that is read");
    close(fd);
    done();
    meanwhile(open_other_end, &reads);
    fd = open("fifo", O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0, "a named pipe that is written");
    close(fd);
    done();
    CHECK(!unlink("fifo"), "unlink");
}

static int ends[2];
static void *send_all(void *unused) {
    for (int i = 0; i < MESSAGES; i++) {
        pause_us(3000);
        CHECK(send(ends[0], &i, sizeof i, 0) == sizeof i, "send");
    }
    return unused;
}

static void several_messages(void) {
    CHECK(!socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends), "socketpair");
    for (int limited = 0; limited < 2; limited++) {
        int numbers[MESSAGES];
        struct iovec parts[MESSAGES];
        struct mmsghdr several[MESSAGES];
        memset(several, 0, sizeof several);
        for (int i = 0; i < MESSAGES; i++) {
            parts[i] = (struct iovec){&numbers[i], sizeof numbers[i]};
            several[i].msg_hdr.msg_iov = &parts[i], several[i].msg_hdr.msg_iovlen = 1;
        }
        struct timespec left = FAR;
        meanwhile(send_all, NULL);
        int n = recvmmsg(ends[1], several, MESSAGES, 0, limited ? &left : NULL);
        CHECK(n == MESSAGES, "recvmmsg: %d messages", n);
        for (int i = 0; i < n; i++) CHECK(numbers[i] == i && several[i].msg_len == sizeof i, "message %d", i);
        done();
        CHECK(send(ends[0], "next", 4, 0) == 4 && recv(ends[1], numbers, 4, 0) == 4, "the next message");
    }
    // It is over with a message that comes after its time.
    int number;
    struct iovec part = {&number, sizeof number};
    struct mmsghdr two[2] = {{{.msg_iov = &part, .msg_iovlen = 1}, 0}, {{.msg_iov = &part, .msg_iovlen = 1}, 0}};
    struct timespec brief = {0, 1000000};
    meanwhile(send_all, NULL);
    int n = recvmmsg(ends[1], two, 2, 0, &brief);
    CHECK(n >= 1, "recvmmsg with a limit that is over: %d", n);
    done();
    close(ends[0]), close(ends[1]);
}

static void room(void) {
    int of[] = {file_of("room"), memfd_create("room", MFD_CLOEXEC)};
    for (int i = 0; i < 2; i++) {
        struct stat stat;
        char held[6] = "";
        CHECK(of[i] >= 0 && write(of[i], "before", 6) == 6, "write");
        CHECK(!fallocate(of[i], 0, 0, FILE_BYTES), "fallocate");
        CHECK(!fstat(of[i], &stat) && stat.st_size == FILE_BYTES, "%lld bytes", (long long)stat.st_size);
        CHECK(pread(of[i], held, 6, 0) == 6 && !memcmp(held, "before", 6), "what was there before");
        CHECK(!ftruncate(of[i], 0), "ftruncate");
        close(of[i]);
    }
}

int main(int argc, char **argv) {
    static char out[4096];
    setvbuf(stdout, out, _IOFBF, sizeof out);
    long rounds = scale(argc, argv, 4);
    sigset_t usr2;
    sigemptyset(&usr2), sigaddset(&usr2, SIGUSR2);
    CHECK(!sigprocmask(SIG_BLOCK, &usr2, NULL), "a mask");
    pthread_t worker;
    CHECK(!pthread_create(&worker, NULL, keep_running, NULL), "a worker");
    static const struct part parts[] = {
        {"locks of files", file_locks}, {"lending locks", lending_locks},       {"a moment", until_a_moment},
        {"semaphores", semaphores},     {"messages", messages},                 {"signals", signals},
        {"a named pipe", named_pipe},   {"several messages", several_messages}, {"room", room},
    };
    run_parts(parts, sizeof parts / sizeof *parts, rounds);
    return 0;
}
