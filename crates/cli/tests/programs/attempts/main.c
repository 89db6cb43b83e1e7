// One attempt at a thing that is hard to carry over: a program asks the kernel for it, uses it for a
// while, and checks that it still has it.
//
// Alone, an attempt prints its steps and ends with "fine". Under twinpage it must do the very same, kills
// and all, or be refused by name when it happens. Where this machine itself does not allow it, it ends
// with code 77. Usage: attempts NAME [STEPS]; without a name it lists them.
#include "attempts.h"

#include <sys/mman.h>

long steps = 40;
unsigned char *page;
int fd = -1, other = -1;

void step(long i, uint64_t word) {
    printf("step %ld: %016llx\n", i, (unsigned long long)fold(word, spin((uint64_t)i + 1, 4000000)));
    fflush(stdout);
}

void use_page(void) {
    uint64_t seed = 1;
    pattern_fill(page, seed, 0, 4096);
    FOR_A_WHILE {
        pattern_check(page, seed, 0, 4096, "page");
        pattern_fill(page, ++seed, 0, 4096);
        step(i, seed);
    }
}

void use_pair(int in, int out) {
    uint64_t sent = 1, got = 0;
    CHECK(write(in, &sent, 8) == 8, "write");
    FOR_A_WHILE {
        CHECK(read(out, &got, 8) == 8 && got == sent, "read %llu", (unsigned long long)got);
        sent++;
        CHECK(write(in, &sent, 8) == 8, "write");
        step(i, got);
    }
}

void map_page(int prot, int flags, int of) {
    page = mmap(NULL, 4096, prot, flags, of, 0);
    NEED(page != MAP_FAILED);
}

int page_file(void) {
    int file = open("attempt.page", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0 && !ftruncate(file, 4096), "create a file");
    return file;
}

static const struct {
    const char *name;
    void (*attempt)(void);
} attempts[] = {
    {"aio", kernel_aio},
    {"change-user", change_user},
    {"clone3", do_clone3},
    {"copied-ranges", copied_ranges},
    {"deleted-file", deleted_file},
    {"device", device},
    {"droppable", droppable},
    {"exec", do_exec},
    {"file-attributes", file_attributes},
    {"file-lock", file_lock},
    {"fork", do_fork},
    {"gs-base", own_base},
    {"inotify", watch_files},
    {"int80", call_by_int80},
    {"io-uring", io_uring},
    {"landlock", landlock},
    {"ldt", local_segments},
    {"links", hard_and_symbolic_links},
    {"listen", socket_listen},
    {"membarrier", barrier_registered},
    {"memfd", memory_file},
    {"mlock", locked_page},
    {"mlockall", locked_future},
    {"mq", posix_messages},
    {"msgget", sysv_messages},
    {"named-pipe", named_pipe},
    {"perf-event", performance_counter},
    {"personality", no_random_addresses},
    {"pidfd", process_descriptor},
    {"preallocated", preallocated},
    {"proc-file", proc_file},
    {"profiling-timer", processor_timer},
    {"protection-key", protection_key},
    {"ptrace", do_ptrace},
    {"seccomp", own_filter},
    {"secret-memory", secret_memory},
    {"semget", sysv_semaphore},
    {"session", session_leader},
    {"shared-anonymous", shared_anonymous},
    {"shared-file", shared_file_mapping},
    {"shared-made-writable", shared_made_writable},
    {"shmget", sysv_shared_memory},
    {"signalfd", signal_descriptor},
    {"socket-connect", socket_connect},
    {"socket-nowhere", socket_to_nowhere},
    {"socket-udp", socket_udp},
    {"socketpair", socket_pair},
    {"spawn", do_vfork},
    {"thread-unshare", thread_unshare},
    {"tiles", tiles},
    {"time-stamp", no_time_stamp},
    {"unnamed-file", unnamed_file},
    {"user-namespace", user_namespace},
    {"userfaultfd", fault_descriptor},
};

int main(int argc, char **argv) {
    size_t count = sizeof attempts / sizeof *attempts;
    for (size_t i = 0; argc == 1 && i < count; i++) puts(attempts[i].name);
    if (argc == 1) return 0;
    if (argc > 2) steps = atol(argv[2]);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(argv[1], attempts[i].name)) continue;
        attempts[i].attempt();
        puts("fine");
        return 0;
    }
    fprintf(stderr, "attempts: no attempt is called %s\n", argv[1]);
    return 2;
}
