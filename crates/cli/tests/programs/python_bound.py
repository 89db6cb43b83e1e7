# Unix sockets whose files lie elsewhere than their names lead, and one whose name a successor has. Usage: python_bound.py TURNS
import os, shutil, socket, stat, sys, time

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
    os.chdir("/")
    for number, file in enumerate(sorted(files)):
        os.chmod(f"{home}/{file}", 0o600 + number)
    return gone, files


for turn in range(int(sys.argv[1])):
    gone, files = begin()
    for n in range(20):
        time.sleep(0.01)
        print(turn, n, all(serves(listener, f"{home}/{file}") for file, listener in files.items()), flush=True)
    for file, listener in sorted(files.items()):
        mode = stat.S_IMODE(os.stat(f"{home}/{file}").st_mode)
        print(file, listener.getsockname().replace(home, ""), oct(mode), flush=True)
    os.chdir(home)
    print(gone.getsockname().replace(home, ""), sorted(os.listdir()), os.listdir("there"), flush=True)
    for listener in (gone, *files.values()):
        listener.close()
    for entry in os.listdir():
        shutil.rmtree(entry) if os.path.isdir(entry) else os.remove(entry)
