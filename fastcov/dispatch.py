"""Which executor runs a call: NumPy arrays and CPU tensors go to the CPU's.

A back end asked for by name runs or raises with the reason; only the automatic choice chooses.
"""

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from . import arrays, cpu
from .structure import Stack, Structure, as_array
from .tape import Input, Tape

BACKENDS = ("cpu",)
ARITHMETIC = {"float64": "d", "float32": "f"}


class Options(NamedTuple):
    """The call-time keywords."""

    backend: str | None = None
    compute: str | None = None
    threads: int | None = None
    components: str | None = None
    order: str = arrays.COMPONENTS
    out: Any = None

    def checked(self) -> "Options":
        """Raises ValueError, listing what is known, for an unknown value."""
        if self.backend is not None and self.backend not in BACKENDS:
            raise ValueError(f"backend must be None or one of {', '.join(map(repr, BACKENDS))}, not {self.backend!r}")
        if self.compute is not None and self.compute not in ARITHMETIC:
            raise ValueError(f"compute must be None, 'float32' or 'float64', not {self.compute!r}")
        if self.threads is not None and (
            isinstance(self.threads, bool) or not isinstance(self.threads, (int, np.integer)) or self.threads < 1
        ):
            raise ValueError(f"threads must be None or a positive integer, not {self.threads!r}")
        if not isinstance(self.order, str) or sorted(self.order) != sorted(arrays.COMPONENTS):
            raise ValueError(f"order must be the letters x, y, z, E in some order, not {self.order!r}")
        letters = self.components
        if letters is not None and (
            not isinstance(letters, str)
            or not letters
            or not set(letters) <= set(arrays.COMPONENTS)
            or len(set(letters)) < len(letters)
        ):
            raise ValueError(f"components must be some of the letters x, y, z, E, each once, not {letters!r}")
        return self


def run(tape: Tape, structure: Structure, values: Sequence[Any], options: Options) -> Any:
    """The outputs of a tape for these values, in the structure."""
    given = arrays.arguments(tape.inputs, values)
    letters = options.order if options.components is None else options.components
    shapes = [arrays.output_shape(output, given.shape, len(letters)) for output in tape.outputs]
    result = None
    if options.out is not None:
        result = options.out
        outputs = structure.flatten("out", result)
        for n, (out, shape) in enumerate(zip(outputs, shapes, strict=True)):
            name = "out" if len(outputs) == 1 else f"out[{n}]"
            arrays.check_out(name, out, shape, given.dtype, given.arrays, len(outputs) == 1)
            if any(np.may_share_memory(out, other) and np.shares_memory(out, other) for other in outputs[:n]):
                raise ValueError(f"{name} overlaps another output")
    elif isinstance(structure, Stack):
        result = np.empty((len(shapes), *shapes[0]), given.dtype)
        outputs = [result[n, ...] for n in range(len(shapes))]
    else:
        outputs = [np.empty(shape, given.dtype) for shape in shapes]
    program_of(tape).run(
        given.shape,
        given.arrays,
        arrays.axes(options.order),
        outputs,
        arrays.axes(letters),
        ARITHMETIC[options.compute or "float64"],
        options.threads,
    )
    return structure.build(iter(outputs), np.stack) if result is None else result


def is_array(value: Any) -> bool:
    """Whether a value has components, rather than being a number or a symbol of a trace."""
    return isinstance(value, (list, tuple)) or hasattr(value, "__array_interface__") or hasattr(value, "__dlpack__")


def event_shape(one: Input, value: Any) -> tuple[int, ...]:
    """The leading shape of a value for this input; () if all events share it."""
    if isinstance(value, tuple) and one.kind == "vector":
        value, inner = value[0], 0
    else:
        inner = 1 if one.kind == "vector" else 0
    shape = tuple(value.shape) if hasattr(value, "shape") else np.shape(value)
    return shape[: len(shape) - inner]


def summed_to(one: Input, array: Any, shape: tuple[int, ...]) -> Any:
    """The gradient by an input whose value had this leading shape: summed over what broadcasting repeated."""
    inner = 1 if one.kind == "vector" else 0
    events = tuple(array.shape)[: len(array.shape) - inner]
    if shape in ((), events):
        return array
    missing = len(events) - len(shape)
    repeated = [n for n in range(len(events)) if n < missing or shape[n - missing] != events[n]]
    return array.sum(tuple(repeated)).reshape(*shape, *array.shape[len(events) :])


def stack(parts: list[Any], axis: int) -> Any:
    """numpy.stack of the arrays' own library."""
    return _namespace(parts[0]).stack(parts, axis)


def embedded(array: Any, letters: str, order: str) -> tuple[Any, ...]:
    """The components `letters` of 4-vectors as columns in `order`, zero where they are missing."""
    array = as_array(array)
    if tuple(array.shape[-1:]) != (len(letters),):
        raise ValueError(f"cotangent: shape {tuple(array.shape)} does not end in {len(letters)} components")
    zero = _namespace(array).zeros_like(array[..., 0])
    return tuple(array[..., letters.index(c)] if c in letters else zero for c in order)


def _namespace(array: Any) -> Any:
    """The library of an array."""
    return sys.modules[{"jaxlib": "jax.numpy"}.get(name := type(array).__module__.partition(".")[0], name)]


def program_of(tape: Tape) -> cpu.Program:
    """The tape compiled for the CPU, once."""
    program = tape.__dict__.get("_cpu_program")
    if program is None:
        program = tape.__dict__.setdefault("_cpu_program", cpu.Program(tape))
    return program


def backends() -> dict[str, str]:
    """What each back end is on this machine, or why it is not there."""
    return {"cpu": f"{cpu.default_threads()} threads, instruction set {cpu.instruction_set()}"}
