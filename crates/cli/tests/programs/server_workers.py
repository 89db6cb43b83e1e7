# Keeps what clients set, in the words of memcached's text protocol, as servers with many processes do: three workers take
# connections from one listener, and what is set is appended to a file that all of them read. With "sync" as third
# argument it is synced before it is acknowledged. A worker ends after some connections, and another one takes its place.
import fcntl, os, socket, sys

WORKERS, TURNS = 3, 7

listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", int(sys.argv[1])))
name, syncs = sys.argv[2], sys.argv[3:] == ["sync"]
os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))


class Store:
    def __init__(self):
        self.file = os.open(name, os.O_RDWR | os.O_APPEND)
        self.known, self.read = {}, 0

    def set(self, key, value):
        fcntl.flock(self.file, fcntl.LOCK_EX)
        os.write(self.file, key + b" " + value + b"\n")
        fcntl.flock(self.file, fcntl.LOCK_UN)
        if syncs:
            os.fsync(self.file)

    def get(self, key):
        fcntl.flock(self.file, fcntl.LOCK_SH)
        new = os.pread(self.file, os.fstat(self.file).st_size - self.read, self.read)
        fcntl.flock(self.file, fcntl.LOCK_UN)
        self.read += len(new)
        self.known.update(line.split(b" ", 1) for line in new.splitlines())
        return self.known.get(key)


def answer(store, words, lines):
    if words[0] == b"set":
        store.set(words[1], next(lines)[:-2])
        return b"STORED\r\n"
    found = store.get(words[1])
    return b"END\r\n" if found is None else b"VALUE %s 0 %d\r\n%s\r\nEND\r\n" % (words[1], len(found), found)


def work():
    store = Store()
    for _ in range(TURNS):
        client, _ = listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with client, client.makefile("rb") as lines:
                for line in lines:
                    client.sendall(answer(store, line.split(), lines))
        except (OSError, StopIteration):
            pass  # the client is gone


listener.listen(50)
workers = set()
while True:
    while len(workers) < WORKERS:
        worker = os.fork()
        if worker == 0:
            work()
            os._exit(0)
        workers.add(worker)
    ended, status = os.wait()
    workers.remove(ended)
    if status:
        sys.exit(f"a worker ended with {status}")
