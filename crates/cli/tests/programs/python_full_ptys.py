# Full pseudo-terminals: in raw mode, and in canonical mode with echo and without. Later all bytes written are read, and
# no others. Usage: python_full_ptys.py TURNS
import errno, fcntl, os, pty, random, sys, termios, time, tty


def may_wait(fd, waits):
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    fcntl.fcntl(fd, fcntl.F_SETFL, flags & ~os.O_NONBLOCK if waits else flags | os.O_NONBLOCK)


# Pieces of all lengths. How much there is room for depends on the moment.
def fill(fd, chance):
    may_wait(fd, False)
    lengths = [1, 3, 64, 256, 500, 1024, 2016, 4096, 9000]
    most, mixed, refused, wrote = chance.choice(lengths), chance.random() < 0.5, 0, b""
    while refused < 20:
        if mixed and chance.random() < 0.1:
            most = chance.choice(lengths)
        piece = bytes(chance.choices(b"abcdefg\n", k=chance.randint(1, most)))
        try:
            wrote += piece[: os.write(fd, piece)]
        except OSError as error:
            assert error.errno == errno.EAGAIN, error
            refused, most = refused + 1, max(1, most // 2)
            time.sleep(0.001)
    may_wait(fd, True)
    return wrote


# Both ends are read until nothing has come for a while.
def drain(fds):
    found, idle = [b"" for _ in fds], 0
    for fd in fds:
        may_wait(fd, False)
    while idle < 30:
        idle += 1
        for n, fd in enumerate(fds):
            try:
                found[n] += os.read(fd, 65536)
                idle = 0
            except OSError as error:
                assert error.errno == errno.EAGAIN, error
        if idle:
            time.sleep(0.002)
    for fd in fds:
        may_wait(fd, True)
    return found


def full(mode, chance):
    master, other = pty.openpty()
    modes = termios.tcgetattr(other)
    if mode == "bytes":
        tty.setraw(other)
    elif mode == "lines":
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(other, termios.TCSANOW, modes)
    printed = fill(other, chance) if mode != "echo" else b""
    typed = fill(master, chance)
    time.sleep(0.15)
    found = drain([master, other])
    if mode != "bytes":  # the last is no line yet
        os.write(master, b"\n")
        found = [before + after for before, after in zip(found, drain([master, other]))]
        typed += b"\n"
        printed = (typed if mode == "echo" else printed).replace(b"\n", b"\r\n")
    os.close(master), os.close(other)
    lengths = [len(one) for one in [printed, found[0], typed, found[1]]]
    # The kernel drops an echo that comes too fast.
    is_shown = found[0] == printed or mode == "echo" and len(found[0]) < len(printed)
    assert is_shown and found[1] == typed, f"{mode}: {lengths}"


for turn in range(int(sys.argv[1])):
    for mode in ["bytes", "lines", "echo"]:
        full(mode, random.Random(turn))
        print(turn, mode, flush=True)
