// Has a socket pair, which is not captured of a child, until a file is there. Usage: unseen FILE
#include "check.h"

#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int pair[2];
    CHECK(argc == 2 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "a pair");
    while (access(argv[1], F_OK) != 0) usleep(20000);
    return 0;
}
