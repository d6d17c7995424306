"""What a caller passes, as NumPy arrays the CPU executor can walk: checked, broadcast, and copied only to convert."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .tape import Input, Output

COMPONENTS = "xyzE"
_INNER = {"scalar": 0, "vector": 1, "matrix": 2}


class Arguments(NamedTuple):
    arrays: list[Any]  # per input an array, or a tuple of four columns
    shape: tuple[int, ...]  # of the events
    dtype: np.dtype


def arguments(inputs: Sequence[Input], values: Sequence[Any]) -> Arguments:
    """The values of all inputs.

    Raises TypeError for a dtype that is neither float32, float64 nor an integer, for masked arrays, and ValueError for
    shapes that do not fit, naming the argument.
    """
    arrays: list[Any] = []
    shapes: list[tuple[int, ...]] = []
    dtypes: list[np.dtype] = []
    for one, value in zip(inputs, values, strict=True):
        array = _vector(one.name, value) if one.kind == "vector" else _scalar(one, value)
        first = array[0] if isinstance(array, tuple) else array
        arrays.append(array)
        shapes.append(first.shape if one.kind == "scalar" or isinstance(array, tuple) else first.shape[:-1])
        if not isinstance(value, (int, float)) or isinstance(value, np.floating):
            dtypes.extend(column.dtype for column in (array if isinstance(array, tuple) else (array,)))
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        given = ", ".join(f"{one.name} {s}" for one, s in zip(inputs, shapes, strict=True))
        raise ValueError(f"the events of the arguments do not broadcast: {given}") from None
    return Arguments(arrays, shape, np.result_type(*dtypes) if dtypes else np.dtype(np.float64))


def _vector(name: str, value: Any) -> Any:
    if isinstance(value, tuple):
        if len(value) != 4:
            raise ValueError(f"{name}: a tuple is four columns, one a component, not {len(value)}")
        columns = tuple(_number_array(name, column) for column in value)
        if len({column.shape for column in columns}) > 1:
            raise ValueError(f"{name}: the four columns have different shapes {[c.shape for c in columns]}")
        return columns
    array = _number_array(name, value)
    if array.ndim == 0 or array.shape[-1] != 4:
        raise ValueError(f"{name}: a 4-vector has shape (..., 4), not {array.shape}")
    return array


def _scalar(one: Input, value: Any) -> np.ndarray:
    array = _number_array(one.name, value)
    if one.shared and array.ndim:
        raise ValueError(f"{one.name}: one number for all events, not an array of shape {array.shape}")
    return array


def _number_array(name: str, value: Any) -> np.ndarray:
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name}: masked arrays are not supported; fill or select the events first")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None
    if array.dtype.kind in "iu":
        return array.astype(np.float64)
    if array.dtype.newbyteorder("=") not in (np.float32, np.float64):
        raise TypeError(f"{name}: dtype {array.dtype} is not supported; float32, float64 and integers are")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def axes(letters: str) -> tuple[int, int, int, int]:
    """The positions of x, y, z, E among these letters, -1 for one that is not there."""
    x, y, z, e = (letters.find(c) for c in COMPONENTS)
    return x, y, z, e


def output_shape(output: Output, shape: tuple[int, ...], components: int) -> tuple[int, ...]:
    return (() if output.summed else shape) + (components,) * _INNER[output.kind]


def check_out(name: str, out: Any, shape: tuple[int, ...], dtype: np.dtype, inputs: Sequence[Any], alone: bool) -> None:
    """Raise unless results may be written to `out`; see the errors below.

    An output may be exactly an input's memory if it is the only output: each event is read before it is written.
    """
    if not isinstance(out, np.ndarray):
        raise TypeError(f"{name} must be a NumPy array like the inputs, not {type(out).__name__}")
    if out.shape != shape:
        raise ValueError(f"{name} has shape {out.shape}, the result has {shape}")
    if out.dtype != dtype or not out.dtype.isnative:
        raise ValueError(f"{name} has dtype {out.dtype}, the result has {dtype}")
    if not out.flags.writeable:
        raise ValueError(f"{name} is read-only")
    if math.prod(shape) > 1 and any(s == 0 and n > 1 for s, n in zip(out.strides, out.shape, strict=True)):
        raise ValueError(f"{name} has elements that share memory")
    for value in inputs:
        for array in value if isinstance(value, tuple) else (value,):
            if np.may_share_memory(out, array) and np.shares_memory(out, array) and not (alone and _same(out, array)):
                raise ValueError(f"{name} overlaps an input")


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    places = [(x.__array_interface__["data"][0], x.shape, x.strides, x.dtype) for x in (a, b)]
    return places[0] == places[1]
