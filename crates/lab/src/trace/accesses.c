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
 *   15      u8   of a load: its address came from what this thread's load so many before it read, 1 the last; 0: from
 *                none of the eight before it
 *
 * - Up to 65536 instructions before the last of those to skip, accesses begin to be told.
 * - A thread writes its records 256 at a time (what a pipe takes whole), when it calls the system,
 *   and when 65536 instructions went by.
 * - A process that the program starts tells nothing.
 * - Registers are followed from load to load by what their instructions do to them (registers.h). Parts of an access
 *   in which qemu does a wide one are one load. Of the 256 records that are written together none names an earlier one.
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

#include "registers.h"

enum { NO_REGISTERS = 0, LOADS_AND_STORES = 3 };
typedef struct Block Block;
typedef struct Instruction Instruction;
size_t qemu_plugin_tb_n_insns(const Block *);
const void *qemu_plugin_insn_data(const Instruction *);
size_t qemu_plugin_insn_size(const Instruction *);
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

enum { RECORDS = 256, STEP = 65536, PASSED = 2, RECENT = 8 };
typedef struct { uint64_t at; uint32_t after; uint16_t bytes; uint8_t kind, behind; } Record;
_Static_assert(sizeof(Record) == 16, "drawn above");

/* What happens to registers since the access before, then an access: of a block, as it was translated. */
typedef struct { uint64_t number; uint8_t base, index, loads; size_t count; Copy *copies; } Access;
/* A block: its instructions, and what happens to registers after its last access. */
typedef struct { uint64_t instructions; Access rest; } Blocks;

/* Of a thread: instructions before the block that runs, those told, those of the block. Loads so far, where the last one
 * ends, of each register the load it comes from (0: none), the instruction whose copies are done, and the first load of
 * the records at hand. */
typedef struct {
    uint64_t done, told, block, loads, end, origin[NO_REGISTER + 1], copied, first;
    const Access *rest;
    size_t used;
    Record records[RECORDS];
} Thread;
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

static void tell(Thread *t, uint64_t now, uint64_t at, unsigned bytes, uint8_t kind, uint8_t behind) {
    t->records[t->used++] = (Record){at, (uint32_t)(now - t->told), (uint16_t)bytes, kind, behind};
    t->told = now;
    if (t->used == RECORDS) flush(t);
}

/* Instructions without an access, or whose accesses are skipped. */
static void pass(Thread *t) {
    if (!telling) {
        uint64_t gone = __atomic_add_fetch(&passed, t->done - t->told, __ATOMIC_RELAXED);
        if (gone + STEP >= skip) telling = true;
    }
    tell(t, t->done, 0, 0, PASSED, 0);
    flush(t);
}

static void do_copies(Thread *t, const Access *access) {
    for (size_t i = 0; i < access->count; i++) {
        Copy c = access->copies[i];
        if (!c.merges || t->origin[c.from] > t->origin[c.to]) t->origin[c.to] = t->origin[c.from];
    }
}

/* How many loads before this one its address comes from. */
static uint8_t load(Thread *t, const Access *access, uint64_t now, uint64_t at, unsigned bytes) {
    bool is_part = now == t->told && at == t->end && t->used > 0 && t->records[t->used - 1].kind == 0;
    t->end = at + bytes;
    if (is_part) return t->records[t->used - 1].behind;
    if (t->used == 0) t->first = t->loads + 1;
    uint64_t base = t->origin[access->base], index = t->origin[access->index];
    uint64_t from = base > index ? base : index, number = ++t->loads;
    t->origin[access->loads] = access->loads < NO_REGISTER ? number : 0;
    return from >= t->first && from > 0 && number - from <= RECENT ? (uint8_t)(number - from) : 0;
}

static void on_block(unsigned cpu, void *data) {
    (void)cpu;
    const Blocks *block = data;
    Thread *t = thread();
    t->done += t->block;
    t->block = block->instructions;
    if (t->rest) do_copies(t, t->rest);
    t->rest = &block->rest;
    if (__builtin_expect(t->done - t->told >= STEP, 0)) pass(t);
}

static void on_access(unsigned cpu, uint32_t info, uint64_t at, void *data) {
    (void)cpu;
    const Access *access = data;
    Thread *t = thread();
    uint64_t now = t->done + access->number;
    if (t->copied != now) do_copies(t, access), t->copied = now;
    if (!telling) return;
    unsigned bytes = 1u << qemu_plugin_mem_size_shift(info);
    bool is_store = qemu_plugin_mem_is_store(info);
    tell(t, now, at, bytes, is_store, is_store ? 0 : load(t, access, now, at, bytes));
}

static Access *more(void) {
    Access *access = calloc(1, sizeof *access);
    if (!access) abort();
    return access;
}

/* What is translated stays: qemu does not say when it is thrown away. */
static void on_translation(uint64_t id, Block *block) {
    (void)id;
    size_t instructions = qemu_plugin_tb_n_insns(block);
    Blocks *all = calloc(1, sizeof *all);
    Copy *copies = calloc(instructions * 3, sizeof *copies);
    if (!all || !copies) abort();
    all->instructions = instructions;
    qemu_plugin_register_vcpu_tb_exec_cb(block, on_block, NO_REGISTERS, all);
    size_t first = 0, next = 0;
    for (size_t i = 0; i < instructions; i++) {
        Instruction *instruction = qemu_plugin_tb_get_insn(block, i);
        Effect e = decode(qemu_plugin_insn_data(instruction), qemu_plugin_insn_size(instruction));
        Access *access = more();
        *access = (Access){i + 1, e.base, e.index, e.loads, next - first, copies + first};
        qemu_plugin_register_vcpu_mem_cb(instruction, on_access, NO_REGISTERS, LOADS_AND_STORES, access);
        if (e.accesses) first = next;
        for (size_t one = 0; one < e.count; one++) copies[next++] = e.copies[one];
    }
    all->rest.count = next - first, all->rest.copies = copies + first;
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
