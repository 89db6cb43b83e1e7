// Eight threads that use what threads use, and check all of it all the time.
//
// - a bounded queue (mutex, two condition variables, timed waits): every item produced is consumed once;
// - accounts under a read-write lock: the sum of all accounts never changes;
// - a tally under a priority-inheriting mutex; a robust mutex whose owner dies;
// - malloc churn, small and large (brk, mmap, munmap, mremap, malloc_trim): every block keeps its bytes;
// - thread-local variables of both kinds;
// - signals on alternate stacks: SIGALRM ticks, a per-thread timer with a value, tgkill with an answer;
// - AVX, AVX-512 and x87 values, and a rounding mode, that live in registers over long loops.
//
// The output is the same however the threads are scheduled. Usage: c_threads [ROUNDS]
#define _GNU_SOURCE
#include "check.h"

#include <fenv.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 8, STEPS = 24, SLOTS = 48, QUEUE = 5, ACCOUNTS = 256, ALTSTACK = 64 * 1024 };
#define TOTAL 1000000ull
#define CANARY 0x7477696e70616765ull
#define TIMER_VALUE 0x5eed

struct block {
    unsigned char *bytes;
    size_t len;
    uint64_t seed;
};

struct worker {
    int id;
    pid_t tid;
    pthread_t thread;
    uint64_t random, digest;
    struct block slots[SLOTS];
    sem_t answered;
    long sent, helped;
};

static struct worker workers[WORKERS];
static pthread_barrier_t round_begins, round_ends;
static atomic_bool stop;
static atomic_long alarm_ticks, timer_ticks;

// ---- thread-local state, of both kinds ----

static __thread uint64_t tls_canary = CANARY;
static __thread uint64_t tls_steps;
static __thread int tls_id = -1;
static __thread unsigned char *tls_altstack;
static __thread long tls_answers;
static __thread unsigned char tls_block[2000];
static pthread_key_t key;

static void check_thread_local(struct worker *w) {
    CHECK(tls_canary == CANARY, "thread %d lost its thread-local canary", w->id);
    CHECK(tls_id == w->id, "thread %d reads the thread-local variables of %d", w->id, tls_id);
    CHECK(pthread_getspecific(key) == w, "thread %d lost its thread-specific value", w->id);
    CHECK(syscall(SYS_gettid) == w->tid, "thread %d changed its id", w->id);
    pattern_check(tls_block, tls_steps, 0, sizeof tls_block, "thread-local block");
    pattern_fill(tls_block, ++tls_steps, 0, sizeof tls_block);
}

// ---- signals on alternate stacks ----

static void on_signal(int sig, siginfo_t *info, void *context) {
    (void)context;
    int saved = errno;
    volatile unsigned char here;
    if (tls_altstack) {
        CHECK(&here >= tls_altstack && &here < tls_altstack + ALTSTACK,
              "signal %d of thread %d does not run on its alternate stack", sig, tls_id);
        CHECK(tls_canary == CANARY, "a signal handler lost its thread-local variables");
    }
    if (sig == SIGALRM) {
        atomic_fetch_add(&alarm_ticks, 1);
    } else if (sig == SIGUSR1) {
        CHECK(info->si_code == SI_TKILL, "SIGUSR1 came from elsewhere");
        tls_answers++;
        sem_post(&workers[(tls_id + WORKERS - 1) % WORKERS].answered);
    } else {
        CHECK(info->si_code == SI_TIMER && info->si_value.sival_int == TIMER_VALUE, "a timer lost its value");
        CHECK(tls_id == 3, "the timer of thread 3 ticks in thread %d", tls_id);
        atomic_fetch_add(&timer_ticks, 1);
    }
    errno = saved;
}

static void install_handlers(void) {
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    sigfillset(&action.sa_mask);
    CHECK(!sigaction(SIGALRM, &action, NULL), "sigaction");
    CHECK(!sigaction(SIGUSR1, &action, NULL), "sigaction");
    CHECK(!sigaction(SIGRTMIN + 3, &action, NULL), "sigaction");
}

static void own_timer(void) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN + 3};
    event.sigev_value.sival_int = TIMER_VALUE;
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    timer_t timer;
    CHECK(!timer_create(CLOCK_MONOTONIC, &event, &timer), "timer_create");
    struct itimerspec often = {{0, 7000000}, {0, 7000000}};
    CHECK(!timer_settime(timer, 0, &often, NULL), "timer_settime");
}

