"""The derivatives of a fused function, fused functions themselves.

Their arguments are those of the function and, but for the Jacobian, one more: a cotangent in the structure of its
result, or tangents in the structure of its arguments.
"""

from collections.abc import Iterator
from typing import Any

from . import derivative
from .arrays import axes
from .dispatch import Options, embedded, event_shape, stack, summed_to
from .fused import Fused, Trace
from .structure import Dict, Leaf, Rows, Stack, Structure, Tuple, leaves
from .tape import Output, Tape


class Derivative(Fused):
    """A derivative of `base`."""

    name = ""
    extra: str | None = None

    def __init__(self, base: Fused):
        self.base = base
        self.arity = base.arity + (self.extra is not None)
        self._options = base._options
        self.__name__ = f"{base.__name__}.{self.name}"

    def with_defaults(self, **defaults: Any) -> "Derivative":
        return type(self)(self.base.with_defaults(**defaults))

    def default_constants(self) -> dict[str, Any]:
        return self.base.default_constants()

    def __reduce__(self):
        return type(self), (self.base,)

    def _known(self) -> str:
        return ", ".join([self.base._known(), *([self.extra] if self.extra else [])])

    def bind(self, args: tuple, keywords: dict[str, Any], options: Options) -> tuple[dict[str, Any], list[Any]]:
        if self.extra is None:
            return self.base.bind(args, keywords, options)
        if self.extra in keywords:
            extra = keywords.pop(self.extra)
        elif len(args) == self.arity:
            args, extra = args[:-1], args[-1]
        else:
            raise TypeError(f"{self.__name__}() is missing the argument {self.extra!r}")
        constants, values = self.base.bind(args, keywords, options)
        return constants, values + self._extra_values(constants, values, extra, options)

    def _extra_values(self, constants: dict[str, Any], values: list[Any], extra: Any, options: Options) -> list[Any]:
        raise NotImplementedError

    def arguments(self, constants: dict[str, Any], options: Options) -> Tuple:
        if self.extra is None:
            return self.base.arguments(constants, options)
        return Tuple((*self.base.arguments(constants, options).children, self._extra_structure(constants, options)))

    def _extra_structure(self, constants: dict[str, Any], options: Options) -> Structure:
        raise NotImplementedError

    def trace(self, constants: dict[str, Any], shared: tuple[bool, ...] | None = None) -> Trace:
        count = len(self.base.trace(constants).tape.inputs)
        own = (False,) * count if shared is None else shared[:count]
        base = self.base.trace(constants, own)
        made = base.tape.__dict__.setdefault("_derivatives", {})
        key = type(self), own
        if key not in made:
            made[key] = self._derived(base.tape, own)
        tape = made[key]
        return Trace(tape, leaves(len(tape.outputs)))

    def trace_of(self, constants: dict[str, Any], values: list[Any]) -> Trace:
        inputs = self.base.trace(constants).tape.inputs
        return self.trace(constants, tuple(event_shape(one, v) == () for one, v in zip(inputs, values, strict=False)))

    def _derived(self, tape: Tape, shared: tuple[bool, ...]) -> Tape:
        raise NotImplementedError

    def run_options(self, options: Options) -> Options:
        return options._replace(components=None)


