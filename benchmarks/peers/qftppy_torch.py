"""qftppy, the qft++ tensors in PyTorch, contracted by its own `contract`.

It orders components E, x, y, z and scales an orbital tensor of rank L by (2L-1)!! / (2^L L!).
"""

import torch
from qftppy import QFTNative

from . import Peer

EVENTS = 20_000
SCALE = 2 * (8 / 3) * (384 / 105)  # of the ranks 1, 2 and 4


def four_momenta(*momenta):
    kp, km, pip, pim = (torch.from_numpy(p).roll(1, dims=1) for p in momenta)
    qft = QFTNative()

    def run():
        t1 = qft.orbital_tensor(kp, km, 1)
        t2 = qft.orbital_tensor(pip, pim, 2)
        t4 = qft.orbital_tensor(kp + km, pip + pim, 4)
        with_t2 = qft.contract(t4, t2, 2, batched1=True, batched2=True)
        with_t1 = qft.contract(with_t2, t1, 1, batched1=True, batched2=True)
        return SCALE * with_t1.roll(-1, dims=1)

    return run


PEERS = [Peer("qftppy", "four momenta", ("float64",), four_momenta, EVENTS)]
