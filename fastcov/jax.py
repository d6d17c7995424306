"""Tapes on JAX arrays: their operations written with jax.numpy on separate components, which XLA fuses into one loop.

JAX differentiates, batches and partitions the result itself, so a fused function can be called inside jit, grad, vmap
and shard_map, on any device. XLA may reassociate and contract operations: results agree with those of the other back
ends within rounding, not to the bit. Inside shard_map an output that is summed over events is the sum over those of one
shard: add `jax.lax.psum(result, axis_name)`.
"""

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import arrays, dispatch
from .dense import Terms, outer_sum
from .opcodes import OPCODES
from .structure import Stack, Structure
from .tape import Output, Tape

Vector = tuple[Any, ...]  # of four components


def run(tape: Tape, structure: Structure, values: Sequence[Any], options: dispatch.Options) -> Any:
    """The outputs of a tape for these values, of which at least one is a JAX array, in the structure.

    The arithmetic is in the dtype of the arrays unless `compute` is given. Raises ValueError for a back end, `out`, or
    float64 arithmetic where jax_enable_x64 is not set.
    """
    if options.backend is not None:
        raise ValueError(f"backend {options.backend!r} does not take JAX arrays; XLA runs them where they are")
    if options.out is not None:
        raise ValueError("out= is not possible with JAX arrays, which are immutable")
    float64 = jax.dtypes.canonicalize_dtype(np.float64)
    if options.compute == "float64" and float64 != np.float64:
        raise ValueError("compute='float64' needs 64-bit numbers in JAX: jax.config.update('jax_enable_x64', True)")
    given = arrays.arguments(tape.inputs, values, _as_array, float64)
    letters = options.order if options.components is None else options.components
    compute = given.dtype if options.compute is None else np.dtype(options.compute)
    results = _evaluated(tape, options.order, letters, compute, given.dtype, isinstance(structure, Stack), given.arrays)
    return results if isinstance(structure, Stack) else structure.build(iter(results), jnp.stack)


def _as_array(name: str, value: Any) -> Any:
    if not isinstance(value, jax.Array):
        return jnp.asarray(arrays.number_array(name, value))
    if jnp.issubdtype(value.dtype, jnp.integer):
        return value.astype(jax.dtypes.canonicalize_dtype(np.float64))
    if value.dtype not in (np.float32, np.float64):
        raise TypeError(f"{name}: dtype {value.dtype} is not supported; float32, float64 and integers are")
    return value


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4, 5), inline=True)
def _evaluated(
    tape: Tape, order: str, letters: str, compute: np.dtype, dtype: np.dtype, stacked: bool, values: list[Any]
) -> Any:
    """The outputs of a tape; `stacked`: as one array."""
    columns = [
        _columns(one.kind, value, arrays.axes(order), compute) for one, value in zip(tape.inputs, values, strict=True)
    ]
    shape = arrays.broadcast([column.shape for each in columns for column in each])
    stored: list[dict[int, Any]] = [{} for _ in tape.outputs]
    registers: dict[str, dict[int, Any]] = {"v": {}, "s": {}}
    for number, *row in tape.code:
        op = OPCODES[number]
        operands: list[Any] = []
        for kind, x in zip(op.operands, row[len(op.result) :], strict=True):
            if kind in registers:
                x = registers[kind][x]
            elif kind == "k":
                x = compute.type(float(tape.constants[x]))
            operands.append(x)
        match op.name, operands:
            case "load_vector", (n,):
                result = columns[n]
            case "load_scalar", (n,):
                (result,) = columns[n]
            case "store_row", (n, m, value):
                stored[n][m] = value
                continue
            case "store_scalar" | "store_vector", (n, value):
                stored[n][0] = value
                continue
            case _:
                result = _OPERATIONS[op.name](*operands)
        registers[op.result][row[0]] = result
    places = [arrays.COMPONENTS.index(letter) for letter in letters]
    results = [
        _packed(output, rows, places, shape).astype(dtype) for output, rows in zip(tape.outputs, stored, strict=True)
    ]
    return jnp.stack(results) if stacked else tuple(results)


def _columns(kind: str, value: Any, axes: tuple[int, ...], compute: np.dtype) -> tuple[Any, ...]:
    """The components x, y, z, E of a vector, or a scalar alone."""
    if kind == "scalar":
        return (value.astype(compute),)
    columns = tuple(x.astype(compute) for x in (value if isinstance(value, tuple) else _unstacked(value)))
    return tuple(columns[axis] for axis in axes)


