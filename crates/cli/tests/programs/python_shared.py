# Locks, arrays, values, barriers, pools, queues and named memory that processes share. Usage: python_shared.py TURNS
import hashlib, multiprocessing as m, sys
from multiprocessing import shared_memory


def digest(n):
    h = hashlib.sha256()
    for _ in range(n):
        h.update(bytes(20000))
    return h.hexdigest()


def counts(lock, many, array, value, barrier):
    barrier.wait()
    for i in range(many):
        with lock:
            array[i % len(array)] += i
        with value.get_lock():
            value.value += 1


def serves(jobs, answers, name):
    memory = shared_memory.SharedMemory(name)
    for at, n in iter(jobs.get, None):
        memory.buf[at : at + 32] = bytes.fromhex(digest(n))
        answers.put(at)
    memory.close()


def together(target, arguments):
    running = [m.Process(target=target, args=each) for each in arguments]
    for one in running:
        one.start()
    return running


def ended(running):
    for one in running:
        one.join()
    return [one.exitcode for one in running]


if __name__ == "__main__":
    m.set_start_method("fork")
    for turn in range(int(sys.argv[1])):
        lock, array, value, barrier = m.Lock(), m.RawArray("q", 1000), m.Value("q"), m.Barrier(3)
        codes = ended(together(counts, [(lock, 1500 + k, array, value, barrier) for k in range(3)]))
        print(sum(array), value.value, codes, flush=True)
        with m.Pool(2) as pool:
            print(hashlib.sha256("".join(pool.map(digest, range(40 + turn, 80 + turn), 3)).encode()).hexdigest(), flush=True)
        memory = shared_memory.SharedMemory(create=True, size=1 << 16)
        jobs, answers = m.Queue(), m.Queue()
        servers = together(serves, [(jobs, answers, memory.name)] * 2)
        for k in range(30):
            jobs.put((k * 2000, 30 + k))
        print(sum(answers.get() for _ in range(30)), hashlib.sha256(memory.buf).hexdigest(), flush=True)
        for _ in servers:
            jobs.put(None)
        print(ended(servers), flush=True)
        memory.close()
        memory.unlink()
