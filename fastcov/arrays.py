"""What a caller passes, as arrays an executor can walk: checked, broadcast, and copied only to convert."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .tape import RANKS, Input, Output

COMPONENTS = "xyzE"
FLOAT64 = np.dtype(np.float64)


def number_array(name: str, value: Any) -> np.ndarray:
    """What NumPy makes of a value, native float32 or float64. Raises TypeError for other dtypes and masked arrays."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name}: masked arrays are not supported; fill or select the events first")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None
    if array.dtype.kind in "iu":
        return array.astype(np.float64)
    native = array.dtype.newbyteorder("=")
    if native not in (np.float32, np.float64):
        raise TypeError(f"{name}: dtype {array.dtype} is not supported; float32, float64 and integers are")
    return array.view(native) if array.dtype.isnative else array.astype(native)  # a view, as native may be spelt "<"


class Arguments(NamedTuple):
    arrays: list[Any]  # per input an array, or a tuple of four columns
    shape: tuple[int, ...]  # of the events
    dtype: Any


def arguments(
    inputs: Sequence[Input],
    values: Sequence[Any],
    converted: Callable[[str, Any], Any] = number_array,
    float64: Any = FLOAT64,
) -> Arguments:
    """The values of all inputs as arrays of one library: `converted(name, value)`, and the library's `float64`.

    Python numbers do not decide the dtype. Raises TypeError for a dtype that is neither float32, float64 nor an
    integer, for masked arrays, and ValueError for shapes that do not fit, naming the argument.
    """
    arrays: list[Any] = []
    shapes: list[tuple[int, ...]] = []
    dtypes: list[Any] = []
    for one, value in zip(inputs, values, strict=True):
        array = _vector(one.name, value, converted) if one.kind == "vector" else _scalar(one, value, converted)
        first = array[0] if isinstance(array, tuple) else array
        arrays.append(array)
        shape = tuple(first.shape)
        shapes.append(shape if one.kind == "scalar" or isinstance(array, tuple) else shape[:-1])
        for given, part in zip(value if isinstance(array, tuple) else (value,), parts(array), strict=True):
            if not isinstance(given, (int, float)) or isinstance(given, np.floating):
                dtypes.append(part.dtype)
    try:
        shape = broadcast(shapes)
    except ValueError:
        given = ", ".join(f"{one.name} {s}" for one, s in zip(inputs, shapes, strict=True))
        raise ValueError(f"the events of the arguments do not broadcast: {given}") from None
    return Arguments(arrays, shape, float64 if not dtypes or float64 in dtypes else dtypes[0])


def parts(value: Any) -> tuple[Any, ...]:
    """The columns of an argument, or the argument alone."""
    return value if isinstance(value, tuple) else (value,)


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that all broadcast to, also for symbolic sizes. Raises ValueError if there is none."""
    result: list[int] = []
    for shape in shapes:
        result = [*shape[: max(len(shape) - len(result), 0)], *result]
        for n, size in enumerate(shape, len(result) - len(shape)):
            if size != result[n] and size != 1:
                if result[n] != 1:
                    raise ValueError(f"{shape} does not broadcast to {result}")
                result[n] = size
    return tuple(result)


def _vector(name: str, value: Any, converted: Callable[[str, Any], Any]) -> Any:
    if isinstance(value, tuple):
        if len(value) != 4:
            raise ValueError(f"{name}: a tuple is four columns, one a component, not {len(value)}")
        columns = tuple(converted(name, column) for column in value)
        if any(column.shape != columns[0].shape for column in columns):
            shapes = [tuple(column.shape) for column in columns]
            raise ValueError(f"{name}: the four columns have different shapes {shapes}")
        return columns
    array = converted(name, value)
    if array.ndim == 0 or array.shape[-1] != 4:
        raise ValueError(f"{name}: a 4-vector has shape (..., 4), not {tuple(array.shape)}")
    return array


def _scalar(one: Input, value: Any, converted: Callable[[str, Any], Any]) -> Any:
    array = converted(one.name, value)
    if one.shared and array.ndim:
        raise ValueError(f"{one.name}: one number for all events, not an array of shape {tuple(array.shape)}")
    return array


def axes(letters: str) -> tuple[int, int, int, int]:
    """The positions of x, y, z, E among these letters, -1 for one that is not there."""
    x, y, z, e = (letters.find(c) for c in COMPONENTS)
    return x, y, z, e


def output_shape(output: Output, shape: tuple[int, ...], components: int) -> tuple[int, ...]:
    return (() if output.summed else shape) + (components,) * RANKS[output.kind]


def check_out(
    outputs: Sequence[Any],
    shapes: Sequence[tuple[int, ...]],
    dtype: np.dtype,
    inputs: Sequence[Input],
    values: Sequence[Any],
    events: tuple[int, ...],
) -> None:
    """Raise unless results may be written to these arrays; see the errors below.

    An output may be exactly an input's memory if it is the only output and the input has a value for each event: then
    each event is read before it is written, and not again.
    """
    for n, (out, shape) in enumerate(zip(outputs, shapes, strict=True)):
        name = out_name(n, len(outputs))
        if not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray):
            raise TypeError(f"{name} must be a NumPy array like the inputs, not {type(out).__name__}")
        if out.shape != shape:
            raise ValueError(f"{name} has shape {out.shape}, the result has {shape}")
        if out.dtype != dtype or not out.dtype.isnative:
            raise ValueError(f"{name} has dtype {out.dtype}, the result has {dtype}")
        if not out.flags.writeable:
            raise ValueError(f"{name} is read-only")
        if _overlaps_itself(out):
            raise ValueError(f"{name} has elements that share memory")
        for one, value in zip(inputs, values, strict=True):
            own = 1 if one.kind == "vector" and not isinstance(value, tuple) else 0
            for array in parts(value):
                in_place = len(outputs) == 1 and array.shape[: array.ndim - own] == events and _same(out, array)
                if _overlap(out, array) and not in_place:
                    raise ValueError(f"{name} overlaps an input")
        if any(_overlap(out, other) for other in outputs[:n]):
            raise ValueError(f"{name} overlaps another output")


def out_name(n: int, count: int) -> str:
    return "out" if count == 1 else f"out[{n}]"


def _overlaps_itself(array: np.ndarray) -> bool:
    """Whether elements may share memory: where an axis steps less far than those that step less than it reach."""
    reach = array.itemsize
    for stride, size in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1):
        if stride < reach:
            return array.size > 0
        reach += stride * (size - 1)
    return False


def _overlap(a: np.ndarray, b: np.ndarray) -> bool:
    return np.may_share_memory(a, b) and np.shares_memory(a, b)


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    places = [(x.__array_interface__["data"][0], x.shape, x.strides, x.dtype) for x in (a, b)]
    return places[0] == places[1]
