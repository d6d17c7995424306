"""Tapes in exact rational arithmetic, one event at a time: what a tape means, free of rounding.

Shares nothing with the executors but the table of opcodes. There is no square root.
"""

from fractions import Fraction

import numpy as np

from fastcov.opcodes import OPCODES


def evaluate(tape, inputs):
    """The outputs for one event, a Fraction each or arrays (4,), (4, 4) of them; inputs are numbers or four of them."""
    values = [
        np.array([Fraction(x) for x in value], dtype=object) if one.kind == "vector" else Fraction(value)
        for one, value in zip(tape.inputs, inputs, strict=True)
    ]
    registers = {}
    outputs = [np.full((4, 4), None) if out.kind == "matrix" else None for out in tape.outputs]
    for number, *row in tape.code:
        op = OPCODES[number]
        operands = [
            registers[kind, x] if kind in "vs" else tape.constants[x] if kind == "k" else x
            for kind, x in zip(op.operands, row[len(op.result) :], strict=True)
        ]
        if op.name == "store_row":
            outputs[operands[0]][operands[1]] = operands[2]
        elif op.name.startswith("store"):
            outputs[operands[0]] = operands[1]
        elif op.name.startswith("load"):
            registers[op.result, row[0]] = values[operands[0]]
        else:
            registers[op.result, row[0]] = MEANING[op.name](*operands)
    return outputs


def _vector(*parts):
    return np.array([Fraction(x) for x in parts], dtype=object)


def _lower(a):
    return _vector(-a[0], -a[1], -a[2], a[3])


def _cross(a, b, c):
    """Upper components of epsilon_{mnrs} a^n b^r c^s, epsilon_{xyzE} = +1, as the cofactors of a determinant."""
    rows = np.stack([a, b, c])

    def minor(m):
        (p, q, r), (s, t, u), (v, w, x) = np.delete(rows, m, axis=1)
        return p * (t * x - u * w) - q * (s * x - u * v) + r * (s * w - t * v)

    return _lower(_vector(*((-1) ** m * minor(m) for m in range(4))))


MEANING = {
    "constant": lambda k: k,
    "unit": lambda c: _vector(*np.eye(4, dtype=int)[c].tolist()),
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "reciprocal": lambda a: 1 / a,
    "neg": lambda a: -a,
    "add_constant": lambda a, k: a + k,
    "mul_constant": lambda a, k: a * k,
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vneg": lambda a: -a,
    "vlower": _lower,
    "vscale": lambda a, b: a * b,
    "vscale_constant": lambda a, k: a * k,
    "vadd_scaled": lambda a, b, c: a + b * c,
    "vsub_scaled": lambda a, b, c: a - b * c,
    "dot": lambda a, b: np.sum(_lower(a) * b),
    "cross": _cross,
    "component": lambda a, c: a[c],
    "pack": _vector,
    "project": lambda a, b, c: a - np.sum(_lower(c) * a) * b * c,
}
