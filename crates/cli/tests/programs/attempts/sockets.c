// Sockets: connected, listening, in pairs, and to services that are not there.
#include "attempts.h"

#include <arpa/inet.h>
#include <limits.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

void socket_connect(void) {
    // A listener of its own, so that the connection is real.
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    NEED(listener >= 0 && !bind(listener, (void *)&address, len) && !listen(listener, 1));
    CHECK(!getsockname(listener, (void *)&address, &len), "getsockname");
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && !connect(fd, (void *)&address, len), "connect");
    other = accept(listener, NULL, NULL);
    use_pair(fd, other);
}

static void goes_on_listening(const struct sockaddr_un *bound) {
    FOR_A_WHILE {
        struct sockaddr_un address = {0};
        int accepting = 0;
        socklen_t len = sizeof accepting, name = sizeof address;
        CHECK(!getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepting, &len) && accepting, "the socket listens");
        CHECK(!getsockname(fd, (void *)&address, &name), "getsockname");
        CHECK(!strcmp(address.sun_path, bound->sun_path), "it is bound to %s", address.sun_path);
        step(i, 1);
    }
}

void socket_listen(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "attempt.socket"};
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    NEED(fd >= 0 && !bind(fd, (void *)&address, sizeof address) && !listen(fd, 4));
    goes_on_listening(&address);
    CHECK(!unlink("attempt.socket"), "unlink");
    goes_on_listening(&address);
    CHECK(!close(fd) && access("attempt.socket", F_OK) && errno == ENOENT, "close");

    // Its file is removed, and the directory of that, as Python's multiprocessing does at the end.
    char here[PATH_MAX];
    NEED(getcwd(here, sizeof here));
    int length = snprintf(address.sun_path, sizeof address.sun_path, "%s/attempt.dir/socket", here);
    NEED(length < (int)sizeof address.sun_path);
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(!mkdir("attempt.dir", 0700) && !bind(fd, (void *)&address, sizeof address) && !listen(fd, 4), "listen");
    step(0, 2);
    CHECK(!unlink(address.sun_path) && !rmdir("attempt.dir"), "remove");
    goes_on_listening(&address);
    CHECK(access("attempt.dir", F_OK) && errno == ENOENT, "the directory is there again");
}

void socket_pair(void) {
    int ends[2];
    NEED(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    use_pair(ends[0], ends[1]);
}

void socket_udp(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    fd = socket(AF_INET, SOCK_DGRAM, 0), other = socket(AF_INET, SOCK_DGRAM, 0);
    NEED(fd >= 0 && other >= 0 && !bind(other, (void *)&address, len));
    CHECK(!getsockname(other, (void *)&address, &len) && !connect(fd, (void *)&address, len), "connect");
    use_pair(fd, other);
}

// Asking for a service that is not there is no connection: name lookups in libc do so all the time.
void socket_to_nowhere(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/nonexistent/socket"};
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    NEED(s >= 0);
    CHECK(connect(s, (void *)&address, sizeof address) && errno == ENOENT, "connect to nowhere");
    CHECK(!close(s), "close");
    FOR_A_WHILE step(i, 2);
}