// Ask the next thread to answer from its signal handler, and wait for it.
static void signal_step(struct worker *w) {
    struct worker *next = &workers[(w->id + 1) % WORKERS];
    w->sent++;
    CHECK(!syscall(SYS_tgkill, getpid(), next->tid, SIGUSR1), "tgkill");
    while (sem_wait(&w->answered)) CHECK(errno == EINTR, "sem_wait");
}

// ---- the queue ----

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_empty = PTHREAD_COND_INITIALIZER, not_full = PTHREAD_COND_INITIALIZER;
static uint64_t queue[QUEUE], produced, consumed;
static int queue_from, queue_len;

static void wait_a_little(pthread_cond_t *cond) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 3000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    int e = pthread_cond_timedwait(cond, &queue_lock, &until);
    CHECK(e == 0 || e == ETIMEDOUT, "pthread_cond_timedwait: %d", e);
}

static void queue_step(struct worker *w) {
    pthread_mutex_lock(&queue_lock);
    if (w->id % 2 == 0) {
        uint64_t item = next_random(&w->random);
        while (queue_len == QUEUE) pthread_cond_wait(&not_full, &queue_lock);
        queue[(queue_from + queue_len++) % QUEUE] = item;
        produced += item;
        pthread_cond_signal(&not_empty);
    } else {
        while (queue_len == 0) wait_a_little(&not_empty);
        CHECK(queue_len > 0 && queue_len <= QUEUE, "the queue holds %d items", queue_len);
        uint64_t item = queue[queue_from];
        queue_from = (queue_from + 1) % QUEUE, queue_len--;
        consumed += item;
        pthread_cond_signal(&not_full);
    }
    pthread_mutex_unlock(&queue_lock);
}

// ---- accounts, the tally, and a mutex whose owner dies ----

static pthread_rwlock_t accounts_lock = PTHREAD_RWLOCK_INITIALIZER;
static int64_t accounts[ACCOUNTS];
static pthread_mutex_t tally_lock, orphaned;
static uint64_t tally, tally_twice;

static void check_accounts(void) {
    int64_t sum = 0;
    for (int i = 0; i < ACCOUNTS; i++) sum += accounts[i];
    CHECK(sum == (int64_t)TOTAL, "the accounts hold %lld", (long long)sum);
}

static void accounts_step(struct worker *w) {
    for (int i = 0; i < 4; i++) {
        uint64_t r = next_random(&w->random);
        pthread_rwlock_wrlock(&accounts_lock);
        accounts[r % ACCOUNTS] -= (r >> 20) & 1023;
        accounts[(r >> 10) % ACCOUNTS] += (r >> 20) & 1023;
        pthread_rwlock_unlock(&accounts_lock);
        pthread_rwlock_rdlock(&accounts_lock);
        check_accounts();
        pthread_rwlock_unlock(&accounts_lock);
    }
    uint64_t amount = next_random(&w->random) & 0xffff;
    CHECK(!pthread_mutex_lock(&tally_lock), "priority-inheriting lock");
    CHECK(tally * 2 == tally_twice, "the tally is torn");
    tally += amount;
    amount = spin(amount, 2000) ? amount : 0;
    tally_twice += amount * 2;
    CHECK(!pthread_mutex_unlock(&tally_lock), "priority-inheriting unlock");
}

static void *die_holding(void *arg) {
    tls_canary++;
    CHECK(tls_canary == CANARY + 1, "a new thread begins with the canary of another");
    CHECK(!pthread_mutex_lock(&orphaned), "robust lock");
    *(uint64_t *)arg = spin(*(uint64_t *)arg, 50000);
    return arg;
}

// A short thread that ends holding a robust mutex: its death must be seen.
static void helper_step(struct worker *w) {
    sigset_t all, before;
    sigfillset(&all);
    uint64_t word = 1 + w->helped++;
    uint64_t want = spin(word, 50000);
    pthread_t helper;
    // A helper has no alternate stack, so it takes no signals.
    pthread_sigmask(SIG_SETMASK, &all, &before);
    CHECK(!pthread_create(&helper, NULL, die_holding, &word), "pthread_create");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    CHECK(!pthread_join(helper, NULL), "pthread_join");
    CHECK(word == want, "a helper computed something else");
    CHECK(pthread_mutex_lock(&orphaned) == EOWNERDEAD, "the death of a robust mutex's owner was not seen");
    CHECK(!pthread_mutex_consistent(&orphaned) && !pthread_mutex_unlock(&orphaned), "robust mutex");
}

// ---- malloc churn ----

