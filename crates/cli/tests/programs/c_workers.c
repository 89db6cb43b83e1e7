// Workers that compute in memory of their own, which they check, and report over pipes; one of them executes this
// program anew. Ids, parents and what is on the way stay what they were. Usage: c_workers ROUNDS
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 3, BYTES = 512 << 10, PART = 4096, IN_FLIGHT = 8 };

struct task { uint64_t seed; uint32_t round, which; };
struct report { uint64_t digest; pid_t pid, parent; uint32_t round, which; };

static void write_all(int fd, const void *bytes, size_t len) {
    for (const char *at = bytes; len > 0;) {
        ssize_t n = write(fd, at, len);
        if (n < 0 && errno == EINTR) continue;
        CHECK(n > 0, "write of %zu", len);
        at += n, len -= (size_t)n;
    }
}

static int read_all(int fd, void *bytes, size_t len) {
    for (char *at = bytes; len > 0;) {
        ssize_t n = read(fd, at, len);
        if (n < 0 && errno == EINTR) continue;
        CHECK(n >= 0, "read of %zu", len);
        if (n == 0) return 0;
        at += n, len -= (size_t)n;
    }
    return 1;
}

static void be_worker(int in, int out, uint32_t which) {
    unsigned char *own = malloc(BYTES);
    uint64_t seeds[BYTES / PART];
    for (size_t i = 0; i < BYTES / PART; i++) {
        seeds[i] = which * 1000 + i;
        pattern_fill(own + i * PART, seeds[i], 0, PART);
    }
    pid_t self = getpid(), parent = getppid();
    struct task task;
    while (read_all(in, &task, sizeof task)) {
        CHECK(task.which == which, "a task of worker %u", task.which);
        CHECK(getpid() == self && getppid() == parent, "ids");
        uint64_t chance = task.seed, digest = task.seed;
        for (int i = 0; i < 40; i++) {
            size_t part = next_random(&chance) % (BYTES / PART);
            unsigned char *at = own + part * PART;
            for (size_t byte = 0; byte < PART; byte++)
                CHECK(at[byte] == pattern_byte(seeds[part], byte), "part %zu, byte %zu", part, byte);
            digest = fold_bytes(digest, at, PART);
            seeds[part] = next_random(&chance);
            pattern_fill(at, seeds[part], 0, PART);
        }
        struct report report = {digest, self, parent, task.round, which};
        write_all(out, &report, sizeof report);
    }
    exit(40 + (int)which);
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "worker") == 0)
        be_worker(atoi(argv[2]), atoi(argv[3]), (uint32_t)atoi(argv[4]));
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    int to[WORKERS], from[WORKERS];
    pid_t workers[WORKERS];
    for (uint32_t i = 0; i < WORKERS; i++) {
        int there[2], back[2];
        CHECK(pipe2(there, O_CLOEXEC) == 0 && pipe2(back, O_CLOEXEC) == 0, "pipes");
        workers[i] = fork();
        CHECK(workers[i] >= 0, "fork");
        if (workers[i] == 0) {
            for (uint32_t other = 0; other < i; other++) close(to[other]), close(from[other]);
            close(there[1]), close(back[0]);
            if (i == 1) {
                char in[16], out[16];
                fcntl(there[0], F_SETFD, 0), fcntl(back[1], F_SETFD, 0);
                snprintf(in, sizeof in, "%d", there[0]), snprintf(out, sizeof out, "%d", back[1]);
                execl("/proc/self/exe", argv[0], "worker", in, out, "1", NULL);
                CHECK(0, "exec");
            }
            be_worker(there[0], back[1], i);
        }
        close(there[0]), close(back[1]);
        to[i] = there[1], from[i] = back[0];
    }
    uint64_t chance = 7, digest = 0;
    for (int round = 0; round < rounds; round++) {
        int many = 1 + (int)(next_random(&chance) % IN_FLIGHT);
        for (int k = 0; k < many; k++)
            for (uint32_t i = 0; i < WORKERS; i++) {
                struct task task = {next_random(&chance), (uint32_t)(round * IN_FLIGHT + k), i};
                write_all(to[i], &task, sizeof task);
            }
        for (int k = 0; k < many; k++)
            for (uint32_t i = 0; i < WORKERS; i++) {
                struct report report;
                CHECK(read_all(from[i], &report, sizeof report), "worker %u is gone", i);
                CHECK(report.which == i && report.round == (uint32_t)(round * IN_FLIGHT + k), "its turn");
                CHECK(report.pid == workers[i] && report.parent == getpid(), "its ids");
                digest = fold(digest, report.digest);
            }
        CHECK(waitpid(-1, NULL, WNOHANG) == 0, "all workers live");
        if (round % 8 == 0) {
            printf("round %d: %016llx\n", round, (unsigned long long)digest);
            fflush(stdout);
        }
    }
    for (uint32_t i = 0; i < WORKERS; i++) close(to[i]);
    for (uint32_t i = 0; i < WORKERS; i++) {
        int status;
        CHECK(waitpid(workers[i], &status, 0) == workers[i], "worker %u", i);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 40 + (int)i, "worker %u ended with %x", i, status);
    }
    printf("end: %016llx\n", (unsigned long long)digest);
    return 0;
}
