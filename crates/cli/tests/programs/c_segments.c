// System V shared memory: segments found by their key and by their number, attached in many processes, here and there,
// for reading only; some that nothing has attached for a while, and removed ones that live on with their attachments.
// Usage: c_segments ROUNDS
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KEY = 0x7477, WORKERS = 3, PAGES = 5, BYTES = PAGES * 4096 - 100, KEPT = 3 };

struct shared {
    volatile uint64_t round, sums[WORKERS];
    unsigned char bytes[BYTES - 64];
};

static uint64_t attachments(int id) {
    struct shmid_ds status;
    CHECK(!shmctl(id, IPC_STAT, &status), "IPC_STAT of %d", id);
    CHECK(status.shm_segsz == BYTES || status.shm_segsz == 4096, "%zu bytes", status.shm_segsz);
    return status.shm_nattch;
}

// Finds the segment by its key each time, at another place, and writes its part of it.
static void work(int which, int go, int done) {
    char byte;
    while (read(go, &byte, 1) == 1) {
        int id = shmget(KEY, 100, 0600);
        CHECK(id >= 0, "find the segment");
        struct shared *shared = shmat(id, (void *)(0x700000000000 + which * 0x1000000L), 0);
        CHECK(shared == (void *)(0x700000000000 + which * 0x1000000L), "attach it: %p", (void *)shared);
        uint64_t chance = shared->round * 8 + which + 1, sum = 0;
        for (int i = which; i < (int)sizeof shared->bytes; i += WORKERS) {
            if (next_random(&chance) % 64 == 0) shared->bytes[i] += (unsigned char)chance;
            sum = fold(sum, shared->bytes[i]);
        }
        shared->sums[which] = sum;
        // Part of it may go before the rest is detached.
        if (shared->round % 3 == 0) CHECK(!munmap((char *)shared + 4096, 4096), "munmap");
        if (shared->round % 4 == 1) CHECK(!mprotect((char *)shared + 8192, 4096, PROT_READ), "mprotect");
        CHECK(!shmdt(shared) && shmdt(shared) == -1 && errno == EINVAL, "detach it");
        CHECK(write(done, &byte, 1) == 1, "answer");
    }
    _exit(0);
}

// A private segment, removed at once, with a value that a child which inherits it changes.
static uint64_t removed_one(uint64_t round) {
    int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
    volatile uint64_t *own = shmat(id, NULL, 0);
    CHECK(id >= 0 && own != (void *)-1 && !*own, "a private segment");
    CHECK(!shmctl(id, IPC_RMID, NULL) && attachments(id) == 1, "remove it");
    *own = round;
    pid_t child = fork();
    if (!child) {
        CHECK(attachments(id) == 2, "%lu attachments", attachments(id));
        spin(1, 30000);
        *own = *own * 3 + 1;
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "a child ends with %x", status);
    uint64_t found = *own;
    CHECK(found == round * 3 + 1, "%lu after round %lu", found, round);
    CHECK(!shmdt((void *)own), "detach it");
    CHECK(shmat(id, NULL, 0) == (void *)-1 && errno == EINVAL, "it is there after its end");
    return found;
}

// Each is attached only now and then; what is in it stays meanwhile.
static uint64_t kept_one(const int kept[KEPT], uint64_t round) {
    int id = kept[round % KEPT];
    CHECK(attachments(id) == 0, "%lu attachments", attachments(id));
    uint64_t *own = shmat(id, NULL, 0);
    CHECK(own != (void *)-1, "attach a kept segment");
    CHECK(own[1] == (round < KEPT ? 0 : round - KEPT + 1), "round %lu finds %lu", round, own[1]);
    own[0] = fold(own[0], round);
    own[1] = round + 1;
    uint64_t found = own[0];
    uint64_t *read_only = shmat(id, NULL, SHM_RDONLY);
    CHECK(read_only != (void *)-1 && read_only[0] == found && attachments(id) == 2, "attach it for reading");
    CHECK(mprotect(read_only, 4096, PROT_READ | PROT_WRITE) == -1 && errno == EACCES, "it became writable");
    CHECK(!shmdt(read_only) && !shmdt(own), "detach it");
    return found;
}

