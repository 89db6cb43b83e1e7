# Pseudo-terminals that the program makes: a shell with job control, lines that are typed bit by bit, more output than is
# read at once, one within the program, and one whose other end is closed. Usage: python_ptys.py TURNS
import errno, fcntl, hashlib, os, pty, select, struct, sys, termios, tty


def digest(n):
    h = hashlib.sha256()
    for _ in range(n):
        h.update(bytes(20000))
    return h.hexdigest()


# What the other end printed, and nothing when it is closed and all was read. A read that waits while the last is printed
# may get EIO before that; the next one gets it.
def read(master, length):
    for _ in range(2):
        try:
            return os.read(master, length)
        except OSError as error:
            assert error.errno == errno.EIO, error
    return b""


class Terminal:
    def __init__(self, words):
        self.seen = b""
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.environ.update(PS1="#> ", TERM="dumb", ENV="", HISTFILE="")
            os.execvp(words[0], words)

    def type(self, text):
        os.write(self.master, text)

    # What is shown up to and including `end`.
    def until(self, end):
        while end not in self.seen:
            self.seen += os.read(self.master, 500)
        before, self.seen = self.seen.split(end, 1)
        return before + end

    def rest(self):
        while more := read(self.master, 500):
            self.seen += more
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.master)
        return self.seen, code


def lines(turn):
    cat = Terminal(["cat"])
    shown = []
    for n in range(12):
        cat.type(b"line %d, " % n)
        digest(20 * n)
        cat.type(b"and the rexx\x7f\x7fst\n")
        if n % 3 == 2:
            shown += [cat.until(b"and the rest\r\n") for _ in range(3)]
    cat.type(b"typed ahead\nand")
    digest(200 + turn)
    cat.type(b" more\n\x04")
    rest, code = cat.rest()
    # Where the echo comes between what is printed is not said.
    return hashlib.sha256(bytes(sorted(b"".join(shown) + rest))).hexdigest(), code


def shell(turn):
    sh = Terminal(["bash", "--norc", "--noprofile", "-i"])
    sh.until(b"#> ")
    found = []
    fcntl.ioctl(sh.master, termios.TIOCSWINSZ, struct.pack("HHHH", 30 + turn, 90, 0, 0))
    commands = [b"stty size", b"echo $((6 * 7))", b"sleep 0.02 & wait", b"jobs", b"tty | tr -d 0-9"]
    for n, command in enumerate(commands):
        sh.type(command + b"; echo done $((%d + 100))\n" % n)
        shown = sh.until(b"done %d\r\n" % (n + 100)).split(b"\r\n")
        # Without what was typed, which is shown twice where it comes before the prompt, and the news of jobs.
        found.append([line for line in shown if b"echo done" not in line and b"sleep" not in line and line[:1] != b"["])
    sh.type(b"sh -c 'trap \"echo w$((1))oke\" CONT; echo b$((1))egun; while :; do :; done'\n")
    sh.until(b"b1egun\r\n")
    digest(200)
    sh.type(b"\x1a")  # ^Z
    sh.until(b"Stopped")
    sh.type(b"fg\n")
    sh.until(b"w1oke\r\n")
    digest(200)
    sh.type(b"\x03")  # ^C
    sh.until(b"#> ")
    sh.type(b"echo ended with $?\n")
    sh.until(b"with 130\r\n")
    sh.type(b"exit 3\n")
    found.append(sh.rest()[1])
    return found


def flood():
    seq = Terminal(["seq", "1", "20000"])
    total, length = hashlib.sha256(), 0
    while piece := read(seq.master, 3000):
        total.update(piece)
        length += len(piece)
        if length % 7 == 0:
            digest(30)
    return length, total.hexdigest(), seq.rest()[1]


def exactly(fd, length):
    got = b""
    while len(got) < length:
        got += os.read(fd, length - len(got))
    return got


def within(turn):
    master, other = pty.openpty()
    tty.setraw(other)
    modes = termios.tcgetattr(other)
    modes[3] |= termios.ECHO
    termios.tcsetattr(other, termios.TCSANOW, modes)
    os.write(master, b"typed %d" % turn)
    os.write(other, b"printed\n")
    digest(300)
    assert termios.tcgetattr(other) == modes
    got = [exactly(other, len("typed %d" % turn)), bytes(sorted(exactly(master, len("typed %dprinted\n" % turn))))]
    ready = select.select([master, other], [], [], 0)[0]
    os.write(other, b"last words")
    os.close(other)
    digest(300)
    got.append(exactly(master, len("last words")))
    try:
        os.read(master, 100)
    except OSError as error:
        got.append(errno.errorcode[error.errno])
    os.close(master)
    return got, ready


for turn in range(int(sys.argv[1])):
    print(lines(turn), shell(turn), flood(), within(turn), flush=True)
