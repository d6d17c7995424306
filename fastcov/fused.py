"""Fused functions: an amplitude written on 4-vectors, traced once, called on arrays."""

import functools
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from . import polynomial
from .assemble import assemble, replayed
from .components import matrix, vector
from .contract import finish
from .dispatch import Options, compiling, is_array, plain_calls, run
from .graph import Graph, Node
from .locks import Guard
from .structure import Dict, Leaf, Stack, Structure, Tuple, leaves, packed
from .tape import Cost, Input, Output, Tape
from .tensors import Scalar, Tensor, graph_of, rational

TRACES_KEPT = 64  # of one function, for different constants


class Summed(NamedTuple):
    """An output that is summed over events; see `fastcov.sum`."""

    value: Any


class Stacked(tuple[Any, ...]):
    """Outputs of equal kind that the caller gets in one array, stacked along its first axis."""


def sum(x: Any) -> Summed:
    """Mark an output of a fused function as summed over all events.

    The sum is in float64, in an order that depends on the number of events only. x: a scalar, a 4-vector or a tensor of
    rank 2.
    """
    if not isinstance(x, (Scalar, Tensor)):
        raise TypeError(f"sum: x must be a traced scalar or tensor, not {type(x).__name__}")
    return Summed(x)


class Parameter(NamedTuple):
    name: str
    kind: str  # "vector", "scalar", "constant" (of the trace), or "runtime" (a keyword that is a number of the run)
    default: Any = inspect.Parameter.empty


class Trace(NamedTuple):
    """What tracing gives: the tape, and how its outputs are arranged."""

    tape: Tape
    structure: Structure


def fused(function: Callable[..., Any] | None = None, **defaults: Any) -> Any:
    """Turn a function of 4-vectors into one of arrays that computes everything in one pass; also a decorator.

    The function is traced with symbols, once for each set of its keyword constants. Its positional parameters are
    4-vectors, or numbers where annotated `fastcov.Scalar`; keyword-only parameters are constants of the trace, or,
    where annotated `fastcov.Scalar`, numbers shared by all events and given at run time. It returns a scalar, a
    4-vector, a tensor of rank 2, or a tuple or dict of those; `fastcov.sum` marks one summed over events.

    A 4-vector argument is an array (..., 4), a tuple of four arrays (the columns), or one 4-vector (4,) for all events;
    leading shapes broadcast. The call gives packed arrays (..., 4).

    Keywords of the call, of which `defaults` may set any:
        backend      None (by the arrays' device) or a name that `fastcov.backends()` lists
        compute      "float64" (also for float32 arrays, unless asked) or "float32": the arithmetic
        threads      at most so many; None: as many as the process may use and the work is worth
        order        the order of the components in inputs and outputs, "xyzE" or "Exyz" for example
        components   the components of the outputs, in this order, for example "xy"; None: all, in `order`
        out          arrays to write to, in the structure of the result

    Raises TypeError for a function whose parameters or result are none of these, ValueError for unknown values.
    """
    if function is None:
        return functools.partial(fused, **defaults)
    if isinstance(function, Fused):
        return function.with_defaults(**defaults)
    if not callable(function):
        raise TypeError(f"fused: {function!r} is not callable")
    return FusedFunction(function, _parameters(function)).with_defaults(**defaults)


def bundle(*waves: Callable[..., Any], **defaults: Any) -> "Fused":
    """Several fused functions of the same arguments in one pass: one array (n_waves, ..., 4), or fewer `components`.

    Whatever the functions have in common is computed once: `bundle(...).cost` against the costs of the single ones
    shows how much. The values are those of the single functions, to the bit. Its parameters are theirs, which must be
    the same, with the same defaults; `defaults` are those of `fused`. Raises ValueError for no function, or for
    functions of different parameters, TypeError for a derivative.
    """
    members = [fused(wave) for wave in waves]
    if not members:
        raise ValueError("bundle: at least one function is needed")
    first = members[0]
    for member in members:
        if not isinstance(member, FusedFunction):
            raise TypeError(f"bundle: {member.__name__} is a derivative; take the derivative of the bundle instead")
        if (member.parameters, member.constants) != (first.parameters, first.constants):
            raise ValueError(
                f"bundle: {member.__name__} has other parameters or defaults than {first.__name__}: "
                + ", ".join(p.name for p in first.parameters)
            )

    def together(*args: Any, **keywords: Any) -> Stacked:
        return Stacked(member(*args, **keywords) for member in members)

    together.__name__ = together.__qualname__ = "bundle"
    together.__doc__ = "Bundle of " + ", ".join(member.__name__ for member in members)
    return FusedFunction(together, first.parameters).with_defaults(**first.constants, **defaults)


