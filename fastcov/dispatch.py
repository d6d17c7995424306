"""Which executor runs a call: NumPy arrays and CPU tensors go to the CPU's.

A back end asked for by name runs or raises with the reason; only the automatic choice chooses.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from . import arrays, cpu
from .tape import Tape

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


class Structure(NamedTuple):
    """How the outputs of a tape are handed to the caller: one, a tuple, a dict, or stacked in one array."""

    kind: str  # "single", "tuple", "dict" or "stack"
    keys: tuple = ()

    def pack(self, results: Sequence[Any]) -> Any:
        if self.kind == "single":
            return results[0]
        return dict(zip(self.keys, results, strict=True)) if self.kind == "dict" else tuple(results)

    def unpack(self, name: str, value: Any, count: int) -> list[Any]:
        """The parts of something that must have the outputs' structure."""
        if self.kind == "single":
            return [value]
        if self.kind == "dict":
            if not isinstance(value, dict) or set(value) != set(self.keys):
                raise ValueError(f"{name} must be a dict with the keys {', '.join(map(repr, self.keys))}")
            return [value[key] for key in self.keys]
        if self.kind == "stack":
            if not hasattr(value, "__getitem__") or len(value) != count:
                raise ValueError(f"{name} must have {count} as its first dimension")
            return [value[n] for n in range(count)]
        if not isinstance(value, tuple) or len(value) != count:
            raise ValueError(f"{name} must be a tuple of {count}")
        return list(value)


def run(tape: Tape, structure: Structure, values: Sequence[Any], options: Options) -> Any:
    """The outputs of a tape for these values, in the structure."""
    given = arrays.arguments(tape.inputs, values)
    letters = options.order if options.components is None else options.components
    shapes = [arrays.output_shape(output, given.shape, len(letters)) for output in tape.outputs]
    if options.out is None:
        if structure.kind == "stack":
            whole = np.empty((len(shapes), *shapes[0]), given.dtype)
            outputs = list(whole)
        else:
            outputs = [np.empty(shape, given.dtype) for shape in shapes]
            whole = structure.pack(outputs)
    else:
        whole = options.out
        outputs = structure.unpack("out", whole, len(shapes))
        for n, (out, shape) in enumerate(zip(outputs, shapes, strict=True)):
            name = "out" if structure.kind == "single" else f"out[{n}]"
            arrays.check_out(name, out, shape, given.dtype, given.arrays, len(outputs) == 1)
    program_of(tape).run(
        given.shape,
        given.arrays,
        arrays.axes(options.order),
        outputs,
        arrays.axes(letters),
        ARITHMETIC[options.compute or "float64"],
        options.threads,
    )
    return whole


def program_of(tape: Tape) -> cpu.Program:
    """The tape compiled for the CPU, once."""
    program = tape.__dict__.get("_cpu_program")
    if program is None:
        program = tape.__dict__.setdefault("_cpu_program", cpu.Program(tape))
    return program


def backends() -> dict[str, str]:
    """What each back end is on this machine, or why it is not there."""
    return {"cpu": f"{cpu.default_threads()} threads, instruction set {cpu.instruction_set()}"}
