# Sockets that tell who sent a message (SO_PASSCRED): ends of pairs, a connection and a datagram socket with names, of
# which a child writes to each. Usage: python_senders.py TURNS
import hashlib, os, socket, struct, sys

CREDENTIALS = struct.Struct("3i")


def telling(kind):
    one = socket.socket(socket.AF_UNIX, kind)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    return one


stream, datagram = telling(socket.SOCK_STREAM), telling(socket.SOCK_DGRAM)
stream.bind("stream")
stream.listen()
datagram.bind("datagram")
ends = []
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    reads, writes = socket.socketpair(socket.AF_UNIX, kind)
    reads.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    ends.append((reads, writes))


def works(amount):
    work = hashlib.sha256()
    for _ in range(amount):
        work.update(bytes(100000))
    return work.hexdigest()[:8]


def write(turn):
    with socket.socket(socket.AF_UNIX) as out, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        out.connect("stream")
        for part in range(3):
            for _, writes in ends:
                writes.send(b"%d" % part)
            out.send(b"%d" % part)
            sender.sendto(b"%d" % part, "datagram")
            works(5)


def hear(one, child):
    bytes_, along, _, _ = one.recvmsg(1, 100)
    found = [CREDENTIALS.unpack(data) for level, kind, data in along if kind == socket.SCM_CREDENTIALS]
    assert found == [(child, os.getuid(), os.getgid())], (found, child)
    return bytes_.decode()


for turn in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        write(turn)
        os._exit(0)
    accepted, _ = stream.accept()
    heard = ""
    for part in range(3):
        heard += "".join(hear(one, child) for one in [reads for reads, _ in ends] + [accepted, datagram])
        works(3)
    accepted.close()
    assert os.waitpid(child, 0)[1] == 0, "the child failed"
    asked = [one.getsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED) for one in (stream, datagram, ends[0][0])]
    print(turn, heard, asked, works(20), flush=True)
for name in ("stream", "datagram"):
    os.unlink(name)
