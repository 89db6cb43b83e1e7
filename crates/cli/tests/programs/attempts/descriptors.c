// Descriptors of work inside the kernel: rings, watchers, counters.
#include "attempts.h"

#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>

void io_uring(void) {
    struct io_uring_params params = {0};
    fd = (int)syscall(SYS_io_uring_setup, 8, &params);
    NEED(fd >= 0);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQ_RING);
    CHECK(page != MAP_FAILED, "map the ring");
    FOR_A_WHILE {
        CHECK(*(uint32_t *)(page + params.sq_off.ring_entries) == params.sq_entries, "the ring is gone");
        step(i, 8);
    }
}

void kernel_aio(void) {
    aio_context_t context = 0;
    NEED(!syscall(SYS_io_setup, 4, &context));
    fd = page_file();
    static char bytes[512];
    FOR_A_WHILE {
        struct iocb block = {.aio_fildes = (uint32_t)fd, .aio_lio_opcode = IOCB_CMD_PWRITE,
                             .aio_buf = (uint64_t)bytes, .aio_nbytes = sizeof bytes};
        struct iocb *list = &block;
        struct io_event event;
        CHECK(syscall(SYS_io_submit, context, 1, &list) == 1, "io_submit");
        CHECK(syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1 && event.res == 512, "io_getevents");
        step(i, 9);
    }
}

void watch_files(void) {
    fd = inotify_init1(IN_CLOEXEC);
    NEED(fd >= 0 && inotify_add_watch(fd, ".", IN_CREATE) >= 0);
    FOR_A_WHILE {
        char bytes[512];
        int made = open("attempt.watched", O_WRONLY | O_CREAT | O_EXCL, 0600);
        CHECK(made >= 0 && !close(made), "create a file");
        CHECK(read(fd, bytes, sizeof bytes) > 0, "inotify");
        step(i, 17);
        CHECK(!unlink("attempt.watched"), "remove it");
    }
}

void signal_descriptor(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(!sigprocmask(SIG_BLOCK, &set, NULL), "sigprocmask");
    fd = signalfd(-1, &set, SFD_CLOEXEC);
    NEED(fd >= 0);
    FOR_A_WHILE {
        struct signalfd_siginfo info;
        CHECK(!raise(SIGUSR1), "raise");
        step(i, 18);
        CHECK(read(fd, &info, sizeof info) == sizeof info && info.ssi_signo == SIGUSR1, "signalfd");
    }
}

void process_descriptor(void) {
    fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    NEED(fd >= 0);
    FOR_A_WHILE {
        CHECK(!syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0), "pidfd_send_signal");
        step(i, 19);
    }
}

void performance_counter(void) {
    struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE, .size = sizeof attr, .config = PERF_COUNT_SW_DUMMY};
    fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
    NEED(fd >= 0);
    FOR_A_WHILE {
        uint64_t count;
        CHECK(read(fd, &count, 8) == 8, "perf_event");
        step(i, 20);
    }
}

void fault_descriptor(void) {
    fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */);
    NEED(fd >= 0);
    FOR_A_WHILE {
        CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC, "the descriptor is gone");
        step(i, 21);
    }
}
