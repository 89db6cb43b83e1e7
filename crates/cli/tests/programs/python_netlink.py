# Netlink sockets that stay open: one is asked again and again, also by a child, one has groups and options.
# Usage: python_netlink.py TURNS
import hashlib, os, socket, struct, sys

SOL_NETLINK, ADD_MEMBERSHIP, LIST_MEMBERSHIPS, EXT_ACK = 270, 1, 9, 11
GET_LINK, DONE, DUMP = 18, 3, 0x301
ABOVE_32 = 33  # a group that bind(2) cannot name

asker = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
watcher = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 0)
watcher.bind((0, 0x11))
watcher.setsockopt(SOL_NETLINK, ADD_MEMBERSHIP, ABOVE_32)
watcher.setsockopt(SOL_NETLINK, EXT_ACK, 1)
watcher.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20000)
watcher.setblocking(False)


# Whether the loopback is among the interfaces.
def finds_loopback():
    asker.send(struct.pack("IHHII", 32, GET_LINK, DUMP, 1, 0) + bytes(16))
    found = b""
    while True:
        answer = asker.recv(1 << 16)
        found += answer
        if struct.unpack_from("H", answer, 4)[0] == DONE:
            return b"lo\0" in found


def told():
    try:
        while watcher.recv(1 << 16):
            pass
    except BlockingIOError:
        pass
    groups = watcher.getsockopt(SOL_NETLINK, LIST_MEMBERSHIPS, 64).hex()
    options = watcher.getsockopt(SOL_NETLINK, EXT_ACK), watcher.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    return groups, watcher.getsockname()[0] != 0, watcher.getsockname()[1], *options


work = hashlib.sha256()
for turn in range(int(sys.argv[1])):
    for _ in range(20):
        work.update(bytes(100000))
    if turn % 5 == 0:
        child = os.fork()
        if child == 0:
            os._exit(not finds_loopback())
        assert os.waitpid(child, 0)[1] == 0, "the child finds no loopback"
    print(turn, finds_loopback(), *told(), work.hexdigest()[:8], flush=True)
