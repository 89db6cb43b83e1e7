// Works so deep below its directory that the kernel tells no absolute name there (PATH_MAX).
//
// Usage: deep make | change | stay
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEVELS = 25 };

int main(int argc, char **argv) {
    char part[201];
    memset(part, 'a', 200), part[200] = 0;
    int make = argc > 1 && !strcmp(argv[1], "make");
    for (int i = 0; i < LEVELS; i++) {
        CHECK(!make || !mkdir(part, 0700), "mkdir at level %d", i);
        CHECK(!chdir(part), "chdir at level %d", i);
    }
    if (argc > 1 && !strcmp(argv[1], "stay")) {
        for (;;) usleep(1000), spin(1, 100000);
    }
    for (int i = 0; !make && i < 3; i++) {
        CHECK(mkdir("new", 0700) == -1, "mkdir");
        printf("mkdir: %s\n", strerror(errno));
    }
    if (!make) {
        CHECK(open("file", O_CREAT | O_WRONLY, 0600) == -1, "open");
        printf("open: %s\n", strerror(errno));
    }
    for (int i = 0; i < LEVELS; i++) CHECK(!chdir(".."), "go up");
    printf("end\n");
    return 0;
}
