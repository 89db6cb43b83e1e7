# Counts the messages of clients at a Unix socket that is a file, and at one that is none; prints how each connection
# ended. Each count goes through two connections within the program, a stream and one of packets, where one is always on
# the way. A file that a client sends along is kept, and each count written to it.
import os, selectors, socket, sys

path, abstract = sys.argv[1], "\0" + sys.argv[2]
selector = selectors.DefaultSelector()


def listen(name, kind=socket.SOCK_STREAM):
    listener = socket.socket(socket.AF_UNIX, kind)
    listener.bind(name)
    listener.listen(10)
    return listener


listeners = [listen(path), listen(abstract), listen("near")]
assert listeners[2].getsockname() == "near"
os.chmod(path, 0o600)
for listener in listeners:
    selector.register(listener, selectors.EVENT_READ)
inside, given = [], []
for kind in [socket.SOCK_STREAM, socket.SOCK_SEQPACKET]:
    listener = listen(f"{path}-{int(kind)}", kind)
    one = socket.socket(socket.AF_UNIX, kind)
    one.connect(listener.getsockname())
    inside.append((one, listener.accept()[0]))
    listener.close()
post = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
post.bind(path + "-post")
post.setblocking(False)
letters = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
letters.connect(path + "-post")
count = 0


def on_the_way(number):
    for one, other in inside:
        one.send(b"%8d" % number)
        if number > 1:
            assert other.recv(8) == b"%8d" % (number - 1), number
    letters.send(b"%d" % number)
    try:  # what waited at a kill is lost
        while True:
            assert int(post.recv(100)) <= number
    except BlockingIOError:
        pass


while True:
    for key, _ in selector.select():
        if key.fileobj in listeners:
            selector.register(key.fileobj.accept()[0], selectors.EVENT_READ)
            continue
        client = key.fileobj
        try:
            message, files, _, _ = socket.recv_fds(client, 1, 1)
            given += files
            if message:
                count += 1
                for file in given:
                    os.write(file, b"%d\n" % count)
                on_the_way(count)
                client.sendall(b"%d\n" % count)
                continue
            print("closed\n", end="", flush=True)
        except OSError as error:
            print(f"error {error.errno}\n", end="", flush=True)
        selector.unregister(client)
        client.close()
