"""Which executor runs a call: NumPy arrays and CPU tensors the CPU's, CUDA tensors Triton's, JAX arrays XLA.

A back end asked for by name runs or raises with the reason; the automatic choice never leaves the arrays' device.
"""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from . import arrays
from .structure import Stack, Structure, as_array
from .tape import Input, Tape

if TYPE_CHECKING:  # the build traces the shipped functions before there is an executor
    from .cpu import Program

BACKENDS = ("cpu", "triton", "triton-interpret")
OWN_BACKEND = {"cpu": "cpu", "cuda": "triton"}
DLPACK_CPU = 1
ARITHMETIC: dict[str, Literal["d", "f"]] = {"float64": "d", "float32": "f"}


class Options(NamedTuple):
    """The call-time keywords."""

    backend: str | None = None
    compute: str | None = None
    threads: int | None = None
    components: str | None = None
    order: str = arrays.COMPONENTS
    out: Any = None

    @property
    def usual(self) -> bool:
        """Whether they ask for nothing that `plain_calls` do not do."""
        return self.out is None and self.compute != "float32" and self._replace(compute=None) == Options()

    def checked(self) -> "Options":
        """Raises ValueError, listing what is known, for an unknown value."""
        if self.backend is not None and self.backend not in BACKENDS:
            raise ValueError(f"backend must be None or one of {', '.join(map(repr, BACKENDS))}, not {self.backend!r}")
        if self.compute is not None and (not isinstance(self.compute, str) or self.compute not in ARITHMETIC):
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
    """The outputs of a tape for these values, in the structure, as arrays of the library of the values.

    Raises TypeError for values of several libraries.
    """
    if values and options.usual and not isinstance(structure, Stack) and not compiling():
        call = plain_calls(tape).get(type(values[0]))
        if call is not None and (results := call(tuple(values))) is not None:
            return structure.build(iter(results), stack)
    library = _library(tape.inputs, values)
    if library == "numpy":
        return _run_numpy(tape, structure, values, options)
    if library == "torch":
        from . import torch

        return torch.run(tape, structure, values, options)
    if library == "jax":
        from . import jax

        return jax.run(tape, structure, values, options)
    if options.out is not None:
        taken = options._replace(out=_each(_taken, options.out))
        native(tape.inputs, values, lambda values: run(tape, structure, values, taken))
        return options.out
    return native(tape.inputs, values, lambda values: run(tape, structure, values, options))


def _run_numpy(tape: Tape, structure: Structure, values: Sequence[Any], options: Options) -> Any:
    given = arrays.arguments(tape.inputs, values)
    letters = options.order if options.components is None else options.components
    shapes = [arrays.output_shape(output, given.shape, len(letters)) for output in tape.outputs]
    result = None
    if options.out is not None:
        result = options.out
        outputs = structure.flatten("out", result)
        arrays.check_out(outputs, shapes, given.dtype, tape.inputs, given.arrays, given.shape)
    elif isinstance(structure, Stack):
        result = np.empty((len(shapes), *shapes[0]), given.dtype)
        outputs = [result[n, ...] for n in range(len(shapes))]
    else:
        outputs = [np.empty(shape, given.dtype) for shape in shapes]
    compute = ARITHMETIC[options.compute or "float64"]
    places = arrays.axes(options.order), arrays.axes(letters)
    if executor(options.backend, "cpu") == "cpu":
        program_of(tape).run(given.shape, given.arrays, places[0], outputs, places[1], compute, options.threads)
    else:
        from . import torch

        torch.interpret(tape, given, places[0], outputs, places[1], compute)
    return structure.build(iter(outputs), np.stack) if result is None else result


def native(inputs: Sequence[Input], values: Sequence[Any], compute: Callable[[list[Any]], Any]) -> Any:
    """compute(values), where `compute` knows the arrays of NumPy, torch and JAX only.

    Those of another library go through DLPack to torch or NumPy, and the result back where the library reads DLPack.
    """
    library = _library(inputs, values)
    if library in ("numpy", "torch", "jax"):
        return compute(list(values))
    taken = [tuple(map(_taken, value)) if isinstance(value, tuple) else _taken(value) for value in values]
    return _each(getattr(sys.modules[library], "from_dlpack", lambda x: x), compute(taken))


def _taken(value: Any) -> Any:
    if _library_of(value) in (None, "numpy", "torch"):
        return value
    if hasattr(value, "__dlpack__") and value.__dlpack_device__()[0] == DLPACK_CPU:
        return np.from_dlpack(value)
    import torch

    return torch.from_dlpack(value) if hasattr(value, "__dlpack__") else torch.as_tensor(value, device="cuda")


def _each(function: Callable[[Any], Any], results: Any) -> Any:
    if isinstance(results, dict):
        return {key: _each(function, part) for key, part in results.items()}
    if isinstance(results, (tuple, list)):
        return tuple(_each(function, part) for part in results)
    return function(results)


def _library(inputs: Sequence[Input], values: Sequence[Any]) -> str:
    """The library of all values, NumPy's where they are numbers and lists only. Raises TypeError for several."""
    found: dict[str, str] = {}
    for one, value in zip(inputs, values, strict=True):
        for part in arrays.parts(value):
            if isinstance(part, list):
                _check_list(one.name, part)
            elif (library := _library_of(part)) is not None:
                found.setdefault(library, one.name)
    if len(found) > 1:
        given = ", ".join(f"{name} of {library}" for library, name in found.items())
        raise TypeError(f"the arguments are arrays of different libraries: {given}; convert them to those of one")
    return next(iter(found), "numpy")


