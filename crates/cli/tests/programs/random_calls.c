// Draws system calls and their arguments from a seed, makes them, and says what each came to: its result or
// error, and what it read. Nothing that it says depends on time, addresses, process ids or descriptor
// numbers, so that two runs with one seed say the same, whatever interrupts them.
//
// It works in its current directory, which should be empty. Usage: random_calls SEED CALLS
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { SLOTS = 24, NAMES = 12, CHANNELS = 4096, MAPS = 6, PAGES = 6, PAGE = 4096, ROOM = 9000 };

static uint64_t chance;
static uint64_t below(uint64_t n) { return next_random(&chance) % n; }

enum kind { NONE, REGULAR, DIRECTORY, PIPE_IN, PIPE_OUT, STREAM, PACKETS, EVENT, SIGNALS, POLL };

// What is sent into `out` comes out of a descriptor whose `in` is the same.
static struct slot { int fd, in, out; enum kind kind; } slots[SLOTS];

// Messages in each channel since it was last found empty. How much fits beyond is the kernel's affair, and
// depends on how the bytes lie in it.
static int waiting[CHANNELS], channels = 1;
enum { MOST_WAITING = 8 };

static unsigned char bytes[ROOM];
static unsigned char *maps[MAPS];
static uint64_t digest;
static long made;

static long say(const char *call, long result) {
    long shown = result < 0 ? -errno : result;
    digest = fold(digest, (uint64_t)shown);
    printf("%ld %s = %ld, %08x\n", made, call, shown, (unsigned)digest);
    return result;
}

static long say_bytes(const char *call, long len) {
    if (len > 0) digest = fold_bytes(digest, bytes, (size_t)len);
    return say(call, len);
}

static struct slot *slot_of(int free) {
    for (uint64_t i = below(SLOTS), tried = 0; tried < SLOTS; i = (i + 1) % SLOTS, tried++)
        if ((slots[i].kind == NONE) == free) return &slots[i];
    return NULL;
}

static void keep(const char *call, int fd, enum kind kind, int in, int out) {
    struct slot *s = slot_of(1);
    say(call, fd < 0 ? fd : 0);
    if (fd < 0) return;
    if (s) *s = (struct slot){fd, in, out, kind};
    else close(fd);
}

static const char *name(void) {
    static char names[2][16];
    static int next;
    char *text = names[next++ % 2];
    uint64_t number = below(NAMES);
    snprintf(text, sizeof *names, number % 2 ? "d/n%d" : "n%d", (int)(number / 2));
    return text;
}

static size_t some_bytes(void) {
    size_t len = 1 + below(below(4) ? 300 : ROOM);
    pattern_fill(bytes, next_random(&chance), 0, len);
    return len;
}

