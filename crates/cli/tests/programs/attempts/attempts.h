// What all attempts share: what to do where this machine does not allow one, and ways to use a thing for
// a while.
#ifndef TWINPAGE_TESTS_ATTEMPTS_H
#define TWINPAGE_TESTS_ATTEMPTS_H

#define _GNU_SOURCE
#include "../check.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

extern long steps;          // how long to use a thing
extern unsigned char *page; // the page some attempts are about
extern int fd, other;       // the descriptors some attempts are about

// What this machine does not allow cannot be tested on it.
#define NEED(works)                                                                    \
    do {                                                                               \
        if (!(works)) {                                                                \
            fprintf(stderr, "not on this machine: %s: %s\n", #works, strerror(errno)); \
            exit(77);                                                                  \
        }                                                                              \
    } while (0)

#define FOR_A_WHILE for (long i = 1; i <= steps; i++)

// Some milliseconds between two looks; prints, so that a resume has something to compare.
void step(long i, uint64_t word);

// A page keeps what it holds, and takes new content each step.
void use_page(void);

// Words written into one end come out of the other.
void use_pair(int in, int out);

// Maps `page`.
void map_page(int prot, int flags, int of);

// A new file of one page.
int page_file(void);

// ---- the attempts ----

void kernel_aio(void);
void change_user(void);
void do_clone3(void);
void copied_ranges(void);
void deleted_file(void);
void device(void);
void do_exec(void);
void file_attributes(void);
void file_lock(void);
void do_fork(void);
void own_base(void);
void watch_files(void);
void call_by_int80(void);
void io_uring(void);
void landlock(void);
void local_segments(void);
void hard_and_symbolic_links(void);
void socket_listen(void);
void barrier_registered(void);
void memory_file(void);
void locked_page(void);
void droppable(void);
void locked_future(void);
void posix_messages(void);
void sysv_messages(void);
void named_pipe(void);
void performance_counter(void);
void no_random_addresses(void);
void process_descriptor(void);
void preallocated(void);
void proc_file(void);
void processor_timer(void);
void protection_key(void);
void do_ptrace(void);
void own_filter(void);
void secret_memory(void);
void sysv_semaphore(void);
void session_leader(void);
void shared_anonymous(void);
void shared_file_mapping(void);
void shared_made_writable(void);
void sysv_shared_memory(void);
void signal_descriptor(void);
void socket_connect(void);
void socket_to_nowhere(void);
void socket_udp(void);
void socket_pair(void);
void do_vfork(void);
void thread_unshare(void);
void tiles(void);
void no_time_stamp(void);
void unnamed_file(void);
void user_namespace(void);
void fault_descriptor(void);

#endif
