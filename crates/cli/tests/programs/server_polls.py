# Counts the messages of all clients in one loop over epoll(7); prints how each connection ended.
import asyncio, sys

count = 0


async def serve(reader, writer):
    global count
    try:
        while await reader.read(1):
            count += 1
            writer.write(b"%d\n" % count)
            await writer.drain()
        print("closed\n", end="", flush=True)
    except OSError as error:
        print(f"error {error.errno}\n", end="", flush=True)


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()


asyncio.run(main())
