# Unix sockets whose files lie elsewhere than their names lead, of both kinds, and one whose name a successor has.
# Usage: python_bound.py TURNS
import os, socket, stat, sys, time

home = os.getcwd()


def listens(name):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(name)
    listener.listen()
    return listener


def serves(listener, file):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(file)
        with listener.accept()[0] as server:
            server.sendall(b"x")
            return client.recv(1) == b"x"


# A receiver, and a sender that is connected with it.
def letters(name, file):
    post, sender = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
    post.bind(name)
    sender.connect(name)
    os.rename(name, file)
    return post, sender


def begin():
    files = {}
    # The successor has the lower descriptor.
    lower = os.open("/dev/null", os.O_RDONLY)
    gone = listens(f"{home}/taken")
    os.close(lower)
    os.remove("taken")
    files["taken"] = listens(f"{home}/taken")
    assert files["taken"].fileno() < gone.fileno()
    for directory in ("there", "there/deep", "before"):
        os.mkdir(directory)
    for name, file in (
        ("near.new", "near"),
        (f"{home}/far.new", "there/far"),
        ("there/deep/down", "up"),
        ("near.new", "near.new"),
        (f"{home}/far.new", "far.new"),
    ):
        files[file] = listens(name)
        os.rename(name, file)
    files["after/near"], files["after/far"] = listens("before/near"), listens(f"{home}/before/far")
    os.rename("before", "after")
    files["stays"] = listens("stays")
    posts = [letters("post.new", "post"), letters("there/stays", "there/stays")]
    os.chdir("/")
    for number, file in enumerate(sorted(files)):
        os.chmod(f"{home}/{file}", 0o600 + number)
    return gone, files, posts


for turn in range(int(sys.argv[1])):
    gone, files, posts = begin()
    for n in range(20):
        for post, sender in posts:
            sender.send(b"%d" % n)
        time.sleep(0.01)
        for post, sender in posts:
            assert post.recv(100) == b"%d" % n and sender.getpeername() == post.getsockname()
        print(turn, n, all(serves(listener, f"{home}/{file}") for file, listener in files.items()), flush=True)
    for file, listener in sorted(files.items()):
        mode = stat.S_IMODE(os.stat(f"{home}/{file}").st_mode)
        print(file, listener.getsockname().replace(home, ""), oct(mode), flush=True)
    os.chdir(home)
    print(gone.getsockname().replace(home, ""), sorted(os.listdir()), os.listdir("there"), flush=True)
    for each in (gone, *files.values(), *sum(posts, ())):
        each.close()
    for file in (*files, "post", "there/stays"):
        os.remove(file)
    for directory in ("there/deep", "there", "after"):
        os.rmdir(directory)
