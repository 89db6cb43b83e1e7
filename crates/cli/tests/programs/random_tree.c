// Draws a tree of processes from a seed: they compute, make others by fork and by exec, talk over pipes, socket pairs and
// shared memory, ask them by signals that they handle wherever they are, stop, kill and wait for them, at once or late. Each says what it saw; nothing of that depends on time or ids.
// Usage: random_tree SEED STEPS
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEEPEST = 3, CHILDREN = 4, PAGES = 24, PAGE = 4096 };

// Memory that a child shares with its parent, who asks there by a signal.
struct board { sem_t answered; uint64_t question, answer, asked; };
struct child { pid_t pid; int from, to, says_first; struct board *board; }; // of a socket pair from is to

static const char *program;
static uint64_t chance, digest;
static struct child children[CHILDREN];
static uint64_t seeds[PAGES];
static unsigned char *memory;
static struct board *own; // with the parent
static int parent_in = -1, parent_out = -1, depth;

static uint64_t below(uint64_t n) { return next_random(&chance) % n; }

static void say(uint64_t word) { digest = fold(digest, word); }

static void put(int fd, uint64_t word) {
    CHECK(write(fd, &word, sizeof word) == sizeof word, "write");
}

static int get(int fd, uint64_t *word) {
    ssize_t n;
    while ((n = read(fd, word, sizeof *word)) < 0 && errno == EINTR) {}
    CHECK(n == 0 || n == sizeof *word, "read gives %zd", n);
    return n > 0;
}

static void compute(void) {
    for (uint64_t i = 0, many = 4 + below(16); i < many; i++) {
        uint64_t page = below(PAGES);
        unsigned char *at = memory + page * PAGE;
        for (size_t byte = 0; byte < PAGE; byte++)
            CHECK(at[byte] == pattern_byte(seeds[page], byte), "page %d, byte %zu", (int)page, byte);
        say(fold_bytes(1, at, PAGE));
        seeds[page] = next_random(&chance);
        pattern_fill(at, seeds[page], 0, PAGE);
    }
}

static void handle(int signal) {
    int before = errno;
    own->answer = fold(fold(own->question, ++own->asked), (uint64_t)signal);
    sem_post(&own->answered);
    errno = before;
}

static struct board *show(int file) {
    int flags = MAP_SHARED | (file < 0 ? MAP_ANONYMOUS : 0);
    void *board = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, flags, file, 0);
    CHECK(board != MAP_FAILED, "mmap");
    return board;
}

static void hear_questions(int how) {
    sigset_t asks;
    sigemptyset(&asks), sigaddset(&asks, SIGUSR1);
    CHECK(sigprocmask(how, &asks, NULL) == 0, "mask");
}

static void run(uint64_t steps);

static void begin_memory(void) {
    memory = malloc(PAGES * PAGE);
    for (int page = 0; page < PAGES; page++) pattern_fill(memory + page * PAGE, seeds[page] = (uint64_t)page, 0, PAGE);
}

// A child works for its steps, then says its digest, and does what its parent tells it by a word until the end.
static void live(uint64_t steps) {
    pid_t self = getpid(), parent = getppid();
    run(steps);
    put(parent_out, digest);
    for (uint64_t word; get(parent_in, &word);) {
        CHECK(getpid() == self && getppid() == parent, "ids");
        chance = word;
        compute();
        put(parent_out, digest);
    }
    _exit((int)(digest % 200));
}

// What the parent says goes into there[1] and comes out of there[0]; what the child says, through back.
static void open_ways(int there[2], int back[2]) {
    static const int kinds[] = {0, 0, SOCK_STREAM, SOCK_SEQPACKET};
    int kind = kinds[below(4)];
    if (kind == 0) {
        CHECK(pipe2(there, O_CLOEXEC) == 0 && pipe2(back, O_CLOEXEC) == 0, "pipes");
    } else {
        CHECK(socketpair(AF_UNIX, kind | SOCK_CLOEXEC, 0, there) == 0, "a pair");
        back[0] = there[1], back[1] = there[0];
    }
}

