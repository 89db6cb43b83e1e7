// What a process is allowed, and the modes its processor runs in.
#include "attempts.h"

#include <asm/prctl.h>
#include <linux/filter.h>
#include <linux/membarrier.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <time.h>

void own_filter(void) {
    struct sock_filter refuse_getppid[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EDOM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, refuse_getppid};
    NEED(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
    FOR_A_WHILE {
        CHECK(syscall(SYS_getppid) == -1 && errno == EDOM, "the filter is gone");
        step(i, 22);
    }
}

void landlock(void) {
    struct {
        uint64_t handled;
    } rules = {1 << 1 /* LANDLOCK_ACCESS_FS_WRITE_FILE */};
    fd = (int)syscall(444 /* landlock_create_ruleset */, &rules, sizeof rules, 0);
    NEED(fd >= 0 && !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !syscall(446 /* landlock_restrict_self */, fd, 0));
    FOR_A_WHILE {
        CHECK(open("attempt.page", O_WRONLY | O_CREAT, 0600) == -1 && errno == EACCES, "the restriction is gone");
        step(i, 23);
    }
}

void call_by_int80(void) {
    FOR_A_WHILE {
        long got = 20; // getpid of the 32-bit table
        __asm__ volatile("int $0x80" : "+a"(got) : : "r8", "r9", "r10", "r11", "memory");
        NEED(got == getpid());
        step(i, 24);
    }
}

void own_base(void) {
    static uint64_t words[8] = {0x1234};
    NEED(!syscall(SYS_arch_prctl, ARCH_SET_GS, words));
    FOR_A_WHILE {
        uint64_t got;
        __asm__ volatile("mov %%gs:0, %0" : "=r"(got));
        CHECK(got == words[0], "the GS base is gone");
        words[0] += 7;
        step(i, got);
    }
}

void local_segments(void) {
    struct {
        unsigned entry, base, limit;
        unsigned bits;
    } segment = {0, 0, 0xfffff, 1 /* seg_32bit */ | 1 << 4 /* limit_in_pages */ | 1 << 6 /* useable */};
    NEED(!syscall(SYS_modify_ldt, 1, &segment, sizeof segment));
    FOR_A_WHILE {
        unsigned char table[64];
        CHECK(syscall(SYS_modify_ldt, 0, table, sizeof table) > 0, "the local descriptor table is gone");
        step(i, 25);
    }
}

void no_random_addresses(void) {
    NEED(personality(ADDR_NO_RANDOMIZE) >= 0);
    FOR_A_WHILE {
        CHECK(personality(0xffffffff) & ADDR_NO_RANDOMIZE, "the personality is %x", personality(0xffffffff));
        step(i, 26);
    }
}

void no_time_stamp(void) {
    NEED(!prctl(PR_SET_TSC, PR_TSC_SIGSEGV));
    FOR_A_WHILE {
        int mode = 0;
        CHECK(!prctl(PR_GET_TSC, &mode) && mode == PR_TSC_SIGSEGV, "reading the time stamp counter is allowed");
        step(i, 27);
    }
}

void barrier_registered(void) {
    NEED(!syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0));
    FOR_A_WHILE {
        CHECK(!syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0), "membarrier");
        step(i, 28);
    }
}

// Tile registers hold 8 KiB a thread and need a permission of their own.
void tiles(void) {
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    NEED(!syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA));
    static _Alignas(64) unsigned char config[64] = {1}, in[1024], out[1024];
    config[16] = 64, config[48] = 16;
    uint64_t seed = 1;
    pattern_fill(in, seed, 0, sizeof in);
    __asm__ volatile(".byte 0xc4,0xe2,0x78,0x49,0x00" : : "a"(config), "m"(config)); // ldtilecfg [rax]
    // tileloadd tmm0, [rax + rcx]
    __asm__ volatile(".byte 0xc4,0xe2,0x7b,0x4b,0x04,0x08" : : "a"(in), "c"(64L) : "memory");
    FOR_A_WHILE {
        step(i, seed);
        // tilestored [rax + rcx], tmm0
        __asm__ volatile(".byte 0xc4,0xe2,0x7a,0x4b,0x04,0x08" : : "a"(out), "c"(64L) : "memory");
        pattern_check(out, seed, 0, sizeof out, "tile register");
        pattern_fill(in, ++seed, 0, sizeof in);
        __asm__ volatile(".byte 0xc4,0xe2,0x7b,0x4b,0x04,0x08" : : "a"(in), "c"(64L) : "memory");
    }
}

static double processor_s(void) {
    struct timespec time;
    CHECK(!clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time), "clock_gettime");
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static volatile sig_atomic_t profiled;
static void on_profile(int sig) { profiled += sig > 0; }

void processor_timer(void) {
    signal(SIGPROF, on_profile);
    struct itimerval often = {{0, 3000}, {0, 3000}};
    NEED(!setitimer(ITIMER_PROF, &often, NULL));
    FOR_A_WHILE {
        int before = profiled;
        step(i, 29);
        // It counts ticks, and a virtual machine that is given little time gets few: up to 20 s of work.
        for (double from = processor_s(); profiled == before; spin(1, 100000)) {
            double now = processor_s();
            if (now < from) from = now; // processor time begins anew at a resume
            CHECK(now - from < 20, "the profiling timer has stopped");
        }
    }
}

void session_leader(void) {
    setsid();
    pid_t session = getsid(0), group = getpgrp();
    FOR_A_WHILE {
        CHECK(getsid(0) == session && getpgrp() == group, "the session is %d, the group %d", getsid(0), getpgrp());
        step(i, 30);
    }
}
