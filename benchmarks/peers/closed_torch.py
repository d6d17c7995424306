"""The closed form in PyTorch, eager and under torch.compile, on arrays (events, 4)."""

import operator

import torch

from . import Peer
from .closed_form import CONSTANTS, FORMS, Algebra


def _dot(a, b):
    products = a * b
    return products[:, 3:] - products[:, 0:1] - products[:, 1:2] - products[:, 2:3]


ARRAYS = Algebra(_dot, operator.add, operator.sub, operator.mul)


def peer(form, compiled):
    function = FORMS[form](ARRAYS)
    if compiled:
        function = torch.compile(function, dynamic=True)

    def prepare(*vectors):
        tensors = [torch.from_numpy(v) for v in vectors]

        def run():
            with torch.inference_mode():
                return function(CONSTANTS, *tensors)

        return run

    return prepare


DTYPES = ("float64", "float32")
PEERS = [
    Peer(f"torch, {'torch.compile' if compiled else 'eager'}", form, DTYPES, peer(form, compiled))
    for form in FORMS
    for compiled in (False, True)
]
