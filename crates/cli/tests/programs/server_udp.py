# Counts the messages that come to a UDP socket, and sends as many to itself through one that is connected; answers with
# the message and both counts.
import socket, sys

server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", int(sys.argv[1])))
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
own.connect(server.getsockname())
count = inside = 0

while True:
    message, sender = server.recvfrom(100)
    if message == b"inside":
        assert sender == own.getsockname()
        inside += 1
        continue
    count += 1
    assert own.getpeername() == server.getsockname()
    assert own.getsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST) == 1
    own.send(b"inside")
    server.sendto(b"%s %d %d" % (message, count, inside), sender)
