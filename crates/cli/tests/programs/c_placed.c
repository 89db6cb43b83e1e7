// Where memory lies: calls that succeed and change nothing that a program can notice.
#define _GNU_SOURCE
#include "check.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    unsigned long nodes = 1;
    size_t len = 1 << 16;
    unsigned char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED, "mmap");
    CHECK(!syscall(SYS_mbind, at, len, MPOL_BIND, &nodes, 8 * sizeof nodes, 0), "mbind");
    CHECK(!syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, &nodes, 8 * sizeof nodes), "set_mempolicy");
    CHECK(!mlock(at, len) && !mlock2(at, len, MLOCK_ONFAULT) && !munlock(at, len), "mlock");
    CHECK(!mlockall(MCL_CURRENT | MCL_FUTURE) && !munlockall(), "mlockall");
    pattern_fill(at, 7, 0, len);
    pattern_check(at, 7, 0, len, "memory that was placed");
    puts("placed");
    return 0;
}
