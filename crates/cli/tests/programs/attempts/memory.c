// Memory that is not the program's alone, or has marks of its own.
#include "attempts.h"

#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

void shared_file_mapping(void) {
    fd = page_file();
    map_page(PROT_READ | PROT_WRITE, MAP_SHARED, fd);
    use_page();
}

void shared_made_writable(void) {
    fd = page_file();
    map_page(PROT_READ, MAP_SHARED, fd);
    step(0, 1);
    NEED(!mprotect(page, 4096, PROT_READ | PROT_WRITE));
    use_page();
}

void shared_anonymous(void) {
    map_page(PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
    use_page();
}

void droppable(void) {
    map_page(PROT_READ | PROT_WRITE, 0x08 | MAP_ANONYMOUS, -1); // MAP_DROPPABLE
    use_page();
}

void sysv_shared_memory(void) {
    int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
    NEED(id >= 0);
    page = shmat(id, NULL, 0);
    shmctl(id, IPC_RMID, NULL);
    CHECK(page != (void *)-1, "shmat");
    use_page();
}

void sysv_semaphore(void) {
    int id = semget(IPC_PRIVATE, 1, IPC_CREAT | 0600);
    NEED(id >= 0);
    FOR_A_WHILE {
        struct sembuf up = {0, 1, SEM_UNDO};
        CHECK(!semop(id, &up, 1) && semctl(id, 0, GETVAL) == i, "the semaphore is %d", semctl(id, 0, GETVAL));
        step(i, 10);
    }
    semctl(id, 0, IPC_RMID);
}

void sysv_messages(void) {
    struct {
        long kind;
        uint64_t word;
    } message = {1, 0};
    int id = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
    NEED(id >= 0);
    FOR_A_WHILE {
        message.word = (uint64_t)i;
        CHECK(!msgsnd(id, &message, 8, 0) && msgrcv(id, &message, 8, 0, 0) == 8, "a message queue");
        step(i, message.word);
    }
    msgctl(id, IPC_RMID, NULL);
}

void posix_messages(void) {
    char name[32], bytes[16];
    snprintf(name, sizeof name, "/attempt-%d", getpid());
    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = sizeof bytes};
    mqd_t queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes);
    NEED(queue >= 0);
    mq_unlink(name);
    FOR_A_WHILE {
        CHECK(!mq_send(queue, "message", 8, 0), "mq_send");
        CHECK(mq_receive(queue, bytes, sizeof bytes, NULL) == 8 && !strcmp(bytes, "message"), "mq_receive");
        step(i, 11);
    }
}

void memory_file(void) {
    fd = memfd_create("attempt", 0);
    NEED(fd >= 0);
    CHECK(!ftruncate(fd, 4096), "ftruncate");
    map_page(PROT_READ | PROT_WRITE, MAP_SHARED, fd);
    use_page();
}

void secret_memory(void) {
    fd = (int)syscall(447 /* memfd_secret */, 0);
    NEED(fd >= 0 && !ftruncate(fd, 4096));
    map_page(PROT_READ | PROT_WRITE, MAP_SHARED, fd);
    use_page();
}

void protection_key(void) {
    map_page(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    int key = pkey_alloc(0, 0);
    NEED(key > 0);
    CHECK(!pkey_mprotect(page, 4096, PROT_READ | PROT_WRITE, key), "pkey_mprotect");
    use_page();
    CHECK(!pkey_set(key, PKEY_DISABLE_WRITE), "pkey_set");
    int ends[2];
    CHECK(!pipe(ends), "pipe");
    FOR_A_WHILE {
        CHECK(pkey_get(key) == PKEY_DISABLE_WRITE, "the key allows %d", pkey_get(key));
        CHECK(write(ends[1], "x", 1) == 1, "write");
        CHECK(read(ends[0], page, 1) == -1 && errno == EFAULT, "the page is protected by its key");
        CHECK(read(ends[0], &(char){0}, 1) == 1, "read");
        step(i, 12);
    }
    CHECK(pkey_alloc(0, 0) != key, "the key was forgotten");
}

// Whether pages are really locked is left open: what they hold is what counts.
void locked_page(void) {
    map_page(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    NEED(!mlock(page, 4096));
    use_page();
    CHECK(!munlock(page, 4096), "munlock");
}

void locked_future(void) {
    NEED(!mlockall(MCL_CURRENT | MCL_FUTURE));
    map_page(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    use_page();
    CHECK(!munlockall(), "munlockall");
}