static void make(void) {
    struct child *child = NULL;
    for (int i = 0; i < CHILDREN && !child; i++)
        if (children[i].pid == 0) child = &children[i];
    if (!child || depth == DEEPEST) return compute();
    uint64_t seed = next_random(&chance), steps = 1 + below(6), kind = below(4);
    int there[2], back[2];
    open_ways(there, back);
    // One that executes a program has a name to find it by.
    int file = kind == 3 || below(2) ? memfd_create("board", 0) : -1;
    CHECK(file < 0 || ftruncate(file, sizeof(struct board)) == 0, "a board");
    struct board *board = show(file);
    CHECK(sem_init(&board->answered, 1, 0) == 0, "a semaphore");
    hear_questions(SIG_BLOCK); // none is asked before it knows where
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        for (int i = 0; i < CHILDREN; i++)
            if (children[i].pid)
                close(children[i].from), close(children[i].to), munmap(children[i].board, sizeof(struct board));
        if (parent_in >= 0) close(parent_in), close(parent_out);
        close(there[1]), close(back[0]);
        memset(children, 0, sizeof children);
        parent_in = there[0], parent_out = back[1], depth++;
        if (kind == 1) CHECK(setpgid(0, 0) == 0, "group");
        if (kind == 2) CHECK(setsid() == getpid(), "session");
        chance = seed, digest = 1;
        own = board;
        if (kind != 3) {
            if (file >= 0) close(file);
            hear_questions(SIG_UNBLOCK);
            live(steps);
        }
        char words[5][24];
        snprintf(words[0], 24, "%llu", (unsigned long long)seed);
        snprintf(words[1], 24, "%llu", (unsigned long long)steps);
        snprintf(words[2], 24, "%d", parent_in), snprintf(words[3], 24, "%d", parent_out);
        fcntl(parent_in, F_SETFD, 0), fcntl(parent_out, F_SETFD, 0);
        snprintf(words[4], 24, "%d", file);
        char deep[2] = {(char)('0' + depth), 0};
        execl(program, program, "child", words[0], words[1], words[2], words[3], words[4], deep, NULL);
        CHECK(0, "exec of %s", program);
    }
    hear_questions(SIG_UNBLOCK);
    close(there[0]), close(back[1]);
    if (file >= 0) close(file);
    *child = (struct child){.pid = pid, .from = back[0], .to = there[1], .board = board};
    uint64_t word;
    if (below(2)) {
        CHECK(get(child->from, &word), "its first word");
        say(word);
    } else child->says_first = 1; // its first word waits in the pipe
}

static struct child *any(void) {
    for (uint64_t i = below(CHILDREN), tried = 0; tried < CHILDREN; i = (i + 1) % CHILDREN, tried++)
        if (children[i].pid) return &children[i];
    return NULL;
}

static void hear_first(struct child *child) {
    uint64_t word;
    if (!child->says_first) return;
    CHECK(get(child->from, &word), "its first word");
    say(word);
    child->says_first = 0;
}

static void talk(struct child *child) {
    uint64_t word;
    hear_first(child);
    put(child->to, next_random(&chance));
    if (below(2)) compute();
    CHECK(get(child->from, &word), "its answer");
    say(word);
}

static void ask(struct child *child) {
    child->board->question = next_random(&chance);
    CHECK(kill(child->pid, SIGUSR1) == 0, "ask");
    if (below(2)) compute();
    while (sem_wait(&child->board->answered) < 0) CHECK(errno == EINTR, "an answer");
    say(child->board->answer);
}

static void stop(struct child *child) {
    int status;
    CHECK(kill(child->pid, SIGSTOP) == 0, "stop");
    CHECK(waitpid(child->pid, &status, WUNTRACED) == child->pid && WIFSTOPPED(status), "it stops");
    compute();
    CHECK(waitpid(child->pid, &status, WUNTRACED | WNOHANG) == 0, "it was told");
    CHECK(kill(child->pid, SIGCONT) == 0, "continue");
}

static void end(struct child *child, int signal) {
    int status;
    hear_first(child);
    if (signal) CHECK(kill(child->pid, signal) == 0, "kill");
    if (child->from == child->to) shutdown(child->to, SHUT_WR);
    else close(child->to);
    if (below(2)) {
        siginfo_t info;
        CHECK(waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOWAIT) == 0, "it ends");
        compute(); // a zombie meanwhile
    }
    CHECK(waitpid(child->pid, &status, 0) == child->pid, "wait");
    if (signal) CHECK(WIFSIGNALED(status) && WTERMSIG(status) == signal, "status %x", status);
    else CHECK(WIFEXITED(status), "status %x", status);
    say((uint64_t)(status & 0xff7f));
    close(child->from);
    munmap(child->board, sizeof(struct board));
    child->pid = 0;
}

static void run(uint64_t steps) {
    for (uint64_t step = 0; step < steps; step++) {
        uint64_t what = below(9);
        struct child *child = any();
        if (what < 2 || !child) make();
        else if (what < 4) talk(child);
        else if (what == 4) stop(child);
        else if (what == 8) ask(child);
        else if (what == 5) end(child, 0);
        else if (what == 6) end(child, below(2) ? SIGKILL : SIGTERM);
        else compute();
        if (depth == 0) {
            printf("step %d: %d, %016llx\n", (int)step, (int)what, (unsigned long long)digest);
            fflush(stdout);
        }
    }
    for (int i = 0; i < CHILDREN; i++)
        if (children[i].pid) end(&children[i], 0);
}

int main(int argc, char **argv) {
    program = argv[0];
    begin_memory();
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0, "a handler");
    if (argc == 8) {
        chance = strtoull(argv[2], NULL, 10), digest = 1;
        parent_in = atoi(argv[4]), parent_out = atoi(argv[5]), depth = atoi(argv[7]);
        own = show(atoi(argv[6]));
        close(atoi(argv[6]));
        hear_questions(SIG_UNBLOCK);
        live(strtoull(argv[3], NULL, 10));
    }
    CHECK(argc == 3, "SEED STEPS");
    chance = strtoull(argv[1], NULL, 10);
    run(strtoull(argv[2], NULL, 10));
    printf("end: %016llx\n", (unsigned long long)digest);
    return 0;
}
