// A program that has a place (O_PATH) open, whose file others may remove: then it cannot be captured.
//
// It says "ready", waits for the file "close" to close the place, says "closed", waits for the file "end",
// and says "end". It gives up after two minutes. Usage: uncapturable FILE
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

static void wait_for(const char *name) {
    for (int i = 0; i < 60000 && access(name, F_OK); i++) {
        int copy = dup(0); // what is open is looked at again
        CHECK(copy >= 0 && !close(copy), "dup");
        usleep(2000);
    }
    CHECK(!access(name, F_OK), "nothing came");
}

static void say(const char *word) {
    puts(word);
    fflush(stdout);
}

int main(int argc, char **argv) {
    CHECK(argc == 2, "usage");
    int place = open(argv[1], O_PATH);
    CHECK(place >= 0, "open %s", argv[1]);
    say("ready");
    wait_for("close");
    CHECK(!close(place), "close");
    say("closed");
    wait_for("end");
    say("end");
    return 7;
}
