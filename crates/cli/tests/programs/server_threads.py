# Counts the messages of all clients, a thread for each; prints how each connection ended.
import socket, sys, threading

count, lock = 0, threading.Lock()
listener = socket.socket()  # without SO_REUSEADDR, as servers that forget it
listener.bind(("127.0.0.1", int(sys.argv[1])))
listener.listen(20)


def serve(client):
    global count
    try:
        while client.recv(1):
            with lock:
                count += 1
                told = count
            client.sendall(b"%d\n" % told)
        print("closed\n", end="", flush=True)
    except OSError as error:
        print(f"error {error.errno}\n", end="", flush=True)


while True:
    client, _ = listener.accept()
    assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) == 0
    threading.Thread(target=serve, args=(client,), daemon=True).start()
