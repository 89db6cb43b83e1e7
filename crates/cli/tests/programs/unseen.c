// Has news of a watched file that it does not read, which is not captured, until a file is there. Usage: unseen FILE
#include "check.h"

#include <sys/inotify.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char name[] = "/tmp/unseen.XXXXXX";
    int fd = inotify_init();
    CHECK(argc == 2 && fd >= 0 && mkdtemp(name), "a directory");
    CHECK(inotify_add_watch(fd, name, IN_DELETE_SELF) >= 0 && !rmdir(name), "a watch");
    while (access(argv[1], F_OK) != 0) usleep(20000);
    return 0;
}
