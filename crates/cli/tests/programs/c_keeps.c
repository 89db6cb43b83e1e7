// A program that keeps the lowest 4 GiB from use, as V8 does in Chromium, where twinpage makes calls too. It waits for a
// file, and says what of that memory can be read. Usage: c_keeps FILE
#define _GNU_SOURCE
#include "check.h"

#include <sys/mman.h>
#include <unistd.h>

static const uintptr_t LOW = 0x10000, END = (uintptr_t)1 << 32;

int main(int argc, char **argv) {
    CHECK(argc == 2, "usage");
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    // A checkpoint may have come before it: a program that begins anew has nothing there.
    if (mmap((void *)LOW, END - LOW, PROT_NONE, flags, -1, 0) == MAP_FAILED)
        execv("/proc/self/exe", argv);
    puts("kept");
    fflush(stdout);
    while (access(argv[1], F_OK))
        usleep(1000);
    int ends[2];
    CHECK(!pipe(ends), "a pipe");
    uintptr_t looked_at[] = {LOW, LOW + 0xffff, END / 2, END - 1};
    for (int i = 0; i < 4; i++)
        CHECK(write(ends[1], (void *)looked_at[i], 1) < 0 && errno == EFAULT, "%lx can be read", looked_at[i]);
    CHECK(!munmap((void *)(END / 2), 4096), "give a page of it back");
    puts("still kept");
    return 3;
}
