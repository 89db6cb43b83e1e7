// System V semaphores and message queues: workers that wait for messages of their own type, and guard a sum with a
// semaphore that a worker's end gives back; waits with and without limits; a holder whose end undoes what it did; kept
// messages of several types; sets and queues that come and go.
// Usage: c_ipc ROUNDS
#define _GNU_SOURCE
#include "check.h"

#include <stdbool.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 3, ANSWER = 100, KEPT = 4, HOLDER_ROUNDS = 7 };
enum { GUARD, POSTS, HELD, SEMAPHORES };

struct message {
    long type;
    uint64_t word;
    char filling[200];
};

static int set, queue;
static key_t key; // of this process alone: others may run beside it
static volatile uint64_t *sum;

static int operate(int semaphore, int by, int flags) {
    struct sembuf operation = {(unsigned short)semaphore, (short)by, (short)flags};
    return semop(set, &operation, 1);
}

static int value(int semaphore) { return semctl(set, semaphore, GETVAL); }

static void put(int to, long type, uint64_t word, size_t filling) {
    struct message message = {type, word, ""};
    memset(message.filling, (int)word, sizeof message.filling);
    CHECK(!msgsnd(to, &message, 8 + filling, 0), "send a message");
}

static uint64_t take(int from, long type, size_t filling) {
    struct message message;
    ssize_t bytes = msgrcv(from, &message, sizeof message - sizeof(long), type, 0);
    CHECK(bytes == (ssize_t)(8 + filling) && message.type == type, "%zd bytes of type %ld", bytes, message.type);
    for (size_t i = 0; i < filling; i++)
        CHECK(message.filling[i] == (char)message.word, "byte %zu of a message is %d", i, message.filling[i]);
    return message.word;
}

static void work(int which) {
    for (;;) {
        uint64_t word = take(queue, which + 1, (size_t)which);
        if (!word) _exit(0);
        CHECK(!operate(GUARD, -1, SEM_UNDO), "take the guard");
        uint64_t before = *sum;
        spin(word, 20000);
        *sum = before + word;
        CHECK(!operate(GUARD, 1, SEM_UNDO), "give the guard back");
        CHECK(!operate(POSTS, -1, 0), "wait for a post");
        put(queue, ANSWER, word * 3, 0);
    }
}

// Ends with the guard: the next that waits for it gets it.
static void end_with_guard(void) {
    pid_t child = fork();
    if (!child) {
        CHECK(!operate(GUARD, -1, SEM_UNDO), "take the guard");
        put(queue, ANSWER + 2, 1, 0);
        spin(7, 30000);
        _exit(0);
    }
    take(queue, ANSWER + 2, 0);
    CHECK(!operate(GUARD, -1, 0) && !operate(GUARD, 1, 0), "take it after the end");
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "a child ends with %x", status);
    CHECK(value(GUARD) == 1, "the guard is %d", value(GUARD));
}

// Lives for some rounds, and then its end takes back what it added.
static pid_t holder;

static void hold(long round, bool is_last) {
    if (round % HOLDER_ROUNDS == 0) {
        holder = fork();
        if (!holder) {
            struct sembuf both[] = {{HELD, 9, SEM_UNDO}, {HELD, -4, SEM_UNDO}};
            CHECK(!semop(set, both, 2), "add to a semaphore");
            take(queue, ANSWER + 1, 0);
            _exit(0);
        }
        while (value(HELD) != 5) usleep(100);
    }
    CHECK(value(HELD) == 5, "the held one is %d", value(HELD));
    if (round % HOLDER_ROUNDS == HOLDER_ROUNDS - 1 || is_last) {
        bool is_set = round % (2 * HOLDER_ROUNDS) == HOLDER_ROUNDS - 1;
        if (is_set) CHECK(!semctl(set, HELD, SETVAL, 2), "set it, so that nothing is undone");
        put(queue, ANSWER + 1, 1, 0);
        int status;
        CHECK(waitpid(holder, &status, 0) == holder && status == 0, "the holder ends with %x", status);
        CHECK(value(HELD) == (is_set ? 2 : 0), "%d after the holder's end", value(HELD));
        CHECK(!semctl(set, HELD, SETVAL, 0), "set it back");
    }
}

static void wait_in_vain(void) {
    struct sembuf operation = {POSTS, -1, 0};
    struct timespec begin, end, limit = {0, 3000000};
    clock_gettime(CLOCK_MONOTONIC, &begin);
    CHECK(semtimedop(set, &operation, 1, &limit) == -1 && errno == EAGAIN, "nothing is posted");
    clock_gettime(CLOCK_MONOTONIC, &end);
    long waited = (end.tv_sec - begin.tv_sec) * 1000000000 + end.tv_nsec - begin.tv_nsec;
    CHECK(waited >= limit.tv_nsec, "%ld ns", waited);
    CHECK(operate(POSTS, -1, IPC_NOWAIT) == -1 && errno == EAGAIN, "nothing is posted");
    CHECK(msgrcv(queue, &operation, 0, 999, IPC_NOWAIT) == -1 && errno == ENOMSG, "a message of that type");
}

