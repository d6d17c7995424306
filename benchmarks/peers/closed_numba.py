"""The closed form by hand in Numba: one loop over the events, all threads, fastmath."""

import numba
from problems import output

from . import Peer
from .closed_form import CONSTANTS, FORMS, columns_algebra

_options = {"fastmath": True, "error_model": "numpy"}
_inner = numba.njit(**_options)
_algebra = columns_algebra(_inner)
_six, _four = (FORMS[form](_algebra, _inner) for form in ("six vectors", "four momenta"))


@_inner
def _event(array, n):
    return array[n, 0], array[n, 1], array[n, 2], array[n, 3]


@numba.njit(parallel=True, **_options)
def _six_vectors(constants, psi, r4, phi, r1, f, r2, out):
    for n in numba.prange(len(psi)):
        out[n, 0], out[n, 1], out[n, 2], out[n, 3] = _six(
            constants, _event(psi, n), _event(r4, n), _event(phi, n), _event(r1, n), _event(f, n), _event(r2, n)
        )


@numba.njit(parallel=True, **_options)
def _four_momenta(constants, kp, km, pip, pim, out):
    for n in numba.prange(len(kp)):
        out[n, 0], out[n, 1], out[n, 2], out[n, 3] = _four(
            constants, _event(kp, n), _event(km, n), _event(pip, n), _event(pim, n)
        )


def peer(loop):
    def prepare(*vectors):
        constants = tuple(vectors[0].dtype.type(c) for c in CONSTANTS)
        out = output(vectors[0].shape, vectors[0].dtype.name)

        def run():
            loop(constants, *vectors, out)
            return out

        return run

    return prepare


DTYPES = ("float64", "float32")
PEERS = [
    Peer("Numba prange, fastmath", "six vectors", DTYPES, peer(_six_vectors), output="given"),
    Peer("Numba prange, fastmath", "four momenta", DTYPES, peer(_four_momenta), output="given"),
]
