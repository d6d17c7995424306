"""The memory bandwidth that all rows are measured against: a = b + s c on arrays far larger than any cache."""

import time
from statistics import median

import numba
import numpy as np

ELEMENTS = 50_000_000  # three arrays of 400 MB


@numba.njit(parallel=True)
def _fill(a, b, c):
    for n in numba.prange(len(a)):
        a[n], b[n], c[n] = 0.0, n, 1.0


@numba.njit(parallel=True)
def _triad(a, b, s, c):
    for n in numba.prange(len(a)):
        a[n] = b[n] + s * c[n]


class Triad:
    """Measures bytes per second, 24 bytes an element as STREAM counts them."""

    def __init__(self) -> None:
        self.arrays = tuple(np.empty(ELEMENTS) for _ in range(3))
        _fill(*self.arrays)
        self.bandwidth(1, 1)

    def bandwidth(self, threads: int, rounds: int = 3) -> float:
        a, b, c = self.arrays
        before = numba.get_num_threads()
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
        try:
            times = []
            for _ in range(rounds):
                start = time.perf_counter()
                _triad(a, b, 3.0, c)
                times.append(time.perf_counter() - start)
        finally:
            numba.set_num_threads(before)
        return 24 * ELEMENTS / median(times)
