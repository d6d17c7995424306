"""The closed form in PyTorch, eager and under torch.compile, on arrays (events, 4)."""

import operator
from functools import cache

import torch

from . import Peer
from .closed_form import CONSTANTS, FORMS, Algebra


def _dot(a, b):
    products = a * b
    return products[:, 3:] - products[:, 0:1] - products[:, 1:2] - products[:, 2:3]


ARRAYS = Algebra(_dot, operator.add, operator.sub, operator.mul)


@cache
def closed_form(form, compiled):
    function = FORMS[form](ARRAYS)
    return torch.compile(function, dynamic=True) if compiled else function


def peer(form, compiled):
    def prepare(*vectors):
        function = closed_form(form, compiled)
        tensors = [torch.from_numpy(v) for v in vectors]

        def run():
            with torch.inference_mode():
                return function(CONSTANTS, *tensors)

        return run

    return prepare


DTYPES = ("float64", "float32")
PEERS = [
    Peer("torch.compile" if compiled else "torch eager", form, DTYPES, peer(form, compiled))
    for form in FORMS
    for compiled in (False, True)
]
