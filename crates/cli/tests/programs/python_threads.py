"""Python threads that share dictionaries, queues and big integers, and check them all the time.

- a ring of queues: every item comes back once, through blocking gets with and without timeouts;
- a bank under a lock: the sum of all accounts never changes;
- dictionaries, sets and lists beside a second copy kept another way;
- big integers: what modular arithmetic says about them must hold;
- hashes of growing byte strings, cyclic garbage that must be collected, generators suspended midway.

The output does not depend on how the threads are scheduled. Usage: python_threads.py [ROUNDS]
"""

import bisect
import gc
import hashlib
import queue
import random
import sys
import threading
import weakref

THREADS = 6
ACCOUNTS = 100
TOTAL = 1_000_000
PRIME = (1 << 127) - 1


def check(holds, what):
    """End the whole program when its own data is wrong."""
    if not holds:
        sys.stderr.write(f"python_threads.py: does not hold: {what}\n")
        sys.stderr.flush()
        import os

        os.abort()


class Bank:
    """Accounts whose sum never changes."""

    def __init__(self):
        self.lock = threading.RLock()
        self.accounts = [TOTAL // ACCOUNTS] * ACCOUNTS

    def move(self, chance):
        """Move some money, then count all of it."""
        source, target, amount = chance.randrange(ACCOUNTS), chance.randrange(ACCOUNTS), chance.randrange(500)
        with self.lock:
            self.accounts[source] -= amount
            self.accounts[target] += amount
            with self.lock:
                check(sum(self.accounts) == TOTAL, "the bank's sum")


class Shelf:
    """A dictionary, and the same content as a sorted list: both must always agree."""

    def __init__(self):
        self.by_key, self.keys = {}, []

    def step(self, chance):
        """Put, take or look up one key."""
        key = f"key-{chance.randrange(4000):05}"
        if key in self.by_key:
            at = bisect.bisect_left(self.keys, key)
            check(self.keys[at] == key, f"{key} is in the dictionary and not in the list")
            value = self.by_key.pop(key)
            check(value == key * (len(value) // len(key)), f"the value of {key}")
            del self.keys[at]
        else:
            self.by_key[key] = key * chance.randrange(1, 30)
            bisect.insort(self.keys, key)

    def check(self):
        """Compare the two copies."""
        check(sorted(self.by_key) == self.keys, "the dictionary's keys")


def primes():
    """A generator that stays suspended between rounds, with its own growing state."""
    found = []
    candidate = 2
    while True:
        if all(candidate % p for p in found if p * p <= candidate):
            found.append(candidate)
            yield candidate
        candidate += 1


class Node:
    """A node of a ring of garbage."""

    def __init__(self):
        self.other = None
        self.ballast = bytearray(300)


def make_garbage():
    """Leave cycles behind, and see that the collector finds them."""
    watched = []
    for _ in range(200):
        a, b = Node(), Node()
        a.other, b.other = b, a
        watched.append(weakref.ref(a))
    del a, b
    gc.collect()
    check(all(ref() is None for ref in watched), "cycles were collected")


class Worker(threading.Thread):
    """One thread: its own data, its place in the ring of queues, and the shared bank."""

    def __init__(self, number, bank, rounds):
        super().__init__(name=f"worker-{number}")
        self.number, self.bank, self.rounds = number, bank, rounds
        self.chance = random.Random(number)
        self.shelf, self.inbox = Shelf(), queue.Queue(maxsize=4)
        self.next, self.barrier = None, None
        self.big, self.residue = 3 + number, 3 + number
        self.digest = hashlib.sha256()
        self.primes, self.last_prime = primes(), 0
        self.local = threading.local()

    def big_integers(self):
        """Grow an integer and follow it modulo a prime."""
        factor = self.chance.getrandbits(500) | 1
        self.big, self.residue = self.big * factor + 1, (self.residue * factor + 1) % PRIME
        check(self.big % PRIME == self.residue, "a big integer and its residue")
        if self.big.bit_length() > 40_000:
            quotient, remainder = divmod(self.big, factor)
            check(quotient * factor + remainder == self.big, "a division")
            self.big = self.residue = remainder % PRIME

    def pass_on(self, step):
        """Send one item to the next thread and take one from the last."""
        item = (self.number, step, self.chance.random())
        self.next.inbox.put(item)
        while True:
            try:
                sender, its_step, value = self.inbox.get(timeout=0.01)
                break
            except queue.Empty:
                continue
        check(sender == (self.number - 1) % THREADS and its_step == step, "an item came out of turn")
        self.digest.update(f"{sender}{its_step}{value!r}".encode())

    def one_round(self, number):
        """What a thread does between two barriers."""
        check(getattr(self.local, "round", number) == number, "a thread-local value")
        for step in range(12):
            for _ in range(25):
                self.shelf.step(self.chance)
            self.bank.move(self.chance)
            self.big_integers()
            self.pass_on(step)
        for _ in range(5):
            prime = next(self.primes)
            check(prime > self.last_prime, "a generator went back")
            self.last_prime = prime
        self.shelf.check()
        self.digest.update(f"{self.residue} {self.last_prime} {len(self.shelf.keys)}".encode())
        self.local.round = number + 1

    def run(self):
        for number in range(self.rounds):
            self.one_round(number)
            self.barrier.wait()  # the round is over
            self.barrier.wait()  # and has been told


def main():
    """Run the rounds and tell each one's digest."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 240
    sys.setswitchinterval(0.001)
    bank = Bank()
    workers = [Worker(number, bank, rounds) for number in range(THREADS)]
    barrier = threading.Barrier(THREADS + 1)
    for worker in workers:
        worker.next = workers[(worker.number + 1) % THREADS]
        worker.barrier = barrier
        worker.daemon = True
        worker.start()
    for number in range(1, rounds + 1):
        barrier.wait()
        make_garbage()
        whole = hashlib.sha256(repr(bank.accounts).encode())
        for worker in workers:
            whole.update(worker.digest.digest())
        print(f"round {number} of {rounds}: {whole.hexdigest()[:16]}", flush=True)
        barrier.wait()
    for worker in workers:
        worker.join()
    print(f"digest {whole.hexdigest()}")


main()