def _library_of(value: Any) -> str | None:
    """ "numpy", "torch", "jax", or the module of another library; None for what goes with the arrays of any."""
    if isinstance(value, np.ndarray):
        return "numpy"
    if isinstance(value, (int, float, list, np.generic)):
        return None
    for name, kind in (("torch", "Tensor"), ("jax", "Array")):
        if name in sys.modules and isinstance(value, getattr(sys.modules[name], kind)):
            return name
    if hasattr(value, "__cuda_array_interface__") or (hasattr(value, "__dlpack__") and not hasattr(value, "__array__")):
        return type(value).__module__.partition(".")[0]
    return "numpy"


def _check_list(name: str, value: list[Any]) -> None:
    """NumPy would convert a list of tensors one by one, and lose their gradients, or the masks of masked arrays."""
    for part in value:
        if isinstance(part, (list, tuple)):
            _check_list(name, list(part))
        elif isinstance(part, np.ma.MaskedArray):
            raise TypeError(f"{name}: a list of masked arrays is not supported; fill or select the events first")
        elif (library := _library_of(part)) not in (None, "numpy"):
            raise TypeError(
                f"{name}: a list of arrays of {library}; stack them, or pass the columns as a tuple of four"
            )


def executor(backend: str | None, device: str) -> str:
    """The back end for arrays on a kind of device, "cpu" or "cuda": the one asked for, or the device's own.

    Raises ValueError or RuntimeError, with the reason, where there is none or where it is not that device's.
    """
    if backend is None:
        if device not in OWN_BACKEND:
            raise RuntimeError(f"no back end runs on {device} devices; those that there are: {', '.join(BACKENDS)}")
        return OWN_BACKEND[device]
    wanted = "cuda" if backend == "triton" else "cpu"
    if device != wanted:
        there, report = _available(backend)
        if not there:
            raise RuntimeError(f"backend {backend!r} cannot run: {report}")
        raise ValueError(f"backend {backend!r} takes arrays on {wanted} devices, not on {device}")
    return backend


def plain_calls(tape: Tape) -> dict[type, Callable[[tuple[Any, ...]], tuple[Any, ...] | None]]:
    """What runs a tape without options on the usual arguments, by the type of the first; None for unusual ones."""
    calls: dict[type, Callable[[tuple[Any, ...]], tuple[Any, ...] | None]] = {np.ndarray: program_of(tape).call}
    if "fastcov.torch" in sys.modules:
        from . import torch

        calls.update(torch.plain_calls(tape))
    return calls


def compiling() -> bool:
    """Whether torch is capturing a program."""
    if "torch" not in sys.modules or not sys.modules["torch"].compiler.is_compiling():
        return False
    from . import torch  # noqa: F401  what it tells the compiler has to be known before the call is followed

    return True


def is_array(value: Any) -> bool:
    """Whether a value has components, rather than being a number or a symbol of a trace."""
    if isinstance(value, (list, tuple)):
        return True
    return any(hasattr(value, f"__{name}__") for name in ("array_interface", "dlpack", "cuda_array_interface"))


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
    return namespace(parts[0]).stack(parts, axis)


def embedded(array: Any, letters: str, order: str) -> tuple[Any, ...]:
    """The components `letters` of 4-vectors as columns in `order`, zero where they are missing."""
    if isinstance(array, tuple):
        given = [as_array(column) for column in array]
    else:
        array = as_array(array)
        given = [array[..., n] for n in range(array.shape[-1])] if array.shape else []
    if len(given) != len(letters):
        raise ValueError(f"cotangent: {len(given)} components instead of {len(letters)}")
    zero = namespace(given[0]).zeros_like(given[0])
    return tuple(given[letters.index(c)] if c in letters else zero for c in order)


def namespace(array: Any) -> Any:
    """The module of functions for an array."""
    library = _library_of(array) or "numpy"
    return sys.modules["jax.numpy" if library == "jax" else library]


def program_of(tape: Tape) -> "Program":
    """The tape compiled for the CPU, once."""
    program: Program | None = tape.__dict__.get("_cpu_program")
    if program is None:
        from . import cpu

        program = tape.__dict__.setdefault("_cpu_program", cpu.Program(tape))
    return program


class Report(dict[str, str]):
    """What each back end is on this machine, or why it is not there."""

    def __str__(self) -> str:
        width = max(map(len, self))
        return "\n".join(f"{name:{width}}  {report}" for name, report in self.items())

    __repr__ = __str__


def backends() -> Report:
    """What each back end is on this machine, or why it is not there."""
    found = {name: _available(name) for name in BACKENDS}
    return Report((name, words if there else f"not available: {words}") for name, (there, words) in found.items())


def _available(backend: str) -> tuple[bool, str]:
    """Whether a back end can run here, and what it is or why it cannot."""
    if backend == "cpu":
        from . import cpu

        return True, f"{cpu.default_threads()} threads, instruction set {cpu.instruction_set()}"
    from . import kernels

    return kernels.available(interpret=backend == "triton-interpret")
