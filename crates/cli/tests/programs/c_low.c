// A program that is linked to the addresses of twinpage's code, as those of GNU Common Lisp are. It waits for a file, and
// signals end each wait. Usage: c_low FILE
#include "check.h"

#include <poll.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

static volatile sig_atomic_t rings;

static void ring(int signal) {
    (void)signal;
    rings++;
}

int main(int argc, char **argv) {
    CHECK(argc == 2, "usage");
    struct sigaction action = {.sa_handler = ring};
    CHECK(!sigaction(SIGALRM, &action, NULL), "a handler");
    struct itimerval often = {{0, 5000}, {0, 5000}};
    CHECK(!setitimer(ITIMER_REAL, &often, NULL), "a timer");
    while (access(argv[1], F_OK))
        poll(NULL, 0, 20);
    CHECK(rings > 2, "%d signals came", rings);
    puts("end");
    return 3;
}
