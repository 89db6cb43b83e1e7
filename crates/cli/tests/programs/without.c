// Asks for what is refused and programs go on without (a time stamp counter that traps), and for a socket where a
// second word is given; ends with the code of the first word.
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>

int main(int argc, char **argv) {
    prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
    if (argc > 2) socket(AF_PACKET, SOCK_RAW, 0);
    return argc > 1 ? atoi(argv[1]) : 0;
}
