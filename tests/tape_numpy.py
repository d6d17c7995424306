"""Tapes in plain NumPy: one array operation for each IEEE operation of fastcov/opcodes.py, in its order.

Shares nothing with the executors but the table of opcodes; what they are compared with, bit for bit.
"""

from collections.abc import Sequence

import numpy as np

from fastcov.opcodes import OPCODES
from fastcov.tape import Tape


def evaluate(tape: Tape, inputs: Sequence[np.ndarray | float], dtype: type = np.float64) -> list[np.ndarray]:
    """Return every output for each event, summed ones too, in the arithmetic type `dtype`.

    inputs: vectors (..., 4) in the order x, y, z, E and scalars (...), leading shapes broadcast.
    """
    arrays = [np.asarray(value).astype(dtype) for value in inputs]
    vectors = [one.kind == "vector" for one in tape.inputs]
    shape = np.broadcast_shapes(*(a.shape[:-1] if v else a.shape for a, v in zip(arrays, vectors, strict=True)))
    constants = [dtype(float(c)) for c in tape.constants]
    tails = {"scalar": (), "vector": (4,), "matrix": (4, 4)}
    outputs = [np.full(shape + tails[out.kind], np.nan, dtype) for out in tape.outputs]
    registers: dict[str, np.ndarray] = {}

    def load(index: int) -> np.ndarray:
        return np.broadcast_to(arrays[index], shape + ((4,) if vectors[index] else ()))

    with np.errstate(all="ignore"):
        for row in tape.code:
            op = OPCODES[row[0]]
            operands = [
                registers[f"{kind}{x}"] if kind in "vs" else constants[x] if kind == "k" else x
                for kind, x in zip(op.operands, row[1 + len(op.result) :], strict=True)
            ]
            if op.name == "store_row":
                outputs[operands[0]][..., operands[1], :] = operands[2]
            elif op.name.startswith("store"):
                outputs[operands[0]][...] = operands[1]
            elif op.name.startswith("load"):
                registers[f"{op.result}{row[1]}"] = load(operands[0])
            else:
                result = np.broadcast_to(EXPRESSIONS[op.name](*operands), shape + ((4,) if op.result == "v" else ()))
                registers[f"{op.result}{row[1]}"] = result.astype(dtype)
    return outputs


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    x, y, z, e = np.moveaxis(a * b, -1, 0)
    return (e - z) - (x + y)


def _cross(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    def m(i: int, j: int) -> np.ndarray:
        return b[..., i] * c[..., j] - b[..., j] * c[..., i]

    x, y, z, e = range(4)
    ax, ay, az, ae = np.moveaxis(a, -1, 0)
    return np.stack(
        [
            (az * m(y, e) - ay * m(z, e)) - ae * m(y, z),
            (ax * m(z, e) - az * m(x, e)) + ae * m(x, z),
            (ay * m(x, e) - ax * m(y, e)) - ae * m(x, y),
            (ay * m(x, z) - ax * m(y, z)) - az * m(x, y),
        ],
        axis=-1,
    )


EXPRESSIONS = {
    "constant": lambda k: k,
    "unit": lambda c: np.eye(4)[c],
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "reciprocal": lambda a: np.ones_like(a) / a,
    "sqrt": np.sqrt,
    "neg": np.negative,
    "add_constant": lambda a, k: a + k,
    "mul_constant": lambda a, k: a * k,
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vneg": np.negative,
    "vlower": lambda a: np.stack([-a[..., 0], -a[..., 1], -a[..., 2], a[..., 3]], axis=-1),
    "vscale": lambda a, b: a[..., None] * b,
    "vscale_constant": lambda a, k: a * k,
    "vadd_scaled": lambda a, b, c: a + b[..., None] * c,
    "vsub_scaled": lambda a, b, c: a - b[..., None] * c,
    "dot": _dot,
    "cross": _cross,
    "component": lambda a, c: a[..., c],
    "pack": lambda a, b, c, d: np.stack([a, b, c, d], axis=-1),
    "project": lambda a, b, c: a - (_dot(c, a) * b)[..., None] * c,
}
