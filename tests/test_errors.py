"""A walk over calls that cannot be right: the type of the error, and that its text names what was wrong."""

import numpy as np
import pytest

import fastcov as fc
from fastcov import waves
from fastcov.tape import Tape

N = 6
P = np.array([[0.1, 0.2, 0.3, 1.0]] * N)
FOUR = [P] * 4
WAVE = waves.phif021


def trace(function):
    return lambda: fc.fused(function)(P)


CALLS = {
    # shapes
    "three components": (
        lambda: WAVE(P[:, :3], P, P, P),
        ValueError,
        r"^kp: a 4-vector has shape \(\.\.\., 4\), not \(6, 3\)$",
    ),
    "transposed": (lambda: WAVE(P, P.T, P, P), ValueError, r"^km: a 4-vector has shape \(\.\.\., 4\), not \(4, 6\)$"),
    "a number": (lambda: WAVE(P, P, 1.0, P), ValueError, r"^pip: a 4-vector has shape \(\.\.\., 4\), not \(\)$"),
    "events that do not fit": (lambda: WAVE(P, P, P, P[:4]), ValueError, r"do not broadcast: kp \(6,\), .* pim \(4,\)"),
    "three columns": (lambda: WAVE(P, tuple(P.T[:3]), P, P), ValueError, "^km: a tuple is four columns"),
    "unequal columns": (
        lambda: WAVE((*P.T[:3], P[:2, 0]), P, P, P),
        ValueError,
        "^kp: the four columns have different",
    ),
    "ragged list": (lambda: WAVE([[1.0, 2], [3]], P, P, P), ValueError, "^kp: "),
    # dtypes
    "complex": (lambda: WAVE(P * 1j, P, P, P), TypeError, "^kp: dtype complex128 is not supported; float32, float64"),
    "half": (lambda: WAVE(P, P.astype("f2"), P, P), TypeError, "^km: dtype float16"),
    "bool": (lambda: WAVE(P, P > 0, P, P), TypeError, "^km: dtype bool"),
    "objects": (lambda: WAVE(P, P.astype(object), P, P), TypeError, "^km: dtype object"),
    "text": (lambda: WAVE("kp", P, P, P), TypeError, "^kp: dtype <U2"),
    "nothing": (lambda: WAVE(P, P, P, None), TypeError, "^pim: dtype object"),
    "masked": (
        lambda: WAVE(np.ma.array(P), P, P, P),
        TypeError,
        "^kp: masked arrays are not supported; fill or select",
    ),
    # arguments
    "missing argument": (lambda: WAVE(P, P, P), TypeError, r"^phif021\(\) is missing the argument 'pim'$"),
    "fifth argument": (lambda: WAVE(*FOUR, P), TypeError, r"^phif021\(\) takes 4 positional arguments, not 5$"),
    "unknown keyword": (
        lambda: WAVE(*FOUR, radius=1),
        ValueError,
        "unknown keyword 'radius'; known are kp, km, pip, pim, q0",
    ),
    "argument twice": (lambda: WAVE(*FOUR, kp=P), ValueError, "unknown keyword 'kp'"),
    "no preset": (lambda: WAVE(*FOUR, q0="1fm"), ValueError, "one of 'pwacg', 'gpupwa', 'tfpwa', not '1fm'"),
    "q0 zero": (lambda: WAVE(*FOUR, q0=0), ValueError, "q0 must be positive, not 0"),
    "q0 negative": (lambda: WAVE(*FOUR, q0=-0.1), ValueError, r"q0 must be positive, not -0\.1"),
    "q0 not finite": (lambda: WAVE(*FOUR, q0=np.inf), ValueError, "inf cannot be a constant: it is not finite"),
    "q0 nothing": (lambda: WAVE(*FOUR, q0=None), TypeError, "q0 must be a number, a preset or a scalar, not NoneType"),
    "q0 an array": (lambda: WAVE(*FOUR, q0=P), TypeError, "the constant 'q0' must be hashable"),
    # keywords of a call
    "unknown back end": (
        lambda: WAVE(*FOUR, backend="gpu"),
        ValueError,
        "backend must be None or one of 'cpu'.*not 'gpu'",
    ),
    "unknown arithmetic": (lambda: WAVE(*FOUR, compute="f4"), ValueError, "'float32' or 'float64', not 'f4'"),
    "no threads": (lambda: WAVE(*FOUR, threads=0), ValueError, "threads must be None or a positive integer, not 0"),
    "half a thread": (lambda: WAVE(*FOUR, threads=0.5), ValueError, r"threads must be .* not 0\.5"),
    "unknown component": (
        lambda: WAVE(*FOUR, components="xyt"),
        ValueError,
        "letters x, y, z, E, each once, not 'xyt'",
    ),
    "component twice": (lambda: WAVE(*FOUR, components="xx"), ValueError, "each once, not 'xx'"),
    "no order": (lambda: WAVE(*FOUR, order="txyz"), ValueError, "letters x, y, z, E in some order, not 'txyz'"),
    # out
    "out of another shape": (
        lambda: WAVE(*FOUR, out=np.zeros((N, 3))),
        ValueError,
        r"out has shape \(6, 3\), the result has \(6, 4\)",
    ),
    "out of another dtype": (lambda: WAVE(*FOUR, out=np.zeros((N, 4), "f4")), ValueError, "out has dtype float32"),
    "out a list": (lambda: WAVE(*FOUR, out=[]), TypeError, "out must be a NumPy array like the inputs, not list"),
    "out over an input": (lambda: WAVE(P, P, P[::-1], P, out=P[::-1][:, ::-1]), ValueError, "out overlaps an input"),
    # tracing
    "branch": (
        trace(lambda p: p if fc.dot(p, p) else -p),
        TypeError,
        "has no truth value: the amplitude is traced once",
    ),
    "comparison": (trace(lambda p: p if fc.dot(p, p) > 0 else -p), TypeError, "cannot be compared or converted"),
    "float of a symbol": (trace(lambda p: p * float(fc.dot(p, p))), TypeError, "cannot be compared or converted"),
    "array in a trace": (trace(lambda p: fc.dot(p, P)), TypeError, "^dot: traced values and arrays cannot be mixed"),
    "array tensor in a trace": (
        trace(lambda p: fc.transverse(p) + fc.transverse(P)),
        TypeError,
        "traced values and arrays",
    ),
    "array into an inlined wave": (
        trace(lambda p: WAVE(p, p, p, P)),
        TypeError,
        "traced values and arrays cannot be mixed",
    ),
    "rank 3 returned": (trace(lambda p: fc.orbital(3, p, p)), TypeError, "returned a tensor of rank 3; above 2"),
    "list returned": (trace(lambda p: [p]), TypeError, "returned list, not a scalar"),
    "NaN constant": (trace(lambda p: p * float("nan")), ValueError, "nan cannot be a constant"),
    "constant out of range": (trace(lambda p: p * 10**400), ValueError, "constant 10.* is out of the range of float64"),
    "constant of many digits": (
        trace(lambda p: p * 10**5000),
        ValueError,
        "a constant of about 1e5000 is out of the range of float64",
    ),
    "root as a power": (trace(lambda p: fc.dot(p, p) ** 0.5), TypeError, r"integer powers only, not 0\.5; fc\.sqrt"),
    "root of a tensor": (trace(lambda p: fc.sqrt(p)), TypeError, "sqrt: x must be a traced scalar, not Tensor"),
    "sum of a number": (trace(lambda p: fc.sum(2.0)), TypeError, "sum: x must be a traced scalar or tensor, not float"),
    "star arguments": (lambda: fc.fused(lambda *p: p), TypeError, r"parameter \*p is not supported"),
    "no function": (lambda: fc.fused("phif021"), TypeError, "'phif021' is not callable"),
    # tensors
    "negative spin": (trace(lambda p: fc.projector(-1, p)), ValueError, "L must be a non-negative integer, not -1"),
    "half a spin": (trace(lambda p: fc.orbital(0.5, p, p)), ValueError, r"L must be a non-negative integer, not 0\.5"),
    "spin 2.0": (lambda: fc.projector(2.0, P), ValueError, r"not 2\.0"),
    "spin true": (lambda: fc.orbital(True, P, P), ValueError, "not True"),
    "spin as text": (lambda: fc.orbital("2", P, P), ValueError, "not '2'"),
    "spin of a barrier": (trace(lambda p: fc.barrier(-2, fc.dot(p, p), 1)), ValueError, "not -2"),
    "tensor as momentum": (
        trace(lambda p: fc.transverse(fc.metric())),
        ValueError,
        "p must be a 4-vector, not a tensor of rank 2",
    ),
    "number as momentum": (
        trace(lambda p: fc.orbital(1, p, 2)),
        TypeError,
        "r must be a tensor or a 4-vector, not int",
    ),
    "scalar as vector": (
        trace(lambda p: fc.dot(p, fc.dot(p, p))),
        TypeError,
        "b must be a tensor or a 4-vector, not Scalar",
    ),
    "vector as scalar": (trace(lambda p: fc.barrier(1, p, 1)), TypeError, "q2 must be a traced scalar, not Tensor"),
    "lowered twice": (trace(lambda p: fc.lower(fc.lower(p))), ValueError, "the indices of t are lower, not all upper"),
    "ranks that differ": (trace(lambda p: p + fc.transverse(p)), ValueError, "cannot add tensors of rank 1 and 2"),
    "positions that differ": (trace(lambda p: p - fc.lower(p)), ValueError, "indices upper and lower"),
    "product of vectors": (trace(lambda p: p * p), TypeError, "unsupported operand"),
    # einsum
    "no output": (lambda: fc.einsum("i,i", P, P), ValueError, "einsum: spec 'i,i' has no '->'"),
    "too few operands": (lambda: fc.einsum("i,i->", P), ValueError, "has 2 operands, 1 were given"),
    "other rank": (lambda: fc.einsum("ij,j->i", P, P), ValueError, "operand 0 has rank 1, but 'ij' .* has 2 indices"),
    "three times": (lambda: fc.einsum("i,i,i->", P, P, P), ValueError, "index 'i' of operand 0 .* occurs 3 times"),
    "kept and summed": (lambda: fc.einsum("i,i->i", P, P), ValueError, "index 'i' of operand 0 .* also in the output"),
    "unknown output": (lambda: fc.einsum("i->ij", P), ValueError, "output index 'j' is in no operand"),
    "dropped": (lambda: fc.einsum("i,j->i", P, P), ValueError, "index 'j' of operand 1 .* neither repeated nor"),
    "ellipsis": (lambda: fc.einsum("...i->...i", P), ValueError, r"operand 0, '\.\.\.i' .* an index is one letter"),
    "other metric": (lambda: fc.einsum("i,i->", P, P, metric="+---"), ValueError, "'lorentz' or None, not '[+]---'"),
    # dense
    "too large": (
        lambda: fc.dense(fc.projector(4, np.broadcast_to(P[0], (800_000, 4)))),
        MemoryError,
        "419 GB.*einsum",
    ),
    "limit as text": (
        lambda: fc.dense(fc.transverse(P), max_bytes="1 GB"),
        ValueError,
        "dense: max_bytes must be a number of bytes, not '1 GB'",
    ),
    "dense of an array": (lambda: fc.dense(P), TypeError, "must be a tensor built on arrays, not ndarray"),
    "dense of a symbol": (trace(lambda p: fc.dense(p)), TypeError, "a traced tensor has no components"),
    "array of a tensor": (lambda: np.array(fc.transverse(P)), TypeError, r"holds no components; fastcov\.dense"),
    "list of masked arrays": (
        lambda: fc.fused(lambda p: p)([np.ma.array(P[0], mask=True)]),
        TypeError,
        "p: a list of masked arrays is not supported",
    ),
    "masked output": (
        lambda: fc.fused(lambda p: p)(P, out=np.ma.zeros(P.shape)),
        TypeError,
        "out must be a NumPy array like the inputs, not MaskedArray",
    ),
    "overlapping elements": (
        lambda: fc.fused(lambda p: p)(P, out=np.lib.stride_tricks.as_strided(np.zeros(99), P.shape, (8, 8))),
        ValueError,
        "out has elements that share memory",
    ),
    "compute as a list": (lambda: fc.fused(lambda p: p)(P, compute=["float32"]), ValueError, "compute must be None"),
    # derivatives and bundles
    "no cotangent": (lambda: WAVE.vjp(*FOUR), TypeError, r"^phif021\.vjp\(\) is missing the argument 'cotangent'$"),
    "short cotangent": (
        lambda: WAVE.vjp(*FOUR, cotangent=P[:2]),
        ValueError,
        r"cotangent: events of shape \(2,\) do not fit",
    ),
    "three tangents": (lambda: WAVE.jvp(*FOUR, tangents=(P,) * 3), ValueError, "tangents must be a tuple of 4"),
    "Jacobian of a tensor": (lambda: fc.fused(fc.transverse).jacobian(P), TypeError, "rank 2 has rank 3"),
    "empty bundle": (lambda: fc.bundle(), ValueError, "bundle: at least one function is needed"),
    "bundle of strangers": (
        lambda: fc.bundle(WAVE, fc.transverse),
        ValueError,
        "other parameters or defaults than phif021",
    ),
    "bundle of kinds": (
        lambda: fc.bundle(lambda p: p, lambda p: fc.dot(p, p))(P),
        TypeError,
        "different kinds: vector, scalar",
    ),
    # tapes
    "no tape": (lambda: Tape.from_text("{}"), ValueError, "not a tape: no 'fastcov_tape' version"),
    "later tape": (
        lambda: Tape.from_text('{"fastcov_tape": 9}'),
        ValueError,
        "format version 9; this fastcov reads version 1",
    ),
}


def test_at_least_forty():
    assert len(CALLS) >= 40


@pytest.mark.parametrize("name", CALLS)
def test_bad_call(name):
    call, error, words = CALLS[name]
    with pytest.raises(error, match=words) as caught:
        call()
    assert type(caught.value) is error
