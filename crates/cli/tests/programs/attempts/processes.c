// Other processes and programs, and threads that share less than usual.
#include "attempts.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

static void expect_child(pid_t child, int code) {
    int status;
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == code, "the child ended with %x", status);
    FOR_A_WHILE step(i, (uint64_t)code);
}

void do_fork(void) {
    pid_t child = fork();
    NEED(child >= 0);
    if (!child) {
        FOR_A_WHILE spin(1, 4000000);
        _exit(5);
    }
    expect_child(child, 5);
}

void do_vfork(void) {
    pid_t child;
    char *argv[] = {"sh", "-c", "exit 6", NULL};
    NEED(!posix_spawn(&child, "/bin/sh", NULL, NULL, argv, environ));
    expect_child(child, 6);
}

void do_clone3(void) {
    struct {
        uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
    } args = {.exit_signal = SIGCHLD};
    long child = syscall(SYS_clone3, &args, sizeof args);
    NEED(child >= 0);
    if (!child) _exit(7);
    expect_child((pid_t)child, 7);
}

void do_exec(void) {
    char count[32];
    if (getenv("ATTEMPT_AGAIN")) {
        FOR_A_WHILE step(i, 3);
        return;
    }
    FOR_A_WHILE step(i, 2);
    snprintf(count, sizeof count, "%ld", steps);
    setenv("ATTEMPT_AGAIN", "1", 1);
    char *argv[] = {"attempts", "exec", count, NULL};
    execve("/proc/self/exe", argv, environ);
    CHECK(0, "execve");
}

void do_ptrace(void) {
    NEED(!ptrace(PTRACE_TRACEME, 0, NULL, NULL));
    FOR_A_WHILE step(i, 4);
}

static void *unshared(void *arg) {
    *(long *)arg = unshare(CLONE_FS | CLONE_FILES) ? errno : 0;
    CHECK(!chdir("/"), "chdir");
    FOR_A_WHILE {
        char now[64];
        CHECK(getcwd(now, sizeof now) && !strcmp(now, "/"), "the thread's directory is %s", now);
        spin(1, 4000000);
    }
    return arg;
}

void thread_unshare(void) {
    pthread_t thread;
    char before[4096], now[4096];
    long error = -1;
    CHECK(getcwd(before, sizeof before), "getcwd");
    CHECK(!pthread_create(&thread, NULL, unshared, &error), "pthread_create");
    FOR_A_WHILE {
        CHECK(getcwd(now, sizeof now) && !strcmp(now, before), "the directory is %s", now);
        step(i, 5);
    }
    CHECK(!pthread_join(thread, NULL) && !error, "unshare gave %ld", error);
}

void user_namespace(void) {
    NEED(!unshare(CLONE_NEWUSER));
    uid_t id = getuid();
    FOR_A_WHILE {
        CHECK(getuid() == id, "the user is %d", getuid());
        step(i, 6);
    }
}

void change_user(void) {
    NEED(!setresgid(65534, 65534, 65534) && !setresuid(65534, 65534, 65534));
    FOR_A_WHILE {
        CHECK(getuid() == 65534 && getegid() == 65534, "the user is %d", getuid());
        step(i, 7);
    }
}
