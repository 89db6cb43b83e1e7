// Has an inotify descriptor, which is not captured, until a file is there. Usage: unseen FILE
#include "check.h"

#include <sys/inotify.h>
#include <unistd.h>

int main(int argc, char **argv) {
    CHECK(argc == 2 && inotify_init() >= 0, "a watch");
    while (access(argv[1], F_OK) != 0) usleep(20000);
    return 0;
}
