# Keeps what clients set, in the words of memcached's text protocol. With a file as second argument what is set is
# appended there and synced before it is acknowledged, and the memory is all that is read: a lost write shows.
import os, selectors, signal, socket, sys

listener = socket.socket()
listener.bind(("127.0.0.1", int(sys.argv[1])))
listener.listen(50)
log = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if len(sys.argv) > 2 else None
if log is not None:  # signals come while it syncs
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
store, waiting, selector = {}, {}, selectors.DefaultSelector()
selector.register(listener, selectors.EVENT_READ)


def answer(line, value):
    words = line.split()
    if words[0] == b"set":
        store[words[1]] = value
        if log is not None:
            os.write(log, words[1] + b" " + value + b"\n")
            os.fsync(log)
        return b"STORED\r\n"
    found = store.get(words[1])
    if found is None:
        return b"END\r\n"
    return b"VALUE %s 0 %d\r\n%s\r\nEND\r\n" % (words[1], len(found), found)


def serve(client):
    got = client.recv(65536)
    if not got:
        raise ConnectionResetError
    data = waiting[client] + got
    while b"\r\n" in data:
        line, rest = data.split(b"\r\n", 1)
        value = None
        if line.startswith(b"set"):
            if b"\r\n" not in rest:
                break
            value, rest = rest.split(b"\r\n", 1)
        client.sendall(answer(line, value))
        data = rest
    waiting[client] = data


while True:
    for key, _ in selector.select():
        if key.fileobj is listener:
            client, _ = listener.accept()
            selector.register(client, selectors.EVENT_READ)
            waiting[client] = b""
            continue
        try:
            serve(key.fileobj)
        except OSError:
            selector.unregister(key.fileobj)
            del waiting[key.fileobj]
            key.fileobj.close()
