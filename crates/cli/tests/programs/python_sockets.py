# Unix sockets with names among the program and its children: a manager, listeners of both kinds of names, a server of the
# program's own, and descriptors that are sent along. Usage: python_sockets.py TURNS
import asyncio, hashlib, multiprocessing as m, os, socket, sys
from multiprocessing.connection import Client, Listener


def digest(n):
    h = hashlib.sha256()
    for _ in range(n):
        h.update(bytes(20000))
    return h.hexdigest()


def together(target, arguments):
    running = [m.Process(target=target, args=each) for each in arguments]
    for one in running:
        one.start()
    return running


def ended(running):
    for one in running:
        one.join()
    return [one.exitcode for one in running]


def fills(known, lock, log, first):
    for n in range(first, first + 40):
        known[n] = digest(n)
        with lock:
            log.append(n)


def asks(address, count):
    with Client(address) as server:
        for n in range(count):
            server.send(n)
            assert server.recv() == digest(n)
        server.send(None)


def listens(address, ready, clients):
    with Listener(address, backlog=5) as listener:
        ready.set()
        for _ in range(clients):
            with listener.accept() as client:
                for n in iter(client.recv, None):
                    client.send(digest(n))


def lends(queue, count):
    for n in range(count):
        mine, theirs = m.Pipe()
        queue.put(theirs)
        mine.send(digest(n))
        assert mine.recv() == n
        mine.close()


# A connection that waits to be accepted, and whose other end is closed.
def late():
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("late")
        server.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect("late")
            client.sendall(bytes(5000))
        for n in range(40):
            digest(n)
        os.remove("late")
        connection, _ = server.accept()
        with connection:
            return len(connection.recv(10000))


async def serves(turn):
    async def answer(reader, writer):
        while line := await reader.readline():
            writer.write(digest(int(line)).encode() + b"\n")
        writer.close()

    async def client(first):
        reader, writer = await asyncio.open_unix_connection("served")
        total = hashlib.sha256()
        for n in range(first, first + 60):
            writer.write(b"%d\n" % n)
            total.update(await reader.readline())
        writer.close()
        return total.hexdigest()

    async with await asyncio.start_unix_server(answer, "served"):
        return await asyncio.gather(*(client(turn + k) for k in range(3)))


if __name__ == "__main__":
    m.set_start_method("fork")
    for turn in range(int(sys.argv[1])):
        with m.Manager() as manager:
            known, lock, log = manager.dict(), manager.Lock(), manager.list()
            codes = ended(together(fills, [(known, lock, log, 50 * k + turn) for k in range(3)]))
            print(codes, sorted(log), digest(len(known)), all(known[n] == digest(n) for n in log), flush=True)
        for address in ("listens", b"\0" + os.getcwd().encode()):
            ready = m.Event()
            server = together(listens, [(address, ready, 2)])
            ready.wait()
            print(ended(together(asks, [(address, 30 + turn), (address, 40)])), ended(server), flush=True)
        queue = m.Queue()
        lender = together(lends, [(queue, 30)])
        for n in range(30):
            with queue.get() as lent:
                assert lent.recv() == digest(n)
                lent.send(n)
        print(ended(lender), flush=True)
        print(late(), asyncio.run(serves(turn)), sorted(os.listdir()), flush=True)
        os.remove("served") if os.path.exists("served") else None
