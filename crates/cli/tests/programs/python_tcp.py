# TCP connections over loopback among the program and its children: a server of several connections, half-closes, bytes
# that wait, a connection to itself, one whose other end was closed, others that were not accepted yet.
# Usage: python_tcp.py TURNS
import asyncio, hashlib, os, socket, sys

FAMILIES = [(socket.AF_INET, "127.0.0.1")]
try:
    socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    FAMILIES.append((socket.AF_INET6, "::1"))
except OSError:
    pass


def digest(n):
    h = hashlib.sha256()
    for _ in range(n):
        h.update(bytes(20000))
    return h.hexdigest().encode()


def exactly(connection, length):
    got = b""
    while len(got) < length:
        more = connection.recv(length - len(got))
        if not more:
            break
        got += more
    return got


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


def asks(address, family, count):
    with socket.socket(family) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.connect(address)
        here = connection.getsockname()
        for n in range(count):
            connection.sendall(b"%8d" % n)
            assert exactly(connection, 64) == digest(n), n
            assert connection.getpeername() == address
            assert connection.getsockname()[0] == here[0]
        connection.shutdown(socket.SHUT_WR)
        assert exactly(connection, 100) == b"all %8d" % count


def serves(server):
    connection, _ = server.accept()
    with connection:
        done = 0
        while len(asked := exactly(connection, 8)) == 8:
            connection.sendall(digest(int(asked)))
            done += 1
        connection.sendall(b"all %8d" % done)


def requests(turn):
    codes = []
    for family, host in FAMILIES:
        with socket.create_server((host, 0), family=family) as server:
            address = server.getsockname()
            clients = [child(asks, address, family, 40 + 10 * k + turn) for k in range(3)]
            servers = [child(serves, server) for _ in clients]
            codes += ended(clients) + ended(servers)
    return codes


# Bytes that wait at both ends, while the ends do something else; then the end of one.
def waits(turn):
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    there, back = bytes(range(256)) * (40 + turn), b"and back" * 2000
    one.sendall(there)
    other.sendall(back)
    total = hashlib.sha256()
    for n in range(60):
        total.update(digest(n))
    one.shutdown(socket.SHUT_WR)
    for n in range(60):
        total.update(digest(n))
    assert exactly(other, len(there) + 1) == there
    other.sendall(b"still open")
    other.close()
    for n in range(60):
        total.update(digest(n))
    assert exactly(one, len(back) + 100) == back + b"still open"
    one.close()
    return total.hexdigest()


def asks_once(address, length):
    with socket.create_connection(address) as connection:
        connection.sendall(bytes(length))


# Connections that wait to be accepted, and whose other ends are closed.
def late(turn):
    with socket.create_server(("127.0.0.1", 0)) as server:
        asks_once(server.getsockname(), 5000 + turn)
        asking = child(asks_once, server.getsockname(), 6000)
        codes = ended([asking])
        for n in range(60):
            digest(n)
        for _ in range(2):
            connection, _ = server.accept()
            with connection:
                codes.append(len(exactly(connection, 10000)))
    return codes


async def many(turn):
    async def answer(reader, writer):
        while line := await reader.readline():
            writer.write(digest(int(line)) + b"\n")
        writer.close()

    async def client(port, first):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        total = hashlib.sha256()
        for n in range(first, first + 60):
            writer.write(b"%d\n" % n)
            total.update(await reader.readline())
        writer.close()
        return total.hexdigest()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        return await asyncio.gather(*(client(port, turn + k) for k in range(4)))


def refused():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    try:
        socket.create_connection(address)
        return "connected"
    except ConnectionRefusedError:
        return "refused"


# Sockets that stay: one listens, one may yet. The size of their segments is used when a connection is made.
def unconnected(size):
    one = socket.socket()
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, size)
    for level, name, value in chosen:
        one.setsockopt(level, name, value)
    one.bind(("127.0.0.1", 0))
    return one


RECVTTL, RECVTOS, MARK = 12, 13, 36
chosen = [
    (socket.IPPROTO_TCP, socket.TCP_CORK, 1),
    (socket.SOL_SOCKET, socket.SO_OOBINLINE, 1),
    (socket.IPPROTO_IP, socket.IP_TOS, 16),
    (socket.IPPROTO_IP, socket.IP_TTL, 77),
    (socket.IPPROTO_IP, RECVTTL, 0),
    (socket.IPPROTO_IP, RECVTOS, 1),
    (socket.SOL_SOCKET, MARK, 0),  # not captured: it has this value already
]


listens, idle = unconnected(1220), unconnected(1240)
listens.listen()

for turn in range(int(sys.argv[1])):
    sizes = [one.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) for one in (listens, idle)]
    for level, name, value in chosen:
        assert [one.getsockopt(level, name) for one in (listens, idle)] == [value, value], name
    print(requests(turn), waits(turn), late(turn), asyncio.run(many(turn)), refused(), sizes, flush=True)
