"""Inputs of graphs, their exact values, and what nodes compute from them; the fixtures are in conftest.py."""

from fractions import Fraction

import numpy as np
import tape_exact

from fastcov.assemble import assemble
from fastcov.tape import Input, Output

VALUES = {
    "p": [1, -2, 3, 7],
    "q": [Fraction(1, 2), 5, -1, 11],
    "r": [-3, 4, Fraction(2, 7), 9],
    "x": Fraction(3, 5),
    "y": -7,
}
VECTORS = "pqr"


def assembled(*nodes):
    """The tape of these nodes, each an output."""
    kinds = ("vector" if name in VECTORS else "scalar" for name in VALUES)
    outputs = [(Output("vector" if node.is_vector else "scalar"), [node]) for node in nodes]
    return assemble(tuple(map(Input, VALUES, kinds)), outputs)


def value(node):
    """What a node computes from VALUES."""
    return tape_exact.evaluate(assembled(node), VALUES.values())[0]


def v(name):
    return np.array([Fraction(x) for x in VALUES[name]], dtype=object)


def dot(a, b):
    return a[3] * b[3] - a[0] * b[0] - a[1] * b[1] - a[2] * b[2]
