# Messages of UDP and Unix datagram sockets among the program and its children: rings of processes that pass on a number,
# messages that wait while their receiver does something else, a question to itself. Usage: python_datagrams.py TURNS
import hashlib, os, socket, sys, tempfile

DIRECTORY = tempfile.mkdtemp()
# Each makes an address for a number.
KINDS = [
    (socket.AF_INET, lambda n: ("127.0.0.1", 0)),
    (socket.AF_UNIX, lambda n: f"{DIRECTORY}/{n}"),
    (socket.AF_UNIX, lambda n: b"\0datagrams-%d-%d" % (os.getpid(), n)),
]
try:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        probe.bind(("::1", 0))
    KINDS.append((socket.AF_INET6, lambda n: ("::1", 0)))
except OSError:
    pass


def digest(n):
    h = hashlib.sha256()
    for _ in range(n):
        h.update(bytes(20000))
    return h.hexdigest().encode()


def bound(family, address):
    made = socket.socket(family, socket.SOCK_DGRAM)
    if isinstance(address, str) and os.path.exists(address):
        os.unlink(address)
    made.bind(address)
    return made


def child(work, *arguments):
    pid = os.fork()
    if pid == 0:
        try:
            work(*arguments)
        except BaseException as error:
            print("child:", repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    return pid


def ended(pids):
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


# Takes a number from the one before, and gives it on to the one behind.
def passes_on(here, before, behind, laps):
    for lap in range(laps):
        message, sender = here.recvfrom(100)
        assert sender == before, (lap, sender, before)
        number = int(message)
        digest(number % 20)
        here.sendto(b"%d" % (number * 3 % 1000003 + 1), behind)


def ring(turn):
    found = []
    for family, address in KINDS:
        sockets = [bound(family, address(n)) for n in range(4)]
        names = [made.getsockname() for made in sockets]
        laps = 40 + turn
        pids = [
            child(passes_on, sockets[n], names[n - 1], names[(n + 1) % 4], laps) for n in range(1, 4)
        ]
        number = turn
        for lap in range(laps):
            sockets[0].sendto(b"%d" % number, names[1])
            message, sender = sockets[0].recvfrom(100)
            assert sender == names[3], (lap, sender)
            number = int(message)
        found += [number, ended(pids)]
        for made in sockets:
            made.close()
    return found


def sends(family, address, to, count, tell):
    with bound(family, address) as here:
        os.write(tell, repr(here.getsockname()).encode())
        for n in range(count):
            here.sendto(b"%d" % n * (n + 1), to)


# Messages wait while their receiver works, and their senders are closed.
def waits(turn):
    total, found = hashlib.sha256(), []
    for family, address in KINDS:
        with bound(family, address(0)) as here:
            read, write = os.pipe()
            assert ended([child(sends, family, address(1), here.getsockname(), 5, write)]) == [0]
            sender = os.read(read, 1000).decode()
            for n in range(60 + turn):
                total.update(digest(n))
            for n in range(5):
                message, came_from = here.recvfrom(1000)
                # No other socket takes the name of a file: after a kill such a message comes from none.
                may_be_lost = isinstance(address(1), str) and came_from is None
                assert message == b"%d" % n * (n + 1) and (repr(came_from) == sender or may_be_lost), (came_from, sender)
                found.append(len(message))
            here.setblocking(False)
            try:
                found.append(here.recv(1000))
            except BlockingIOError:
                found.append("no more")
            os.close(read)
            os.close(write)
    return found, total.hexdigest()


# A connected socket is told of a port without a receiver, also some time later.
def refused():
    with bound(socket.AF_INET, ("127.0.0.1", 0)) as gone:
        address = gone.getsockname()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks:
        asks.connect(address)
        asks.send(b"anybody?")
        digest(300)
        asks.settimeout(20)
        try:
            return asks.recv(100)
        except ConnectionRefusedError:
            return "refused"
        except TimeoutError:
            return "refused"  # a kill takes it along, as it does messages of UDP


# What it sends to itself, through a socket that has both ends.
def itself(turn):
    with bound(socket.AF_INET, ("0.0.0.0", 0)) as here:
        here.connect(("127.0.0.1", here.getsockname()[1]))
        for n in range(50):
            here.send(b"%d" % (n * turn))
            digest(n)
            assert here.recv(100) == b"%d" % (n * turn)
        return here.getpeername() == here.getsockname()


for turn in range(int(sys.argv[1])):
    print(ring(turn), waits(turn), refused(), itself(turn), flush=True)
for name in os.listdir(DIRECTORY):
    os.unlink(f"{DIRECTORY}/{name}")
os.rmdir(DIRECTORY)