// A segment is in the list of all, and counted. Alone, there may be others of the machine.
static void is_listed(int id, size_t bytes) {
    struct shm_info all;
    struct shminfo limits;
    int highest = shmctl(0, SHM_INFO, (struct shmid_ds *)&all), found = 0;
    CHECK(highest >= 0 && all.used_ids > 0 && all.shm_tot * 4096 >= bytes, "SHM_INFO: %d are there", all.used_ids);
    CHECK(shmctl(0, IPC_INFO, (struct shmid_ds *)&limits) >= 0 && limits.shmmin == 1, "IPC_INFO");
    for (int index = 0; index <= highest; index++) {
        struct shmid_ds status;
        if (shmctl(index, SHM_STAT, &status) != id) continue;
        found++;
        CHECK(status.shm_segsz == bytes, "a listed segment of %zu bytes", (size_t)status.shm_segsz);
    }
    CHECK(found == 1, "a segment is listed %d times", found);
}

static void errors(int id) {
    CHECK(shmget(KEY, BYTES, IPC_CREAT | IPC_EXCL | 0600) == -1 && errno == EEXIST, "it is new");
    CHECK(shmget(KEY, BYTES + 1, 0) == -1 && errno == EINVAL, "it is longer");
    CHECK(shmget(KEY + 1, 10, 0) == -1 && errno == ENOENT, "another is there");
    CHECK(shmget(KEY + 1, 0, IPC_CREAT) == -1 && errno == EINVAL, "an empty one is made");
    CHECK(shmat(id + 1000, NULL, 0) == (void *)-1 && errno == EINVAL, "another number");
    CHECK(shmat(id, (void *)4097, 0) == (void *)-1 && errno == EINVAL, "an odd place");
    CHECK(shmat(id, (void *)errors, SHM_RND) == (void *)-1 && errno == EINVAL, "a place that is taken");
    CHECK(shmdt((void *)&id) == -1 && errno == EINVAL, "it was attached to the stack");
    CHECK(shmctl(id, IPC_STAT, (void *)1) == -1 && errno == EFAULT, "a status for nowhere");
}

int main(int argc, char **argv) {
    long rounds = scale(argc, argv, 60);
    int go[WORKERS], done[2], kept[KEPT];
    int id = shmget(KEY, BYTES, IPC_CREAT | 0600);
    CHECK(id >= 0 && !pipe(done), "begin");
    for (int i = 0; i < KEPT; i++) CHECK((kept[i] = shmget(IPC_PRIVATE, 4096, 0600)) >= 0, "a segment");
    errors(id);
    for (int i = 0; i < WORKERS; i++) {
        int ends[2];
        CHECK(!pipe(ends), "a pipe");
        if (!fork()) {
            for (int k = 0; k < i; k++) close(go[k]);
            close(ends[1]);
            work(i, ends[0], done[1]);
        }
        close(ends[0]);
        go[i] = ends[1];
    }
    struct shared *shared = shmat(id, NULL, 0);
    CHECK(shared != (void *)-1, "attach it");
    uint64_t digest = 0;
    for (long round = 0; round < rounds; round++) {
        shared->round = (uint64_t)round;
        char byte = 0;
        for (int i = 0; i < WORKERS; i++) CHECK(write(go[i], &byte, 1) == 1, "ask a worker");
        for (int i = 0; i < WORKERS; i++) CHECK(read(done[0], &byte, 1) == 1, "an answer");
        for (int i = 0; i < WORKERS; i++) digest = fold(digest, shared->sums[i]);
        digest = fold_bytes(digest, shared->bytes, sizeof shared->bytes);
        digest = fold(digest, removed_one((uint64_t)round) + kept_one(kept, (uint64_t)round));
        CHECK(attachments(id) == 1, "%lu attachments", attachments(id));
        is_listed(id, BYTES);
        is_listed(kept[round % KEPT], 4096);
        printf("round %ld %016llx\n", round, (unsigned long long)digest);
        fflush(stdout);
    }
    for (int i = 0; i < WORKERS; i++) {
        int status;
        close(go[i]);
        CHECK(wait(&status) > 0 && status == 0, "a worker ends with %x", status);
    }
    CHECK(!shmctl(id, IPC_RMID, NULL) && !shmdt(shared), "remove it");
    CHECK(shmget(KEY, BYTES, 0) == -1 && errno == ENOENT, "it has its key still");
    for (int i = 0; i < KEPT; i++) CHECK(!shmctl(kept[i], IPC_RMID, NULL), "remove a segment");
    printf("done\n");
    return 0;
}