static size_t some_size(uint64_t r) {
    uint64_t kind = r % 1000, size = r >> 16;
    if (kind < 700) return 16 + size % 1000;
    if (kind < 920) return 1024 + size % (63 * 1024);
    if (kind < 995) return 65536 + size % (448 * 1024);
    return (512 << 10) + size % (3u << 20);
}

// Resizing must keep what both sizes have, also when the block moves.
static void resize(struct block *b, size_t len) {
    unsigned char *bytes = realloc(b->bytes, len);
    CHECK(bytes, "realloc of %zu bytes", len);
    size_t kept = len < b->len ? len : b->len;
    pattern_check(bytes, b->seed, 0, kept, "resized block");
    pattern_fill(bytes, b->seed, kept, len);
    b->bytes = bytes, b->len = len;
}

static void malloc_step(struct worker *w) {
    for (int i = 0; i < 2; i++) {
        uint64_t r = next_random(&w->random);
        struct block *b = &w->slots[r % SLOTS];
        size_t len = some_size(next_random(&w->random));
        if (b->bytes && r >> 62 == 0) {
            resize(b, len);
            continue;
        }
        if (b->bytes) pattern_check(b->bytes, b->seed, 0, b->len, "block");
        free(b->bytes);
        *b = (struct block){NULL, 0, 0};
        if (r >> 62 == 1) continue;
        *b = (struct block){malloc(len), len, r};
        CHECK(b->bytes, "malloc of %zu bytes", len);
        pattern_fill(b->bytes, b->seed, 0, len);
        w->digest = fold(w->digest, len);
    }
}

// ---- values that live in registers ----

typedef uint64_t vec4 __attribute__((vector_size(32)));
typedef uint64_t vec8 __attribute__((vector_size(64)));

#define VECTOR_LOOP(V)                                                          \
    V a = seed + (V){}, b = a * 3, c = a * 5, d = a * 7, e = a, f = b, g = c, h = d; \
    for (long i = 0; i < steps; i++) {                                          \
        a ^= a << 13, b ^= b << 13, c ^= c << 13, d ^= d << 13;                 \
        e ^= e << 13, f ^= f << 13, g ^= g << 13, h ^= h << 13;                 \
        a ^= a >> 7, b ^= b >> 7, c ^= c >> 7, d ^= d >> 7;                     \
        e ^= e >> 7, f ^= f >> 7, g ^= g >> 7, h ^= h >> 7;                     \
        a ^= a << 17, b ^= b << 17, c ^= c << 17, d ^= d << 17;                 \
        e ^= e << 17, f ^= f << 17, g ^= g << 17, h ^= h << 17;                 \
    }                                                                           \
    V bad = (a ^ e) | (b ^ f) | (c ^ g) | (d ^ h);                              \
    uint64_t wrong = 0, sum = a[0] ^ b[0] ^ c[0] ^ d[0];                        \
    for (size_t i = 0; i < sizeof(V) / 8; i++) wrong |= bad[i] | (a[i] ^ a[0]) | (d[i] ^ d[0]); \
    CHECK(!wrong, "vector registers changed under a loop");                     \
    return sum

__attribute__((noinline, target("avx2"))) static uint64_t loop_avx2(uint64_t seed, long steps) {
    VECTOR_LOOP(vec4);
}

__attribute__((noinline, target("avx512f"))) static uint64_t loop_avx512(uint64_t seed, long steps) {
    VECTOR_LOOP(vec8);
}

static uint64_t loop_scalar(uint64_t seed, long steps) {
    return spin(seed, steps) ^ spin(seed * 3, steps) ^ spin(seed * 5, steps) ^ spin(seed * 7, steps);
}

__attribute__((noinline)) static uint64_t loop_x87(long steps) {
    long double sum = 0, term = 1;
    for (long i = 0; i < steps; i++) sum += term, term = term / 2 + 1 / (long double)(i + 3);
    uint64_t mantissa;
    memcpy(&mantissa, &sum, 8);
    return mantissa;
}

static const int ROUNDING[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};

static void register_step(struct worker *w) {
    uint64_t seed = next_random(&w->random) | 1;
    long steps = 30000;
    uint64_t got = 0;
    __builtin_cpu_init();
    if (w->id % 2 && __builtin_cpu_supports("avx512f"))
        got = loop_avx512(seed, steps);
    else if (__builtin_cpu_supports("avx2"))
        got = loop_avx2(seed, steps);
    if (got) CHECK(got == loop_scalar(seed, steps), "a vector loop and a scalar one disagree");
    CHECK(fegetround() == ROUNDING[w->id % 4], "thread %d lost its rounding mode", w->id);
    uint64_t first = loop_x87(20000);
    CHECK(first == loop_x87(20000), "two x87 loops disagree");
    volatile double third = 1.0;
    third /= 3.0;
    double rounded = third;
    w->digest = fold(fold(w->digest, first), fold_bytes(0, &rounded, 8));
}

