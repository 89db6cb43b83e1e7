// A program that makes one call after another, and looks which processors it may run on.
//
// A tracer may keep it on one processor meanwhile. It must not see that: neither by asking, nor in /proc, nor in a new
// thread or process; and its own choice stays. It ends with a pause, for a look from outside. Usage: c_processors [ROUNDS]
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static cpu_set_t chosen;
static char listed[256];

static void list(char *into) {
    static const char path[] = "/proc/thread-self/status";
    char line[sizeof listed];
    FILE *status = fopen(path, "r");
    CHECK(status, "open %s", path);
    into[0] = 0;
    while (fgets(line, sizeof line, status))
        if (!strncmp(line, "Cpus_allowed:", 13)) snprintf(into, sizeof listed, "%s", line + 13);
    fclose(status);
    CHECK(into[0], "no processors in %s", path);
}

static void look(const char *where) {
    cpu_set_t now;
    char text[sizeof listed];
    CHECK(!sched_getaffinity(0, sizeof now, &now), "sched_getaffinity");
    CHECK(CPU_EQUAL(&now, &chosen), "%s: %d processors, not %d", where, CPU_COUNT(&now), CPU_COUNT(&chosen));
    list(text);
    CHECK(!strcmp(text, listed), "%s: %s, not %s", where, text, listed);
}

static void choose(const cpu_set_t *set) {
    CHECK(!sched_setaffinity(0, sizeof *set, set), "sched_setaffinity");
    chosen = *set;
    list(listed);
}

// Each is a call that is looked at before it runs.
static void calls(int file, int n) {
    for (int i = 0; i < n; i++) CHECK(pwrite(file, &i, sizeof i, i % 64 * 8) == sizeof i, "pwrite");
}

// A process and one that it makes have them too, and make calls of their own.
static void in_processes(int file) {
    for (int deep = 0; deep < 2; deep++) {
        calls(file, 40);
        pid_t made = fork();
        CHECK(made >= 0, "fork");
        if (made) {
            int status;
            CHECK(waitpid(made, &status, 0) == made && !status, "a process found other processors");
            if (deep) _exit(0);
            return;
        }
        look("a new process");
    }
    calls(file, 40);
    look("the process of a process");
    _exit(0);
}

static void *in_a_thread(void *file) {
    look("a new thread");
    calls(*(int *)file, 40);
    look("a thread after its calls");
    return NULL;
}

int main(int argc, char **argv) {
    long rounds = scale(argc, argv, 60);
    cpu_set_t all, one;
    CHECK(!sched_getaffinity(0, sizeof all, &all), "sched_getaffinity");
    CPU_ZERO(&one);
    for (int cpu = CPU_SETSIZE - 1; cpu >= 0 && !CPU_COUNT(&one); cpu--)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    int file = open("calls.dat", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0, "open calls.dat");
    uint64_t random_state = 5;
    for (long round = 1; round <= rounds; round++) {
        choose(round % 4 ? &all : &one);
        calls(file, 200);
        look("after calls");
        calls(file, 30);
        pthread_t thread;
        CHECK(!pthread_create(&thread, NULL, in_a_thread, &file), "pthread_create");
        calls(file, 30);
        pthread_join(thread, NULL);
        look("after a thread");
        calls(file, 30);
        in_processes(file);
        uint64_t word = spin(next_random(&random_state), 2000000);
        printf("round %ld of %ld: %016llx\n", round, rounds, (unsigned long long)word);
        fflush(stdout);
    }
    choose(&all);
    calls(file, 3000);
    struct timespec pause = {0, 300000000};
    nanosleep(&pause, NULL);
    calls(file, 1);
    return 0;
}
