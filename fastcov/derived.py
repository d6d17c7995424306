"""The derivatives of a fused function, fused functions themselves.

Their arguments are those of the function and, but for the Jacobian, one more: a cotangent in the structure of its
result, or tangents in the structure of its arguments.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from . import derivative
from .arrays import axes, broadcast
from .dispatch import Options, embedded, event_shape, stack, summed_to
from .fused import Fused, Trace, capture_as_constant
from .structure import NO_ROW, Dict, Leaf, Rows, Stack, Structure, Tuple, leaves
from .tape import RANKS, Input, Output, Tape
from .tensors import Scalar, Tensor

_ZERO = {"scalar": 0.0, "vector": (0.0,) * 4}  # numbers, which go with any library and dtype


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

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.base,)

    def _known(self) -> str:
        return ", ".join([self.base._known(), *([self.extra] if self.extra else [])])

    def bind(
        self, args: tuple[Any, ...], keywords: dict[str, Any], options: Options
    ) -> tuple[dict[str, Any], list[Any]]:
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

    @capture_as_constant
    def trace(self, constants: dict[str, Any], shared: tuple[bool, ...] | None = None) -> Trace:
        count = len(self.base.trace(constants).tape.inputs)
        own = (False,) * count if shared is None else shared[:count]
        base: Trace = self.base.trace(constants, own)
        made: dict[Any, Tape] = base.tape.__dict__.setdefault("_derivatives", {})
        key = type(self), own
        if key not in made:
            made[key] = self._derived(base.tape, own)
        return Trace(made[key], self._arranged(base, made[key]))

    def trace_of(self, constants: dict[str, Any], values: list[Any]) -> Trace:
        inputs = self.base.trace(constants).tape.inputs
        shared = tuple(event_shape(one, value) == () for one, value in zip(inputs, values, strict=False))
        trace: Trace = self.trace(constants, shared)
        return trace

    def _derived(self, tape: Tape, shared: tuple[bool, ...]) -> Tape:
        raise NotImplementedError

    def _arranged(self, base: Trace, tape: Tape) -> Structure:
        """How the results of the tape are arranged."""
        return leaves(len(tape.outputs))

    def run_options(self, options: Options) -> Options:
        return options._replace(components=None)


class Vjp(Derivative):
    """f.vjp(*inputs, cotangent=c): the gradient of sum c * f by each argument, in the argument's shape
    (packed, also where the argument was columns).

    Run-time keywords follow the positional arguments. What all events share, a 4-vector (4,) or a number, gets the sum
    over events.
    """

    name = "vjp"
    extra = "cotangent"
    with_value = False

    def _extra_structure(self, constants: dict[str, Any], options: Options) -> Structure:
        trace = self.base.trace(constants)
        return _with_rows(trace.structure, iter(trace.tape.outputs), axes(options.components or options.order))

    def _extra_values(self, constants: dict[str, Any], values: list[Any], extra: Any, options: Options) -> list[Any]:
        if options.components is not None and isinstance(self.base, Derivative):
            raise ValueError(f"{self.__name__}: components are not chosen in the derivative of a derivative")
        tape = self.base.trace(constants).tape
        parts = self._extra_structure(constants, options).flatten("cotangent", extra)
        if any(isinstance(value, (Scalar, Tensor)) for value in values):
            return parts
        events = _event_shape(tape.inputs, values)
        cotangents = []
        for one, part in zip(derivative.cotangent_inputs(tape), parts, strict=True):
            if options.components is not None and one.kind == "vector" and part is not NO_ROW:
                part = embedded(part, options.components, options.order)
            shape = event_shape(one, part)
            if one.shared and shape:
                raise ValueError(f"cotangent: that of a summed output has no events, but has shape {shape} of them")
            if events is not None and not _broadcasts_to(shape, events):
                raise ValueError(f"cotangent: events of shape {shape} do not fit those of the result, {events}")
            cotangents.append(part)
        return cotangents

    def _derived(self, tape: Tape, shared: tuple[bool, ...]) -> Tape:
        return derivative.vjp(tape, [True] * len(shared), shared, value=self.with_value)

    def finish(self, constants: dict[str, Any], options: Options, values: list[Any], results: Any) -> Any:
        gradients = [
            summed_to(one, part, event_shape(one, given))
            for one, given, part in zip(self.base.trace(constants).tape.inputs, values, results, strict=False)
        ]
        return self.base.arguments(constants, options).build(iter(gradients), stack)


class ValueAndVjp(Vjp):
    """f.value_and_vjp(*inputs, cotangent=c): (f(*inputs), f.vjp(*inputs, cotangent=c)) in one pass."""

    name = "value_and_vjp"
    with_value = True

    def _arranged(self, base: Trace, tape: Tape) -> Structure:
        return Tuple((base.structure, leaves(len(base.tape.inputs))))

    def finish(self, constants: dict[str, Any], options: Options, values: list[Any], results: Any) -> Any:
        value, gradients = results
        if options.components is not None:
            base = self.base.trace(constants)
            places = [options.order.index(c) for c in options.components]
            parts = [
                _selected(part, places, RANKS[output.kind])
                for output, part in zip(base.tape.outputs, base.structure.flatten("value", value), strict=True)
            ]
            value = base.structure.build(iter(parts), stack)
        return value, super().finish(constants, options, values, gradients)


class Jvp(Derivative):
    """f.jvp(*inputs, tangents=(...)): the tangent of the result, for one tangent an argument (None: zero)."""

    name = "jvp"
    extra = "tangents"

    def _extra_structure(self, constants: dict[str, Any], options: Options) -> Structure:
        return self.base.arguments(constants, options)

    def _extra_values(self, constants: dict[str, Any], values: list[Any], extra: Any, options: Options) -> list[Any]:
        inputs = self.base.trace(constants).tape.inputs
        parts = self._extra_structure(constants, options).flatten("tangents", extra)
        return [
            part if part is not None else value * 0 if isinstance(value, (Scalar, Tensor)) else _ZERO[one.kind]
            for one, value, part in zip(inputs, values, parts, strict=True)
        ]

    def _derived(self, tape: Tape, shared: tuple[bool, ...]) -> Tape:
        return derivative.jvp(tape, [True] * len(shared))

    def _arranged(self, base: Trace, tape: Tape) -> Structure:
        return base.structure

    def run_options(self, options: Options) -> Options:
        return options


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
        case Stack(size):
            *_, child = [_with_rows(Leaf(), outputs, places) for _ in range(size)]  # all alike
            return Stack(size, child)
    return structure


def _event_shape(inputs: Sequence[Input], values: Sequence[Any]) -> tuple[int, ...] | None:
    """The shape of the events of a call; None where the values do not broadcast, which is said elsewhere."""
    try:
        return broadcast([event_shape(one, value) for one, value in zip(inputs, values, strict=True)])
    except ValueError:
        return None


def _broadcasts_to(shape: tuple[int, ...], events: tuple[int, ...]) -> bool:
    try:
        return broadcast((shape, events)) == events
    except ValueError:
        return False


def _selected(part: Any, places: list[int], rank: int) -> Any:
    """The components at these places, along each of the last `rank` axes."""
    for axis in range(-1, -rank - 1, -1):
        part = stack([part[(..., place, *(slice(None),) * (-axis - 1))] for place in places], axis)
    return part
