/* What a program does in memory, told while it runs: a plugin of qemu's user mode. record.rs loads it.
 *
 *   qemu-x86_64 -plugin THIS,pipe=FD,skip=INSTRUCTIONS -- PROGRAM
 *
 * FD gets records of 16 bytes, in the machine's byte order:
 *
 *   0..8    u64  address
 *   8..12   u32  instructions of this thread since its record before, the one that accesses included
 *   12..14  u16  bytes
 *   14      u8   0 load, 1 store, 2 no access: so many instructions went by
 *   15      u8   0
 *
 * - Up to 65536 instructions before the last of those to skip, accesses begin to be told.
 * - A thread writes its records 256 at a time (what a pipe takes whole), when it calls the system,
 *   and when 65536 instructions went by.
 * - A process that the program starts tells nothing.
 *
 * Qemu's interface is that of its qemu-plugin.h, of which the few functions that are used stand below.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NO_REGISTERS = 0, LOADS_AND_STORES = 3 };
typedef struct Block Block;
typedef struct Instruction Instruction;
size_t qemu_plugin_tb_n_insns(const Block *);
Instruction *qemu_plugin_tb_get_insn(const Block *, size_t);
unsigned qemu_plugin_mem_size_shift(uint32_t info);
bool qemu_plugin_mem_is_store(uint32_t info);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*)(uint64_t, Block *));
void qemu_plugin_register_vcpu_tb_exec_cb(Block *, void (*)(unsigned, void *), int, void *);
void qemu_plugin_register_vcpu_mem_cb(Instruction *, void (*)(unsigned, uint32_t, uint64_t, void *), int, int, void *);
void qemu_plugin_register_vcpu_syscall_cb(uint64_t id, void (*)(uint64_t, unsigned, int64_t, uint64_t, uint64_t,
    uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t));

/* The version of that interface: qemu before 9 knows 1, later ones 2 and more, and can read registers. */
__attribute__((visibility("default"))) int qemu_plugin_version = 1;
__attribute__((constructor)) static void choose_version(void) {
    if (dlsym(RTLD_DEFAULT, "qemu_plugin_get_registers")) qemu_plugin_version = 2;
}

enum { RECORDS = 256, STEP = 65536, PASSED = 2 };
typedef struct { uint64_t at; uint32_t after; uint16_t bytes; uint8_t kind, zero; } Record;
_Static_assert(sizeof(Record) == 16, "drawn above");

/* Of a thread: instructions before the block that runs, those told, those of the block. */
typedef struct { uint64_t done, told, block; size_t used; Record records[RECORDS]; } Thread;
static __thread Thread *mine __attribute__((tls_model("initial-exec")));
static int out = -1;
static pid_t owner;
static uint64_t skip, passed; /* of all threads */
static volatile bool telling;

static Thread *thread(void) {
    if (__builtin_expect(!mine, 0)) {
        mine = calloc(1, sizeof *mine);
        if (!mine) abort();
    }
    return mine;
}

static void flush(Thread *t) {
    const char *from = (const char *)t->records;
    size_t left = getpid() == owner ? t->used * sizeof(Record) : 0;
    while (left > 0) {
        ssize_t written = write(out, from, left);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) _exit(1); /* nobody listens any more */
        from += written, left -= (size_t)written;
    }
    t->used = 0;
}

static void tell(Thread *t, uint64_t now, uint64_t at, unsigned bytes, uint8_t kind) {
    t->records[t->used++] = (Record){at, (uint32_t)(now - t->told), (uint16_t)bytes, kind, 0};
    t->told = now;
    if (t->used == RECORDS) flush(t);
}

/* Instructions without an access, or whose accesses are skipped. */
static void pass(Thread *t) {
    if (!telling) {
        uint64_t gone = __atomic_add_fetch(&passed, t->done - t->told, __ATOMIC_RELAXED);
        if (gone + STEP >= skip) telling = true;
    }
    tell(t, t->done, 0, 0, PASSED);
    flush(t);
}

static void on_block(unsigned cpu, void *instructions) {
    (void)cpu;
    Thread *t = thread();
    t->done += t->block;
    t->block = (uintptr_t)instructions;
    if (__builtin_expect(t->done - t->told >= STEP, 0)) pass(t);
}

static void on_access(unsigned cpu, uint32_t info, uint64_t at, void *number) {
    (void)cpu;
    if (!telling) return;
    Thread *t = thread();
    tell(t, t->done + (uintptr_t)number, at, 1u << qemu_plugin_mem_size_shift(info), qemu_plugin_mem_is_store(info));
}

static void on_translation(uint64_t id, Block *block) {
    (void)id;
    size_t instructions = qemu_plugin_tb_n_insns(block);
    qemu_plugin_register_vcpu_tb_exec_cb(block, on_block, NO_REGISTERS, (void *)instructions);
    for (size_t i = 0; i < instructions; i++)
        qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(block, i), on_access, NO_REGISTERS,
                                         LOADS_AND_STORES, (void *)(i + 1));
}

/* The program may wait, fork or end now. */
static void on_call(uint64_t id, unsigned cpu, int64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                    uint64_t e, uint64_t f, uint64_t g, uint64_t h) {
    (void)id, (void)cpu, (void)number, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
    Thread *t = thread();
    t->done += t->block, t->block = 0;
    if (t->done > t->told) pass(t);
    else if (t->used > 0) flush(t);
}

__attribute__((visibility("default"))) int qemu_plugin_install(uint64_t id, const void *info, int count, char **words) {
    (void)info;
    for (int i = 0; i < count; i++) {
        if (strncmp(words[i], "pipe=", 5) == 0) out = atoi(words[i] + 5);
        if (strncmp(words[i], "skip=", 5) == 0) skip = strtoull(words[i] + 5, NULL, 10);
    }
    if (out < 0 || fcntl(out, F_SETFD, FD_CLOEXEC) < 0) return 1;
    owner = getpid();
    telling = skip <= STEP;
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_vcpu_syscall_cb(id, on_call);
    return 0;
}