class Vjp(Derivative):
    """f.vjp(*inputs, cotangent=c): the gradient of sum c * f by each argument, in the argument's shape.

    Run-time keywords follow the positional arguments. What all events share, a 4-vector (4,) or a number, gets the sum
    over events.
    """

    name = "vjp"
    extra = "cotangent"
    with_value = False

    def _extra_structure(self, constants: dict[str, Any], options: Options) -> Structure:
        trace = self.base.trace(constants)
        return _with_rows(trace.structure, iter(trace.tape.outputs), axes(options.order))

    def _extra_values(self, constants: dict[str, Any], values: list[Any], extra: Any, options: Options) -> list[Any]:
        parts = self._extra_structure(constants, options).flatten("cotangent", extra)
        if options.components is None:
            return parts
        kinds = [one.kind for one in derivative.cotangent_inputs(self.base.trace(constants).tape)]
        return [
            embedded(part, options.components, options.order) if kind == "vector" else part
            for part, kind in zip(parts, kinds, strict=True)
        ]

    def _derived(self, tape: Tape, shared: tuple[bool, ...]) -> Tape:
        return derivative.vjp(tape, [True] * len(shared), shared, value=self.with_value)

    def finish(self, constants: dict[str, Any], options: Options, values: list[Any], results: Any) -> Any:
        base = self.base.trace(constants)
        inputs = base.tape.inputs
        parts = iter(results)
        value = base.structure.build(parts, stack) if self.with_value else None
        gradients = [
            summed_to(one, part, event_shape(one, given))
            for one, given, part in zip(inputs, values, parts, strict=False)
        ]
        arranged = self.base.arguments(constants, options).build(iter(gradients), stack)
        return (value, arranged) if self.with_value else arranged


class ValueAndVjp(Vjp):
    """f.value_and_vjp(*inputs, cotangent=c): (f(*inputs), f.vjp(*inputs, cotangent=c)) in one pass."""

    name = "value_and_vjp"
    with_value = True


class Jvp(Derivative):
    """f.jvp(*inputs, tangents=(...)): the tangent of the result, for one tangent an argument (None: zero)."""

    name = "jvp"
    extra = "tangents"

    def _extra_structure(self, constants: dict[str, Any], options: Options) -> Structure:
        return self.base.arguments(constants, options)

    def _extra_values(self, constants: dict[str, Any], values: list[Any], extra: Any, options: Options) -> list[Any]:
        inputs = self.base.trace(constants).tape.inputs
        parts = self._extra_structure(constants, options).flatten("tangents", extra)
        zero = {"scalar": 0.0, "vector": [0.0] * 4}
        return [zero[one.kind] if part is None else part for one, part in zip(inputs, parts, strict=True)]

    def _derived(self, tape: Tape, shared: tuple[bool, ...]) -> Tape:
        return derivative.jvp(tape, [True] * len(shared))

    def run_options(self, options: Options) -> Options:
        return options

    def finish(self, constants: dict[str, Any], options: Options, values: list[Any], results: Any) -> Any:
        return self.base.trace(constants).structure.build(iter(results), stack)


class Jacobian(Derivative):
    """f.jacobian(*inputs): d f_m / d x_n of each event, for each output a tuple with one part an input.

    (..., 4, 4) for a vector by a vector, (..., 4) for a vector by a scalar or a scalar by a vector.
    """

    name = "jacobian"

    def _derived(self, tape: Tape, shared: tuple[bool, ...]) -> Tape:
        return derivative.jacobian(tape)

    def finish(self, constants: dict[str, Any], options: Options, values: list[Any], results: Any) -> Any:
        if options.components is not None:
            raise ValueError("jacobian: components are not chosen here; the Jacobian has all of them")
        base = self.base.trace(constants)
        parts = iter(results)
        by_output = [tuple(next(parts) for _ in base.tape.inputs) for _ in base.tape.outputs]
        if isinstance(base.structure, Stack):
            return tuple(stack([one[n] for one in by_output], 0) for n in range(len(base.tape.inputs)))
        return base.structure.build(iter(by_output), stack)


def _with_rows(structure: Structure, outputs: Iterator[Output], places: tuple[int, int, int, int]) -> Structure:
    """A structure of outputs as one of cotangents: a matrix goes in by its rows."""
    match structure:
        case Leaf():
            return Rows(places) if next(outputs).kind == "matrix" else structure
        case Tuple(children):
            return Tuple(tuple(_with_rows(child, outputs, places) for child in children))
        case Dict(keys, children):
            return Dict(keys, tuple(_with_rows(child, outputs, places) for child in children))
    return structure
