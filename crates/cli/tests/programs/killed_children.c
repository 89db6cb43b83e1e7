// Children, with threads and children of their own, make watched calls of every kind, and are killed by their parent at
// any instant. Usage: killed_children TIMES SEED
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 3, PART = 1 << 16 };

// Calls may fail here: what is tested is that nothing else does. Names belong to a thread.
static __thread uint64_t chance;
static __thread char name[32], other[32];

static void give_back(void *at, size_t bytes) {
    if (at == MAP_FAILED) return;
    *(volatile char *)at = 1;
    munmap(at, bytes);
}

static void two(const int *ends) {
    if (write(ends[1], name, 5) == 5) (void)!read(ends[0], other, 5);
    close(ends[0]), close(ends[1]);
}

static void a_file(void) {
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    (void)!write(file, name, sizeof name);
    chmod(name, 0640), flock(file, LOCK_EX);
    close(file);
}
static void a_mapped_file(void) {
    int file = open(name, O_RDWR | O_CREAT, 0600);
    if (!ftruncate(file, PART)) give_back(mmap(NULL, PART, PROT_WRITE, MAP_SHARED, file, 0), PART);
    close(file);
}
static void names(void) {
    rename(name, other), link(other, name), unlink(other), unlink(name);
    mkdir(name, 0700), rmdir(name);
}
static void shared_memory(void) {
    give_back(mmap(NULL, PART, PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), PART);
}
static void memory_that_moves(void) {
    char *at = mmap(NULL, PART, PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at != MAP_FAILED) at = mremap(at, PART, 16 * PART, MREMAP_MAYMOVE);
    give_back(at, 16 * PART);
}
static void a_memfd(void) {
    int file = memfd_create("file", MFD_ALLOW_SEALING);
    if (!ftruncate(file, PART)) fcntl(file, F_ADD_SEALS, F_SEAL_GROW);
    close(file);
}
static void a_segment(void) {
    int segment = shmget(IPC_PRIVATE, PART, 0600);
    void *at = shmat(segment, NULL, 0);
    if (at != (void *)-1) shmdt(at);
    shmctl(segment, IPC_RMID, NULL);
}
static void a_semaphore(void) {
    int set = semget(IPC_PRIVATE, 1, 0600);
    struct sembuf up = {.sem_op = 1};
    semop(set, &up, 1), semctl(set, 0, IPC_RMID);
}
static void a_pipe(void) {
    int ends[2];
    if (!pipe(ends)) two(ends);
}
static void a_pair(void) {
    int ends[2], bytes = PART;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return;
    setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    two(ends);
}
static void a_named_socket(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, other);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    bind(listener, (struct sockaddr *)&address, sizeof address), listen(listener, 3);
    connect(client, (struct sockaddr *)&address, sizeof address);
    close(client), close(listener), unlink(other);
}
static void a_poll(void) {
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(0), counter = eventfd(1, 0);
    epoll_ctl(epoll, EPOLL_CTL_ADD, counter, &event), epoll_wait(epoll, &event, 1, 0);
    close(counter), close(epoll);
}
static void a_timer(void) {
    struct itimerspec soon = {.it_value = {0, 1000}};
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    timerfd_settime(timer, 0, &soon, NULL), close(timer);
}
static void a_watch(void) {
    int watch = inotify_init1(0);
    inotify_add_watch(watch, ".", IN_CREATE), close(watch);
}
static void itself(void) { prctl(PR_SET_NAME, name), setpgid(0, 0); }
static void a_child(void) {
    pid_t child = fork();
    if (!child) a_mapped_file(), shared_memory(), _exit(0);
    if (child > 0) waitpid(child, NULL, 0);
}
static void a_program(void) {
    pid_t child = vfork();
    if (!child) execl("/bin/true", "true", NULL), _exit(1);
    if (child > 0) waitpid(child, NULL, 0);
}

static void (*const acts[])(void) = {
    a_file,  a_mapped_file, names,  shared_memory,  memory_that_moves, a_memfd, a_segment, a_semaphore,
    a_pipe,  a_pair,        a_poll, a_named_socket, a_timer,           a_watch, itself,    a_child,
    a_program,
};

static void *act(void *seed) {
    chance = (uint64_t)seed;
    long own = syscall(SYS_gettid);
    snprintf(name, sizeof name, "n%ld", own), snprintf(other, sizeof other, "o%ld", own);
    for (;;) acts[next_random(&chance) % (sizeof acts / sizeof *acts)]();
    return NULL;
}

static pid_t begin(uint64_t seed) {
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child) return child;
    for (uint64_t more = seed % 3; more; more--) {
        pthread_t thread;
        CHECK(!pthread_create(&thread, NULL, act, (void *)(seed + more)), "pthread_create");
    }
    act((void *)seed);
    _exit(1);
}

int main(int count, char **arguments) {
    CHECK(count == 3, "killed_children TIMES SEED");
    long times = atol(arguments[1]);
    chance = strtoull(arguments[2], NULL, 10);
    for (long i = 0; i < times; i++) {
        pid_t children[CHILDREN];
        for (int each = 0; each < CHILDREN; each++) children[each] = begin(next_random(&chance));
        struct timespec later = {0, next_random(&chance) % 20000000};
        nanosleep(&later, NULL);
        for (int each = 0; each < CHILDREN; each++) {
            int status;
            CHECK(!kill(children[each], SIGKILL), "kill");
            CHECK(waitpid(children[each], &status, 0) == children[each], "waitpid");
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "it ended with %x", status);
        }
    }
    printf("%ld children were killed\n", times * CHILDREN);
}