// ---- the threads ----

static void one_round(struct worker *w) {
    for (int step = 0; step < STEPS; step++) {
        check_thread_local(w);
        malloc_step(w);
        queue_step(w);
        accounts_step(w);
        register_step(w);
        if (step % 4 == 0) signal_step(w);
        if (w->id == 0 && step % 8 == 0) malloc_trim(0);
        if (w->id == 7 && step % 6 == 0) helper_step(w);
    }
    w->digest = fold(w->digest, next_random(&w->random));
}

static void *work(void *arg) {
    struct worker *w = arg;
    tls_id = w->id;
    pattern_fill(tls_block, 0, 0, sizeof tls_block);
    pthread_setspecific(key, w);
    w->tid = (pid_t)syscall(SYS_gettid);
    unsigned char *stack = malloc(ALTSTACK);
    stack_t alternate = {.ss_sp = stack, .ss_size = ALTSTACK};
    CHECK(!sigaltstack(&alternate, NULL), "sigaltstack");
    tls_altstack = stack;
    fesetround(ROUNDING[w->id % 4]);
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    if (w->id == 3) own_timer();
    for (;;) {
        pthread_barrier_wait(&round_begins);
        if (atomic_load(&stop)) break;
        one_round(w);
        pthread_barrier_wait(&round_ends);
    }
    // Signals of the others are over: every one sent was answered before its sender ended its round.
    sigfillset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    CHECK(tls_answers == workers[(w->id + WORKERS - 1) % WORKERS].sent, "signals were lost or came twice");
    for (int i = 0; i < SLOTS; i++) free(w->slots[i].bytes);
    return w;
}

// A timer that was lost shows as a program that waits; it gives up after sleeping long enough instead.
static void expect_tick(atomic_long *ticks, const char *which) {
    long before = atomic_load(ticks);
    for (int tries = 0; atomic_load(ticks) == before; tries++) {
        CHECK(tries < 5000, "%s has stopped ticking", which);
        struct timespec a_millisecond = {0, 1000000};
        nanosleep(&a_millisecond, NULL);
    }
}

static uint64_t round_digest(void) {
    CHECK(queue_len == 0 && produced == consumed, "items were lost, or consumed twice");
    check_accounts();
    uint64_t digest = fold(fold(0, consumed), tally);
    digest = fold_bytes(digest, accounts, sizeof accounts);
    for (int i = 0; i < WORKERS; i++) digest = fold(digest, workers[i].digest);
    return digest;
}

static void prepare(void) {
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&tally_lock, &attr);
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&orphaned, &attr);
    pthread_key_create(&key, NULL);
    pthread_barrier_init(&round_begins, NULL, WORKERS + 1);
    pthread_barrier_init(&round_ends, NULL, WORKERS + 1);
    accounts[0] = TOTAL;
    install_handlers();
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL); // the main thread takes no signals
    for (int i = 0; i < WORKERS; i++) {
        workers[i].id = i, workers[i].random = 1000 + i;
        sem_init(&workers[i].answered, 0, 0);
        CHECK(!pthread_create(&workers[i].thread, NULL, work, &workers[i]), "pthread_create");
    }
    struct itimerval often = {{0, 5000}, {0, 5000}};
    CHECK(!setitimer(ITIMER_REAL, &often, NULL), "setitimer");
}

int main(int argc, char **argv) {
    long rounds = scale(argc, argv, 40);
    prepare();
    for (long round = 1; round <= rounds; round++) {
        pthread_barrier_wait(&round_begins);
        pthread_barrier_wait(&round_ends);
        expect_tick(&alarm_ticks, "the interval timer");
        expect_tick(&timer_ticks, "the timer of thread 3");
        printf("round %ld of %ld: %016llx\n", round, rounds, (unsigned long long)round_digest());
        fflush(stdout);
    }
    atomic_store(&stop, true);
    pthread_barrier_wait(&round_begins);
    for (int i = 0; i < WORKERS; i++) CHECK(!pthread_join(workers[i].thread, NULL), "pthread_join");
    printf("digest %016llx\n", (unsigned long long)round_digest());
    return 0;
}
