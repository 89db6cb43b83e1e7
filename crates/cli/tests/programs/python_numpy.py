"""Linear algebra with numpy: large arrays, BLAS threads, and laws that must hold at every step.

- an orthogonal matrix is turned many times: it stays orthogonal, and lengths stay lengths;
- a permutation is applied and undone; integer arrays follow an exact law;
- a checksum of every array is kept, and compared each time before the array is used;
- BLAS is asked twice for the same product, and both must agree to the last bit.

Usage: python_numpy.py [ROUNDS]
"""

import hashlib
import os
import sys

import numpy as np

SIZE = 220
EXACT = 100_000
MODULUS = (1 << 31) - 1


def check(holds, what):
    """End the whole program when its own data is wrong."""
    if not holds:
        sys.stderr.write(f"python_numpy.py: does not hold: {what}\n")
        sys.stderr.flush()
        os.abort()


class Guarded:
    """An array that knows its own checksum."""

    def __init__(self, array):
        self.put(array)

    def put(self, array):
        """Replace the content."""
        self.array = array
        self.sum = hashlib.blake2b(array.tobytes()).digest()

    def get(self):
        """The content, compared with its checksum first."""
        check(hashlib.blake2b(self.array.tobytes()).digest() == self.sum, "an array changed under its checksum")
        return self.array


def product(a, b):
    """The same product twice, which threads must not make differ."""
    first, second = a @ b, a @ b
    check(np.allclose(first, second, rtol=0, atol=1e-12), "BLAS disagrees with itself")
    return first


def main():
    """Turn the matrices round by round."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 80
    chance = np.random.default_rng(5)
    turn = np.linalg.qr(chance.standard_normal((SIZE, SIZE)))[0]
    turning = Guarded(np.eye(SIZE))
    vectors = Guarded(chance.standard_normal((SIZE, 64)))
    lengths = np.linalg.norm(vectors.get(), axis=0)
    exact = Guarded(np.arange(1, EXACT + 1, dtype=np.int64))
    multiplier = 1
    image = Guarded(chance.integers(0, 256, (600, 600, 3), dtype=np.uint8))
    original = image.get().copy()
    for number in range(1, rounds + 1):
        # Orthogonal stays orthogonal.
        turning.put(product(turning.get(), turn))
        drift = np.abs(turning.get() @ turning.get().T - np.eye(SIZE)).max()
        check(drift < 1e-9, f"the matrix is no longer orthogonal: {drift}")
        turned = product(turning.get(), vectors.get())
        check(np.allclose(np.linalg.norm(turned, axis=0), lengths, rtol=1e-9), "lengths changed")
        # Exact arithmetic: element i is always i times the product of all multipliers.
        step = int(chance.integers(2, 1000))
        multiplier = multiplier * step % MODULUS
        exact.put(exact.get() * step % MODULUS)
        at = int(chance.integers(0, EXACT))
        check(int(exact.get()[at]) == (at + 1) * multiplier % MODULUS, f"element {at} of the exact array")
        # A permutation, applied and undone; large temporaries come and go.
        order = chance.permutation(600)
        shuffled = image.get()[order][:, order]
        image.put(np.ascontiguousarray(shuffled[np.argsort(order)][:, np.argsort(order)]))
        check(np.array_equal(image.get(), original), "an image did not come back")
        spectrum = np.fft.rfft2(image.get()[:, :, 0].astype(np.float64))
        back = np.rint(np.fft.irfft2(spectrum, s=(600, 600))).astype(np.uint8)
        check(np.array_equal(back, original[:, :, 0]), "a transform did not come back")
        digest = hashlib.blake2b(exact.get().tobytes(), digest_size=8).hexdigest()
        print(f"round {number} of {rounds}: {digest} drift below 1e-9", flush=True)
    print(f"digest {hashlib.blake2b(exact.get().tobytes() + image.get().tobytes(), digest_size=16).hexdigest()}")


main()
