// A program that sets the quieter attributes of a process, and looks whether they stay.
//
// A resumed program must have them all again; setting one that cannot be kept must fail. An attribute
// that changes in silence is the fault this looks for. It needs no privilege. Usage: c_limits [ROUNDS]
#define _GNU_SOURCE
#include "check.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// What is looked at, as words; each has a name for the message.
enum { MOST = 96 };
static const char *names[MOST];
static uint64_t words[MOST];
static int count;

static void note(const char *name, uint64_t word) {
    CHECK(count < MOST, "too many attributes");
    names[count] = name, words[count++] = word;
}

static void note_limits(void) {
    static const struct {
        const char *name;
        int which;
    } limits[] = {{"RLIMIT_NOFILE", RLIMIT_NOFILE}, {"RLIMIT_STACK", RLIMIT_STACK}, {"RLIMIT_CORE", RLIMIT_CORE},
                  {"RLIMIT_NPROC", RLIMIT_NPROC},   {"RLIMIT_AS", RLIMIT_AS},       {"RLIMIT_DATA", RLIMIT_DATA},
                  {"RLIMIT_CPU", RLIMIT_CPU},       {"RLIMIT_FSIZE", RLIMIT_FSIZE}, {"RLIMIT_MEMLOCK", RLIMIT_MEMLOCK}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct rlimit limit;
        CHECK(!getrlimit(limits[i].which, &limit), "getrlimit");
        note(limits[i].name, limit.rlim_cur);
        note(limits[i].name, limit.rlim_max);
    }
}

static void note_identity(void) {
    gid_t groups[256];
    uid_t ids[3];
    gid_t gids[3];
    CHECK(!getresuid(&ids[0], &ids[1], &ids[2]) && !getresgid(&gids[0], &gids[1], &gids[2]), "getresuid");
    for (int i = 0; i < 3; i++) note("user id", ids[i]), note("group id", gids[i]);
    int n = getgroups(256, groups);
    note("supplementary groups", fold_bytes(0, groups, (size_t)(n > 0 ? n : 0) * sizeof *groups));
    note("process id", (uint64_t)getpid());
}

static void note_process(void) {
    char name[17] = "";
    prctl(PR_GET_NAME, name);
    note("thread name", fold_bytes(0, name, 16));
    note("nice value", (uint64_t)getpriority(PRIO_PROCESS, 0));
    note("dumpable", (uint64_t)prctl(PR_GET_DUMPABLE));
    note("no new privileges", (uint64_t)prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    note("timer slack", (uint64_t)prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0));
    note("keep capabilities", (uint64_t)prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0));
    note("huge pages disabled", (uint64_t)prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
    note("scheduling policy", (uint64_t)sched_getscheduler(0));
    int reaper = 0;
    prctl(PR_GET_CHILD_SUBREAPER, &reaper);
    note("subreaper", (uint64_t)reaper);
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CHECK(!sched_getaffinity(0, sizeof cpus, &cpus), "sched_getaffinity");
    note("processor affinity", fold_bytes(0, &cpus, sizeof cpus));
}

// The marks of a mapping that madvise leaves and only /proc shows; 0 where the text has no such mapping.
static uint64_t marks_of(unsigned char *mapping) {
    char line[512];
    FILE *smaps = fopen("/proc/self/smaps", "r");
    CHECK(smaps, "open /proc/self/smaps");
    unsigned long from = 0, to = 0;
    uint64_t flags = 0;
    while (fgets(line, sizeof line, smaps)) {
        unsigned long start, end;
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2) from = start, to = end;
        if (from != (unsigned long)mapping || strncmp(line, "VmFlags:", 8)) continue;
        flags = fold(flags, (uint64_t)(!!strstr(line, " dc")));
        flags = fold(flags, (uint64_t)(!!strstr(line, " dd")));
        flags = fold(flags, (uint64_t)(!!strstr(line, " wf")));
        flags = fold(flags, to - from);
    }
    fclose(smaps);
    return flags;
}

static void note_memory(unsigned char *marked) {
    // A page of the text is read at a time. Where a program is resumed between two, it goes on at the same place of a text
    // that may be another, and a line may be passed over: it is looked for again. Twice in a row that is no chance.
    uint64_t flags = marks_of(marked);
    note("marks of a mapping", flags ? flags : marks_of(marked));
}

// What cannot be kept may be refused, so what is set may fail; it must only not change afterwards.
static int try(int result) { return result; }

static void set_attributes(unsigned char *marked) {
    struct rlimit limit;
    CHECK(!getrlimit(RLIMIT_NOFILE, &limit), "getrlimit");
    limit.rlim_cur = limit.rlim_max < 777 ? limit.rlim_max : 777;
    try(setrlimit(RLIMIT_NOFILE, &limit));
    try(setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}));
    try(setpriority(PRIO_PROCESS, 0, 3));
    try(prctl(PR_SET_NAME, "twinpage-limits"));
    try(prctl(PR_SET_TIMERSLACK, 123456, 0, 0, 0));
    try(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0));
    try(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    try(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
    cpu_set_t cpus, one;
    CHECK(!sched_getaffinity(0, sizeof cpus, &cpus), "sched_getaffinity");
    CPU_ZERO(&one);
    for (int cpu = CPU_SETSIZE - 1; cpu >= 0 && !CPU_COUNT(&one); cpu--)
        if (CPU_ISSET(cpu, &cpus)) CPU_SET(cpu, &one);
    try(sched_setaffinity(0, sizeof one, &one));
    try(sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0}));
    try(madvise(marked, 4096, MADV_DONTFORK));
    try(madvise(marked, 4096, MADV_DONTDUMP));
}

static void look(unsigned char *marked) {
    count = 0;
    note_limits();
    note_identity();
    note_process();
    note_memory(marked);
}

int main(int argc, char **argv) {
    long rounds = scale(argc, argv, 150);
    uint64_t random_state = 3, before[MOST];
    unsigned char *marked = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(marked != MAP_FAILED && !munmap(marked, 4096) && !munmap(marked + 8192, 4096), "mmap");
    marked += 4096;
    set_attributes(marked);
    look(marked);
    memcpy(before, words, sizeof before);
    int noted = count;
    for (long round = 1; round <= rounds; round++) {
        uint64_t word = spin(next_random(&random_state), 8000000);
        look(marked);
        CHECK(count == noted, "attributes came or went");
        for (int i = 0; i < count; i++)
            CHECK(words[i] == before[i], "%s changed from %llx to %llx", names[i], (unsigned long long)before[i],
                  (unsigned long long)words[i]);
        printf("round %ld of %ld: %016llx\n", round, rounds, (unsigned long long)word);
        fflush(stdout);
    }
    printf("digest %016llx\n", (unsigned long long)random_state);
    return 0;
}