@partial(jax.jit, static_argnums=(0, 1, 2), inline=True)
def dense_components(terms: Terms, whole: tuple[int, ...], dtype: np.dtype, parts: list[Any]) -> Any:
    """The components of a tensor, of shape `whole`, as `fastcov.dense` adds them up from outputs of a tape."""
    total = outer_sum(terms, len(whole) - 1, parts)
    return jnp.broadcast_to(total, whole).astype(dtype)


@jax.custom_jvp
def _unstacked(x: Any) -> tuple[Any, ...]:
    """The parts along the last axis, of length 4.

    The transpose of slices is a sum of padded arrays. XLA would fuse it with a whole reverse pass, and work that out
    anew for every branch; from the tangents below it gets selections instead, as from `_stacked`.
    """
    return tuple(x[..., n] for n in range(4))


@_unstacked.defjvp
def _unstacked_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    (x,), (dx,) = primals, tangents
    place = jax.lax.broadcasted_iota(int, (4,), 0)
    return _unstacked(x), tuple(jnp.where(place == n, dx, 0).sum(-1) for n in range(4))


def _packed(output: Output, rows: dict[int, Any], places: list[int], shape: tuple[int, ...]) -> Any:
    """An output as one array, from the scalar, the vector or the rows of the matrix that it is."""

    def number(x: Any) -> Any:
        x = jnp.broadcast_to(x, shape)
        return x.sum() if output.summed else x

    def row(m: int) -> Any:
        return _stacked([number(rows[m][n]) for n in places], -1)

    if output.kind == "scalar":
        return number(rows[0])
    return row(0) if output.kind == "vector" else _stacked([row(m) for m in places], -2)


def _stacked(parts: list[Any], axis: int) -> Any:
    """jnp.stack by selection, which XLA fuses with what computes the parts; after a concatenation it is slower."""
    place = jax.lax.broadcasted_iota(int, (len(parts),) + (1,) * (-1 - axis), 0)
    result = jnp.expand_dims(parts[0], axis)
    for n, part in enumerate(parts[1:], 1):
        result = jnp.where(place == n, jnp.expand_dims(part, axis), result)
    return result


def _cross(a: Vector, b: Vector, c: Vector) -> Vector:
    def minor(i: int, j: int) -> Any:
        return b[i] * c[j] - b[j] * c[i]

    ax, ay, az, ae = a
    xy, xz, xe, yz, ye, ze = (minor(i, j) for i, j in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)))
    return (
        (az * ye - ay * ze) - ae * yz,
        (ax * ze - az * xe) + ae * xz,
        (ay * xe - ax * ye) - ae * xy,
        (ay * xz - ax * yz) - az * xy,
    )


def _dot(a: Vector, b: Vector) -> Any:
    return (a[3] * b[3] - a[2] * b[2]) - (a[0] * b[0] + a[1] * b[1])


def _minus_scaled(a: Vector, b: Any, c: Vector) -> Vector:
    return tuple(x - b * y for x, y in zip(a, c, strict=True))


def _each(function: Callable[..., Any]) -> Callable[..., Vector]:
    return lambda *vectors: tuple(map(function, *vectors))


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "constant": lambda k: k,
    "unit": lambda m: tuple(float(n == m) for n in range(4)),
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "reciprocal": lambda a: 1 / a,
    "sqrt": jnp.sqrt,
    "neg": operator.neg,
    "add_constant": operator.add,
    "mul_constant": operator.mul,
    "vadd": _each(operator.add),
    "vsub": _each(operator.sub),
    "vneg": _each(operator.neg),
    "vlower": lambda a: (-a[0], -a[1], -a[2], a[3]),
    "vscale": lambda a, b: tuple(a * x for x in b),
    "vscale_constant": lambda a, k: tuple(x * k for x in a),
    "vadd_scaled": lambda a, b, c: tuple(x + b * y for x, y in zip(a, c, strict=True)),
    "vsub_scaled": _minus_scaled,
    "dot": _dot,
    "cross": _cross,
    "component": operator.getitem,
    "pack": lambda *parts: parts,
    "project": lambda a, b, c: _minus_scaled(a, _dot(c, a) * b, c),
}