def capture_as_constant(function: Callable[..., Any]) -> Any:
    """Let torch.compile take the result for a constant, not follow how it comes about.

    The mark is that of torch.compiler.assume_constant_result, without importing the compiler.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


class Fused:
    """A function on arrays: traced by `fastcov.fused`, or a derivative of one."""

    __name__: str
    arity: int  # how many positional arguments it takes
    _options: Options
    _fast: Mapping[type, Callable[[tuple[Any, ...]], tuple[Any, ...] | None]] = MappingProxyType(
        {}
    )  # by the type of the first argument
    _structure: Structure

    # What a kind of fused function has to provide.

    def with_defaults(self, **defaults: Any) -> "Fused":
        """The same function with other defaults for the keywords of its calls or for its constants."""
        raise NotImplementedError

    def bind(
        self, args: tuple[Any, ...], keywords: dict[str, Any], options: Options
    ) -> tuple[dict[str, Any], list[Any]]:
        """The constants of a call, and the value of each input of its tape; what they use is taken from `keywords`."""
        raise NotImplementedError

    def trace(self, constants: dict[str, Any], shared: tuple[bool, ...] | None = None) -> Trace:
        """The tape for these constants; `shared`: which inputs are one value for all events."""
        raise NotImplementedError

    def default_constants(self) -> dict[str, Any]:
        raise NotImplementedError

    def arguments(self, constants: dict[str, Any], options: Options) -> Tuple:
        """How the inputs of the tape are arranged as arguments."""
        raise NotImplementedError

    def trace_of(self, constants: dict[str, Any], values: list[Any]) -> Trace:
        """The tape for these constants and values."""
        return self.trace(constants)

    def run_options(self, options: Options) -> Options:
        """The options of a call as they hold for the tape."""
        return options

    def finish(self, constants: dict[str, Any], options: Options, values: list[Any], results: Any) -> Any:
        """The results of the tape as the caller gets them."""
        return results

    # Calls

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        captured = compiling()
        if args and not keywords and not captured:
            fast = self._fast.get(type(args[0]))
            if fast is not None and (results := fast(args)) is not None:
                return packed(self._structure, results)
        if any(isinstance(a, (Scalar, Tensor)) for a in (*args, *keywords.values())):
            return self._inlined(args, keywords)
        given = {name: keywords.pop(name) for name in Options._fields if name in keywords}
        options = self._options._replace(**given).checked() if given else self._options
        plain = not given and not keywords
        constants, values = self.bind(args, keywords, options)
        if keywords:
            raise ValueError(f"{self.__name__}(): unknown keyword {min(keywords)!r}; known are {self._known()}")
        trace = self.trace_of(constants, values)
        results = run(trace.tape, trace.structure, values, self.run_options(options))
        if plain and not captured and args and type(args[0]) not in self._fast:
            self._remember(trace, type(args[0]))
        return self.finish(constants, options, values, results)

    def _remember(self, trace: Trace, kind: type) -> None:
        """Let plain calls go straight to the CPU executor from now on, where nothing else is needed.

        kind: of the first argument of the call; it is noted too if it is of no use here.
        """

    def _known(self) -> str:
        return ", ".join(Options._fields)

    def _inlined(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The operations of the tape on traced arguments."""
        for name in Options._fields:
            if name in keywords:
                raise TypeError(f"{self.__name__}(): {name!r} has no meaning inside a trace")
        constants, values = self.bind(args, keywords, Options())
        if any(is_array(value) for value in values):
            raise TypeError(f"{self.__name__}(): traced values and arrays cannot be mixed")
        graph = graph_of(*[v for v in values if isinstance(v, (Scalar, Tensor))])
        trace = self.trace(constants)
        nodes = [_input_node(graph, one, value) for one, value in zip(trace.tape.inputs, values, strict=True)]
        results = []
        for output, rows in zip(trace.tape.outputs, replayed(trace.tape, graph, nodes), strict=True):
            if output.kind == "matrix":
                raise TypeError(f"{self.__name__}(): a tensor of rank 2 cannot be taken apart again inside a trace")
            value = Tensor.of_node(rows[0]) if output.kind == "vector" else Scalar(rows[0])
            results.append(Summed(value) if output.summed else value)
        return trace.structure.build(iter(results), lambda parts, axis: Stacked(parts))

    # Derivatives: see derived.py

    @property
    def vjp(self) -> "Fused":
        """f.vjp(*inputs, cotangent=c): the gradient of sum c * f by each argument, in the argument's shape
        (packed, also where the argument was columns)."""
        return self._derivative("Vjp")

    @property
    def value_and_vjp(self) -> "Fused":
        """f.value_and_vjp(*inputs, cotangent=c): (f(*inputs), f.vjp(*inputs, cotangent=c)) in one pass."""
        return self._derivative("ValueAndVjp")

    @property
    def jvp(self) -> "Fused":
        """f.jvp(*inputs, tangents=(...)): the tangent of the result, for one tangent an argument (None: zero)."""
        return self._derivative("Jvp")

    @property
    def jacobian(self) -> "Fused":
        """f.jacobian(*inputs): d f_m / d x_n of each event, (..., 4, 4) for a vector, one an input.

        TypeError for a result of rank 2 and for one that is summed over events.
        """
        return self._derivative("Jacobian")

    def _derivative(self, kind: str) -> "Fused":
        self._make_derivatives()
        derivative: Fused = self.__dict__[kind]
        return derivative

    @capture_as_constant
    def _make_derivatives(self) -> None:
        if "Vjp" not in self.__dict__:
            from .derived import Jacobian, Jvp, ValueAndVjp, Vjp

            self.__dict__.update({kind.__name__: kind(self) for kind in (Jacobian, Jvp, ValueAndVjp, Vjp)})

    # What it is

    @property
    def tape(self) -> Tape:
        """The tape for the default constants."""
        return self.trace(self.default_constants()).tape

    @property
    def cost(self) -> Cost:
        """Bytes (float64) and operations per event, for the default constants."""
        return self.tape.cost()

    def __copy__(self) -> "Fused":
        return self

    def __deepcopy__(self, memo: dict[Any, Any]) -> "Fused":
        return self

    def __repr__(self) -> str:
        return f"<fused {self.__name__}>"