// Messages wait in it for some rounds; they leave it by type, and else in their order.
static uint64_t kept(int keeps, uint64_t round) {
    put(keeps, (long)(round % 3) + 1, round, (size_t)(round % 150));
    put(keeps, 9, round * 5, 0);
    uint64_t word = 0;
    if (round >= KEPT) {
        uint64_t then = round - KEPT;
        word = take(keeps, 9, 0);
        CHECK(word == then * 5, "%lu in round %lu", (unsigned long)word, (unsigned long)round);
        CHECK(take(keeps, (long)(then % 3) + 1, (size_t)(then % 150)) == then, "a kept message");
    }
    struct msqid_ds status;
    CHECK(!msgctl(keeps, IPC_STAT, &status), "IPC_STAT");
    CHECK(status.msg_qnum == 2 * (round < KEPT ? round + 1 : KEPT), "%lu messages", status.msg_qnum);
    CHECK(status.msg_qbytes == 9000 && (status.msg_perm.mode & 0777) == 0640, "%lu bytes", status.msg_qbytes);
    return word;
}

// A set and a queue with the numbers that they got are there from one round to the next.
static void come_and_go(long round, bool is_last) {
    static int last_set = -1, last_queue = -1;
    if (round > 0) {
        CHECK(semctl(last_set, 11, GETVAL) == round - 1, "the value is %d", semctl(last_set, 11, GETVAL));
        CHECK(semctl(last_set, 0, GETVAL) == 0 && !semctl(last_set, 0, IPC_RMID), "remove a set");
        CHECK(semctl(last_set, 0, GETVAL) == -1 && errno == EINVAL, "it is there still");
        CHECK(!msgctl(last_queue, IPC_RMID, NULL), "remove a queue");
    }
    if (is_last) return;
    last_set = semget(IPC_PRIVATE, 12, 0600);
    last_queue = msgget(key + 1, IPC_CREAT | IPC_EXCL | 0600);
    CHECK(last_set >= 0 && last_queue >= 0 && !semctl(last_set, 11, SETVAL, (int)round), "a new set and queue");
    CHECK(msgget(key + 1, 0) == last_queue, "find the queue by its key");
}

int main(int argc, char **argv) {
    long rounds = scale(argc, argv, 60);
    key = getpid() * 16;
    sum = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    set = semget(key, SEMAPHORES, IPC_CREAT | 0600);
    queue = msgget(key, IPC_CREAT | 0600);
    int keeps = msgget(IPC_PRIVATE, 0600);
    CHECK(sum != MAP_FAILED && set >= 0 && queue >= 0 && keeps >= 0, "begin");
    unsigned short values[SEMAPHORES] = {1, 0, 0};
    CHECK(!semctl(set, 0, SETALL, values), "set all");
    struct msqid_ds status;
    CHECK(!msgctl(keeps, IPC_STAT, &status), "IPC_STAT");
    status.msg_qbytes = 9000;
    status.msg_perm.mode = 0640;
    CHECK(!msgctl(keeps, IPC_SET, &status), "IPC_SET");
    CHECK(semget(key, SEMAPHORES + 1, 0) == -1 && errno == EINVAL, "a larger set");
    CHECK(semget(key + 1, 1, 0) == -1 && errno == ENOENT, "another set");
    pid_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        if (!(workers[i] = fork())) work(i);
    uint64_t digest = 0;
    for (long round = 0; round < rounds; round++) {
        for (int i = 0; i < WORKERS; i++) put(queue, i + 1, (uint64_t)round * 10 + (uint64_t)i + 1, (size_t)i);
        usleep(200);
        CHECK(!operate(POSTS, WORKERS, 0), "post");
        for (int i = 0; i < WORKERS; i++) digest += take(queue, ANSWER, 0);
        bool is_last = round == rounds - 1;
        hold(round, is_last);
        wait_in_vain();
        if (round % 4 == 0) end_with_guard();
        come_and_go(round, is_last);
        digest = fold(digest, *sum + kept(keeps, (uint64_t)round));
        printf("round %ld %016llx\n", round, (unsigned long long)digest);
        fflush(stdout);
    }
    for (int i = 0; i < WORKERS; i++) {
        int ended;
        put(queue, i + 1, 0, (size_t)i);
        CHECK(waitpid(workers[i], &ended, 0) == workers[i] && ended == 0, "a worker ends with %x", ended);
    }
    CHECK(!semctl(set, 0, IPC_RMID) && !msgctl(queue, IPC_RMID, NULL) && !msgctl(keeps, IPC_RMID, NULL), "remove all");
    printf("done\n");
    return 0;
}