static void open_something(void) {
    static const int modes[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_APPEND, O_RDWR | O_TRUNC, O_RDWR | O_EXCL};
    static const int kinds[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    int fds[2], kind;
    int one = channels % CHANNELS, two = (channels + 1) % CHANNELS;
    sigset_t set;
    switch (below(9)) {
    case 0 ... 2: keep("open", open(name(), O_CREAT | O_CLOEXEC | modes[below(6)], 0640), REGULAR, 0, 0); break;
    case 3: keep("open directory", open(below(2) ? "." : "d", O_RDONLY | O_DIRECTORY), DIRECTORY, 0, 0); break;
    case 4:
        CHECK(!pipe2(fds, O_NONBLOCK | (below(2) ? O_CLOEXEC : 0)), "pipe2");
        channels += 2, waiting[one] = 0;
        keep("pipe", fds[0], PIPE_IN, one, 0), keep("pipe", fds[1], PIPE_OUT, 0, one);
        break;
    case 5:
        kind = kinds[below(3)];
        CHECK(!socketpair(AF_UNIX, kind | SOCK_NONBLOCK, 0, fds), "socketpair");
        channels += 2, waiting[one] = waiting[two] = 0;
        keep("socketpair", fds[0], kind == SOCK_STREAM ? STREAM : PACKETS, one, two);
        keep("socketpair", fds[1], kind == SOCK_STREAM ? STREAM : PACKETS, two, one);
        break;
    case 6: keep("eventfd", eventfd((unsigned)below(9), EFD_NONBLOCK | (below(2) ? EFD_SEMAPHORE : 0)), EVENT, 0, 0); break;
    case 7:
        sigemptyset(&set), sigaddset(&set, SIGUSR1), sigaddset(&set, SIGRTMIN + 1);
        keep("signalfd", signalfd(-1, &set, SFD_NONBLOCK), SIGNALS, 0, 0);
        break;
    case 8: keep("epoll_create1", epoll_create1(EPOLL_CLOEXEC), POLL, 0, 0); break;
    }
}

static void close_something(void) {
    struct slot *s = slot_of(0);
    if (!s) return;
    for (int i = 0; i < SLOTS; i++) // an entry that outlives its number is for other tests
        if (slots[i].kind == POLL && s->kind != REGULAR) epoll_ctl(slots[i].fd, EPOLL_CTL_DEL, s->fd, NULL);
    // Packets unread on both sides are refused by name, so an end is emptied first.
    while (s->kind == PACKETS && recv(s->fd, bytes, ROOM, 0) > 0) {}
    say("close", close(s->fd));
    s->kind = NONE;
}

static void write_something(struct slot *s) {
    if (s->out && waiting[s->out] >= MOST_WAITING) return;
    size_t len = some_bytes();
    uint64_t number = 1 + below(5);
    struct iovec parts[2] = {{bytes, len / 3}, {bytes + len / 3, len - len / 3}};
    if (s->kind == EVENT) memcpy(bytes, &number, len = 8);
    if (s->kind == STREAM || s->kind == PACKETS || s->kind == PIPE_OUT) waiting[s->out]++;
    switch (s->kind) {
    case REGULAR:
        switch (below(3)) {
        case 0: say("pwrite", pwrite(s->fd, bytes, len, (off_t)below(50000))); return;
        case 1: say("writev", writev(s->fd, parts, 2)); return;
        case 2: say("write", write(s->fd, bytes, len)); return;
        }
        return;
    case STREAM:
    case PACKETS: say("send", send(s->fd, bytes, len, MSG_NOSIGNAL)); return;
    default: say("write", write(s->fd, bytes, len)); return;
    }
}

static void read_something(struct slot *s) {
    size_t len = 1 + below(ROOM);
    struct signalfd_siginfo info;
    long got;
    switch (s->kind) {
    case REGULAR:
        if (below(2)) say_bytes("pread", pread(s->fd, bytes, len, (off_t)below(50000)));
        else say_bytes("read", read(s->fd, bytes, len));
        return;
    case STREAM:
    case PACKETS:
    case PIPE_IN:
        got = say_bytes("read", read(s->fd, bytes, s->kind == PACKETS ? ROOM : len));
        if (got < 0) waiting[s->in] = 0;
        return;
    case SIGNALS:
        got = read(s->fd, &info, sizeof info);
        say("read a signal", got < 0 ? got : (long)(info.ssi_signo * 1000 + (unsigned)info.ssi_int));
        return;
    case POLL: {
        struct epoll_event events[SLOTS * 2];
        int count = epoll_wait(s->fd, events, SLOTS * 2, 0);
        uint64_t all = 0;
        for (int i = 0; i < count; i++) all += fold(events[i].data.u64, events[i].events); // in any order
        digest = fold(digest, all);
        say("epoll_wait", count);
        return;
    }
    default: say_bytes("read", read(s->fd, bytes, len)); return;
    }
}

static void look_at(struct slot *s) {
    struct stat st;
    int count = 0;
    switch (below(5)) {
    case 0:
        CHECK(!fstat(s->fd, &st), "fstat");
        // Not its links: a name that was removed counts until the next checkpoint (docs/guarantees.md).
        say("fstat", s->kind == REGULAR ? (long)st.st_size : (long)(st.st_mode & S_IFMT));
        return;
    case 1: say("F_GETFL", fcntl(s->fd, F_GETFL)); return;
    case 2: say("F_GETFD", fcntl(s->fd, F_GETFD)); return;
    case 3:
        if (s->kind == REGULAR || s->kind == STREAM || s->kind == PIPE_IN) say("FIONREAD", ioctl(s->fd, FIONREAD, &count) ? -1 : count);
        return;
    case 4:
        if (s->kind == REGULAR) {
            say("FIGETBSZ", ioctl(s->fd, _IO(0, 2), &count) ? -1 : count); // linux/fs.h
            return;
        }
        struct pollfd asked = {.fd = s->fd, .events = POLLIN | POLLRDHUP};
        poll(&asked, 1, 0);
        say("poll", asked.revents);
        return;
    }
}

static void change(struct slot *s) {
    struct slot *other = slot_of(0);
    switch (below(7)) {
    case 0: keep("dup", fcntl(s->fd, F_DUPFD_CLOEXEC, 10 + (int)below(200)), s->kind, s->in, s->out); return;
    case 1: say("F_SETFD", fcntl(s->fd, F_SETFD, below(2) ? FD_CLOEXEC : 0)); return;
    case 2:
        if (s->kind == REGULAR) say("lseek", lseek(s->fd, (off_t)below(60000) - 5000, (int)below(3)));
        return;
    case 3:
        if (s->kind == REGULAR) say("ftruncate", ftruncate(s->fd, (off_t)below(60000)));
        return;
    case 4:
        if (s->kind == STREAM) say("shutdown", shutdown(s->fd, (int)below(3)));
        return;
    case 5:
        for (int i = 0; i < SLOTS; i++)
            if (slots[i].kind == POLL && other->kind != POLL && other->kind != REGULAR && other->kind != DIRECTORY) {
                struct epoll_event event = {.events = (below(2) ? EPOLLIN : EPOLLOUT) | EPOLLRDHUP, .data.u64 = made};
                int how = below(3) ? EPOLL_CTL_ADD : below(2) ? EPOLL_CTL_MOD : EPOLL_CTL_DEL;
                say("epoll_ctl", epoll_ctl(slots[i].fd, how, other->fd, &event));
            }
        return;
    case 6:
        if (s->kind == REGULAR) say("fallocate", fallocate(s->fd, (int)below(2) * FALLOC_FL_KEEP_SIZE, (off_t)below(30000), 1 + (off_t)below(30000)));
        return;
    }
}

static void change_names(void) {
    const char *one = name(), *other = name();
    struct timespec times[2] = {{1000, 5}, {(time_t)below(100000), 7}};
    struct stat st;
    switch (below(9)) {
    case 0: say("unlink", unlink(one)); return;
    case 1: say("rename", rename(one, other)); return;
    case 2: say("link", link(one, other)); return;
    case 3: say("symlink", symlink(one, other)); return;
    case 4: say("fchmodat2", syscall(452, AT_FDCWD, one, 0600 | below(64), below(2) * AT_EMPTY_PATH)); return;
    case 5: say("utimens", utimensat(AT_FDCWD, one, times, (int)below(2) * AT_EMPTY_PATH)); return;
    case 6: say("truncate", truncate(one, (off_t)below(40000))); return;
    case 7: say("lstat", lstat(one, &st) ? -1 : (long)(S_ISLNK(st.st_mode) ? 1 : st.st_size * 8 + (st.st_mode & 7))); return;
    case 8: say_bytes("readlink", readlink(one, (char *)bytes, 64)); return;
    }
}

static void change_process(void) {
    sigset_t set;
    struct sigaction action = {.sa_flags = (int)below(2) * SA_RESTART};
    int value = 0;
    switch (below(6)) {
    case 0: say("umask", (long)umask((mode_t)below(64))); return;
    case 1: {
        union sigval value_sent = {.sival_int = (int)below(1000)};
        static int sent;
        if (sent++ < 200) say("sigqueue", sigqueue(getpid(), below(2) ? SIGUSR1 : SIGRTMIN + 1, value_sent));
        return;
    }
    case 2: sigpending(&set), say("sigpending", sigismember(&set, SIGUSR1) * 2 + sigismember(&set, SIGRTMIN + 1)); return;
    case 3:
        sigaction(SIGUSR2, NULL, &action);
        say("sigaction", action.sa_flags & SA_RESTART ? 1 : 0);
        action.sa_handler = SIG_IGN, action.sa_flags = (int)below(2) * SA_RESTART;
        sigaction(SIGUSR2, &action, NULL);
        return;
    case 4:
        say("subreaper", prctl(PR_GET_CHILD_SUBREAPER, &value) ? -1 : value);
        prctl(PR_SET_CHILD_SUBREAPER, (long)below(2));
        return;
    case 5: say("chdir", chdir(below(2) ? "." : "../.") ? -1 : chdir(getenv("HERE"))); return;
    }
}

static int probe[2]; // a pipe: a write to it reads memory

// Linux 6.16 and later say which pages are guards, and only there they are captured.
static int knows_guards(void) {
    struct utsname system;
    int major = 0, minor = 0;
    CHECK(!uname(&system) && sscanf(system.release, "%d.%d", &major, &minor) == 2, "uname");
    return major > 6 || (major == 6 && minor >= 16);
}

static void change_memory(void) {
    unsigned char **map = &maps[below(MAPS)];
    size_t at = below(PAGES) * PAGE, len = (1 + below(PAGES - at / PAGE)) * PAGE;
    if (!*map) {
        *map = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(*map != MAP_FAILED, "mmap");
    }
    enum { GUARD_INSTALL = 102, GUARD_REMOVE };
    switch (below(8)) {
    case 7: // guarded for a while, and empty afterwards
        if (!knows_guards()) break;
        say("guard", madvise(*map + at, len, GUARD_INSTALL));
        for (volatile int spin = 0; spin < 4000000; spin++) {}
        say("read a guard", write(probe[1], *map + at + below(len), 1));
        say("no guard", madvise(*map + at, len, GUARD_REMOVE));
        break;
    case 0 ... 2: pattern_fill(*map + at, next_random(&chance), 0, 1 + below(len)); break;
    case 3: say("madvise", madvise(*map + at, len, MADV_DONTNEED)); break;
    case 4: say("mprotect", mprotect(*map + at, len, PROT_READ) | mprotect(*map + at, len, PROT_READ | PROT_WRITE)); break;
    case 5: say("mlock", mlock(*map + at, len) | munlock(*map + at, len)); break;
    case 6:
        say("munmap", munmap(*map, PAGES * PAGE));
        *map = NULL;
        return;
    }
    digest = fold_bytes(digest, *map, PAGES * PAGE);
    say("memory", 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 3, "usage: random_calls SEED CALLS");
    chance = strtoull(argv[1], NULL, 10);
    char here[4096];
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR1), sigaddset(&set, SIGRTMIN + 1);
    signal(SIGPIPE, SIG_IGN);
    CHECK(!sigprocmask(SIG_BLOCK, &set, NULL) && !mkdir("d", 0700), "begin");
    CHECK(!pipe2(probe, O_NONBLOCK | O_CLOEXEC), "pipe2");
    CHECK(getcwd(here, sizeof here) && !setenv("HERE", here, 1), "getcwd");
    for (long calls = atol(argv[2]); made < calls; made++) {
        struct slot *s = slot_of(0);
        uint64_t what = below(100);
        if (what < 12 || !s) open_something();
        else if (what < 20) close_something();
        else if (what < 42) { if (s->kind != DIRECTORY && s->kind != PIPE_IN && s->kind != SIGNALS && s->kind != POLL) write_something(s); }
        else if (what < 62) { if (s->kind != PIPE_OUT && s->kind != DIRECTORY) read_something(s); }
        else if (what < 70) look_at(s);
        else if (what < 80) change(s);
        else if (what < 88) change_names();
        else if (what < 93) change_process();
        else change_memory();
        if (made % 64 == 0) fflush(stdout);
        for (volatile int spin = 0; spin < 40000; spin++) {}
    }
    puts("done");
    return 0;
}