class FusedFunction(Fused):
    """A Python function, traced."""

    def __init__(
        self,
        function: Callable[..., Any] | None,
        parameters: tuple[Parameter, ...],
        traces: Mapping[tuple[Any, ...], Trace] | None = None,
    ):
        self._function = function
        self.parameters = parameters
        self._positional = tuple(p for p in parameters if p.kind in ("vector", "scalar"))
        self._runtime = tuple(p for p in parameters if p.kind == "runtime")
        self.arity = len(self._positional)
        self.constants = {p.name: p.default for p in parameters if p.kind == "constant"}
        self._options = Options()
        self._traces: dict[tuple[Any, ...], Trace] = dict(traces or {})
        self._guard = Guard()
        if function is not None:
            self.__name__ = type(function).__name__  # of a callable without a name
            functools.update_wrapper(self, function, updated=())

    def with_defaults(self, **defaults: Any) -> "FusedFunction":
        with self._guard.lock:
            new = FusedFunction(self._function, self.parameters, self._traces)
        new.__dict__.update({k: v for k, v in self.__dict__.items() if k.startswith("__")})
        new._options = self._options._replace(
            **{name: defaults.pop(name) for name in Options._fields if name in defaults}
        ).checked()
        for name in defaults:
            if name not in self.constants:
                raise ValueError(f"fused: unknown keyword {name!r}; known are {self._known()}")
        new.constants = self.constants | defaults
        return new

    def _known(self) -> str:
        return ", ".join([*(p.name for p in self.parameters), *Options._fields])

    def bind(
        self, args: tuple[Any, ...], keywords: dict[str, Any], options: Options
    ) -> tuple[dict[str, Any], list[Any]]:
        constants = {name: keywords.pop(name) if name in keywords else value for name, value in self.constants.items()}
        values = list(args)
        if len(values) > self.arity:
            raise TypeError(f"{self.__name__}() takes {self.arity} positional arguments, not {len(values)}")
        for p in (*self._positional[len(values) :], *self._runtime):
            if p.name in keywords:
                values.append(keywords.pop(p.name))
            elif p.default is not inspect.Parameter.empty:
                values.append(p.default)
            else:
                raise TypeError(f"{self.__name__}() is missing the argument {p.name!r}")
        return constants, values

    def default_constants(self) -> dict[str, Any]:
        return self.constants

    def arguments(self, constants: dict[str, Any], options: Options) -> Tuple:
        return leaves(len(self._positional) + len(self._runtime))

    @capture_as_constant
    def trace(self, constants: dict[str, Any], shared: tuple[bool, ...] | None = None) -> Trace:
        key = tuple((name, type(value), value) for name, value in constants.items())
        try:
            trace = self._traces.get(key)
        except TypeError:
            name = next(name for name, value in constants.items() if not _hashable(value))
            raise TypeError(f"{self.__name__}(): the constant {name!r} must be hashable") from None
        if trace is not None:
            return trace
        self._check_given(constants)
        if self._function is None:
            raise ValueError(
                f"{self.__name__}() was unpickled, without its source, for other constants than {constants}"
            )
        with self._guard.lock:
            trace = self._traces.get(key)
            if trace is None:
                function = functools.partial(self._function, **constants)
                trace = self._traces[key] = _traced(self.__name__, function, self._positional + self._runtime)
                if len(self._traces) > TRACES_KEPT:
                    del self._traces[next(iter(self._traces))]
        return trace

    def _check_given(self, constants: dict[str, Any]) -> None:
        for name, value in constants.items():
            if value is inspect.Parameter.empty:
                raise TypeError(f"{self.__name__}() is missing the keyword argument {name!r}")

    def _remember(self, trace: Trace, kind: type) -> None:
        usual = self._options.out is None and self._options == Options()
        if usual and not isinstance(trace.structure, Stack) and not self._runtime:
            self._structure = trace.structure
            self._fast = {kind: lambda args: None, **plain_calls(trace.tape)}

    def _inlined(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if (
            self._function is None
            or any(is_array(value) for value in args)
            or not keywords.keys().isdisjoint(Options._fields)
        ):
            return super()._inlined(args, keywords)
        given = {**self.constants, **keywords}
        self._check_given({name: given[name] for name in self.constants})
        return self._function(*args, **given)

    # Copies and pickles go by tape: the Python function need not be importable where it is read.

    def __reduce__(self) -> tuple[Any, ...]:
        if inspect.Parameter.empty not in self.constants.values():
            self.trace(self.constants)
        state = {name: getattr(self, name) for name in ("constants", "_options", "__name__", "__doc__")}
        with self._guard.lock:
            traces = dict(self._traces)
        return _restored, (self.parameters, traces, state)

    def __repr__(self) -> str:
        return f"<fused {self.__name__}({', '.join(p.name for p in self.parameters)})>"


def _parameters(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    name = getattr(function, "__name__", repr(function))
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError:
        signature = inspect.signature(function)
    found = []
    for p in signature.parameters.values():
        scalar = p.annotation is Scalar or (isinstance(p.annotation, str) and p.annotation.split(".")[-1] == "Scalar")
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise TypeError(f"{name}: parameter {p} is not supported; the inputs of a fused function are fixed")
        if p.kind is p.KEYWORD_ONLY:
            if p.name in Options._fields:
                raise TypeError(f"{name}: parameter {p.name!r} has the name of a keyword of every call")
            found.append(Parameter(p.name, "runtime" if scalar else "constant", p.default))
        else:
            found.append(Parameter(p.name, "scalar" if scalar else "vector", p.default))
    return tuple(found)


def _restored(parameters: tuple[Parameter, ...], traces: dict[Any, Any], state: dict[str, Any]) -> FusedFunction:
    new = FusedFunction(None, parameters, traces)
    new.__dict__.update(state)
    return new


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _traced(name: str, function: Callable[..., Any], parameters: tuple[Parameter, ...]) -> Trace:
    """The trace of a function with the given inputs."""
    graph = Graph()
    inputs = tuple(Input(p.name, "vector" if p.kind == "vector" else "scalar", p.kind == "runtime") for p in parameters)
    nodes = [graph.input(n, one.name, one.kind == "vector") for n, one in enumerate(inputs)]
    symbols = [Tensor.of_node(node) if node.is_vector else Scalar(node) for node in nodes]
    positional = [s for s, p in zip(symbols, parameters, strict=True) if p.kind != "runtime"]
    keywords = {p.name: s for s, p in zip(symbols, parameters, strict=True) if p.kind == "runtime"}
    value = function(*positional, **keywords)
    structure: Structure
    if isinstance(value, dict):
        parts = list(value.values())
        structure = Dict(tuple(value), (Leaf(),) * len(parts))
    elif isinstance(value, tuple) and not isinstance(value, Summed):
        parts = list(value)
        structure = Stack(len(parts)) if isinstance(value, Stacked) else leaves(len(parts))
    else:
        structure, parts = Leaf(), [value]
    if not parts:
        raise TypeError(f"{name}() returned nothing to compute")
    outputs = [output_of(name, graph, part) for part in parts]
    if isinstance(structure, Stack) and len({output for output, _ in outputs}) > 1:
        raise TypeError(f"{name}(): its functions return different kinds: " + ", ".join(o.kind for o, _ in outputs))
    return Trace(assemble(inputs, outputs), structure)


def output_of(name: str, graph: Graph, value: Any) -> tuple[Output, list[Node]]:
    """The nodes of a value that a traced function returned. Raises TypeError for what no tape can store."""
    summed = isinstance(value, Summed)
    if summed:
        value = value.value
    if isinstance(value, Scalar):
        return Output("scalar", summed), [value.node]
    if isinstance(value, Tensor):
        terms = finish(graph, value.terms)
        tensor = Tensor(graph, terms, value.lower)
        if value.rank == 0:
            return Output("scalar", summed), [polynomial.to_node(graph, terms.get((), {}))]
        if value.rank == 1:
            return Output("vector", summed), [vector(graph, tensor)]
        if value.rank == 2:
            return Output("matrix", summed), matrix(graph, tensor)
        raise TypeError(f"{name}() returned a tensor of rank {value.rank}; above 2, use fastcov.dense on arrays")
    number = rational(value)
    if number is None:
        raise TypeError(f"{name}() returned {type(value).__name__}, not a scalar, 4-vector or tensor of rank 2")
    return Output("scalar"), [graph.constant(number)]


def _input_node(graph: Graph, one: Input, value: Any) -> Node:
    """A traced argument as the node that stands for an input of a tape."""
    if one.kind == "vector" and isinstance(value, Tensor) and value.rank == 1:
        return vector(graph, value)
    if one.kind == "scalar" and isinstance(value, Scalar):
        return value.node
    number = rational(value) if one.kind == "scalar" else None
    if number is None:
        raise TypeError(f"{one.name} must be a traced {one.kind}, not {type(value).__name__}")
    return graph.constant(number)
