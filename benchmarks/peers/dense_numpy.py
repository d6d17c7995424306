"""The tensors written out and contracted with numpy.einsum: the package's dense reference."""

from fastcov import reference

from . import Peer

EVENTS = 2_000


def six_vectors(*vectors):
    return lambda: reference.phif243_six(*vectors)


def four_momenta(*momenta):
    return lambda: reference.waves["phif243"](*momenta, barrier=False)


PEERS = [
    Peer("NumPy, dense einsum", "six vectors", ("float64",), six_vectors, EVENTS),
    Peer("NumPy, dense einsum", "four momenta", ("float64",), four_momenta, EVENTS),
]
