# Sends the same bytes to each client, in the way that it asks for; prints what it found of the connection.
import os, select, socket, struct, sys

bytes_sent = b"".join(b"%07d\n" % number for number in range(400_000))
with open("bytes", "wb") as file:
    file.write(bytes_sent)


def write(client):
    rest = memoryview(bytes_sent)
    while rest:
        rest = rest[os.write(client.fileno(), rest) :]


def sendmsg(client):
    rest = memoryview(bytes_sent)
    while rest:
        rest = rest[client.sendmsg([rest[:10], rest[10:50], rest[50:100_000]]) :]


def sendfile(client):
    with open("bytes", "rb") as file:
        file.seek(8)
        client.sendall(bytes_sent[:8])
        assert client.sendfile(file, 8) == len(bytes_sent) - 8
        assert file.tell() == len(bytes_sent)


def edges(client):
    client.setblocking(False)
    poll = select.epoll()
    poll.register(client, select.EPOLLOUT | select.EPOLLET)
    rest = memoryview(bytes_sent)
    while rest:
        try:
            rest = rest[client.send(rest[:300_000]) :]
        except BlockingIOError:
            poll.poll()


def limited(client):
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 200_000))
    try:
        while True:
            client.send(bytes_sent)
    except BlockingIOError:
        print("its time was up", flush=True)


def half(client):
    client.sendall(bytes_sent)
    client.shutdown(socket.SHUT_WR)
    try:
        client.send(b"more")
        print("sent more", flush=True)
    except BrokenPipeError:
        print("a broken pipe", flush=True)
    print(client.recv(100).decode(), flush=True)


# From its half-close until its peer knows of it, and after.
def refused(client):
    client.sendall(b"all")
    client.shutdown(socket.SHUT_WR)
    while True:
        try:
            client.send(b"more")
            print("sent more", flush=True)
        except BrokenPipeError:
            pass
        try:
            return client.recv(100, socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass


def last(client):
    client.sendall(bytes_sent)
    sys.exit()


ways = {"sendall": lambda client: client.sendall(bytes_sent)}
ways.update({way.__name__: way for way in [write, sendmsg, sendfile, edges, limited, half, refused, last]})
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    client, _ = listener.accept()
    ways[client.recv(100).decode()](client)
    client.close()
