"""Fused functions: an amplitude written on 4-vectors, traced once, called on arrays."""

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, NamedTuple

from . import polynomial
from .assemble import assemble
from .components import matrix, vector
from .contract import finish
from .deferred import ArrayTensor
from .dispatch import Options, Structure, program_of, run
from .graph import Graph, Node
from .tape import Cost, Input, Output, Tape
from .tensors import Scalar, Tensor, rational

TRACES_KEPT = 64  # of one fused function, for different constants


class Summed(NamedTuple):
    """An output that is summed over events; see `fastcov.sum`."""

    value: Any


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
    """What tracing gives: the tape, and how its outputs are handed out."""

    tape: Tape
    structure: Structure


def fused(function: Callable | None = None, **defaults: Any) -> Any:
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
    return Fused(function, _parameters(function), {}).with_defaults(**defaults)


def _parameters(function: Callable) -> tuple[Parameter, ...]:
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


class Fused:
    """A function on arrays, made by `fastcov.fused`."""

    def __init__(self, function: Callable | None, parameters: tuple[Parameter, ...], traces: Mapping[tuple, Trace]):
        self._function = function
        self.parameters = parameters
        self._positional = tuple(p for p in parameters if p.kind in ("vector", "scalar"))
        self._runtime = tuple(p for p in parameters if p.kind == "runtime")
        self.defaults = {p.name: p.default for p in parameters if p.kind == "constant"}
        self._options = Options()
        self._traces: OrderedDict[tuple, Trace] = OrderedDict(traces)
        self._lock = Lock()
        self._fast: Callable[[tuple], tuple | None] | None = None
        if function is not None:
            functools.update_wrapper(self, function)

    def with_defaults(self, **defaults: Any) -> "Fused":
        """The same function with other defaults for the keywords of its calls or for its constants."""
        new = Fused(self._function, self.parameters, self._traces)
        new.__dict__.update({k: v for k, v in self.__dict__.items() if k.startswith("__") and k.endswith("__")})
        options = {name: defaults.pop(name) for name in Options._fields if name in defaults}
        new._options = self._options._replace(**options).checked()
        for name in defaults:
            if name not in self.defaults:
                known = ", ".join([*Options._fields, *self.defaults])
                raise ValueError(f"fused: unknown keyword {name!r}; known are {known}")
        new.defaults = self.defaults | defaults
        return new

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        if self._fast is not None and not keywords:
            results = self._fast(args)
            if results is not None:
                return self._structure.pack(results)
        if any(isinstance(a, (Scalar, Tensor)) for a in args):
            return self._inlined(args, keywords)
        options = {name: keywords.pop(name) for name in Options._fields if name in keywords}
        trace = self._trace(self._split_constants(keywords))
        values = self._values(args, keywords)
        chosen = self._options._replace(**options).checked() if options else self._options
        result = run(trace.tape, trace.structure, values, chosen)
        if not options and not keywords:
            self._remember(trace)
        return result

    def _remember(self, trace: Trace) -> None:
        """Let plain calls on NumPy arrays go straight to the CPU executor from now on."""
        plain = self._options == Options() and trace.structure.kind != "stack"
        if plain and not self._runtime:
            self._structure = trace.structure
            self._fast = program_of(trace.tape).call

    def _split_constants(self, keywords: dict[str, Any]) -> dict[str, Any]:
        """The constants of a call, taken out of its keywords."""
        constants = dict(self.defaults)
        for name in self.defaults:
            if name in keywords:
                constants[name] = keywords.pop(name)
        for name, value in constants.items():
            if value is inspect.Parameter.empty:
                raise TypeError(f"{self.__name__}() is missing the keyword argument {name!r}")
        return constants

    def _values(self, args: tuple, keywords: dict[str, Any]) -> list[Any]:
        """One value for each input: positional ones, by position or name, then the run-time keywords."""
        values = list(args)
        if len(values) > len(self._positional):
            raise TypeError(f"{self.__name__}() takes {len(self._positional)} positional arguments, not {len(values)}")
        for p in (*self._positional[len(values) :], *self._runtime):
            if p.name in keywords:
                values.append(keywords.pop(p.name))
            elif p.default is not inspect.Parameter.empty:
                values.append(p.default)
            else:
                raise TypeError(f"{self.__name__}() is missing the argument {p.name!r}")
        if keywords:
            name = next(iter(keywords))
            known = ", ".join([*(p.name for p in self.parameters), *Options._fields])
            raise ValueError(f"{self.__name__}(): unknown keyword {name!r}; known are {known}")
        return values

    def _inlined(self, args: tuple, keywords: dict[str, Any]) -> Any:
        if any(isinstance(value, ArrayTensor) or hasattr(value, "shape") for value in args):
            raise TypeError(f"{self.__name__}(): traced values and arrays cannot be mixed")
        for name in Options._fields:
            if name in keywords:
                raise TypeError(f"{self.__name__}(): {name!r} has no meaning inside a trace")
        if self._function is None:
            raise TypeError(
                f"{self.__name__}() was unpickled without its source, so it cannot be called inside a trace"
            )
        return self._function(*args, **{**self._split_constants(keywords), **keywords})

    # Tracing

    @property
    def tape(self) -> Tape:
        """The tape for the default constants."""
        return self._trace(self._split_constants({})).tape

    @property
    def cost(self) -> Cost:
        """Bytes (float64) and operations per event, for the default constants."""
        return self.tape.cost()

    def _trace(self, constants: dict[str, Any]) -> Trace:
        key = tuple((name, type(value), value) for name, value in constants.items())
        try:
            trace = self._traces.get(key)
        except TypeError:
            name = next(name for name, value in constants.items() if not _hashable(value))
            raise TypeError(f"{self.__name__}(): the constant {name!r} must be hashable") from None
        if trace is not None:
            return trace
        if self._function is None:
            raise ValueError(f"{self.__name__}() was unpickled for other constants than {constants}")
        with self._lock:
            trace = self._traces[key] = trace_function(
                self.__name__, functools.partial(self._function, **constants), self._positional + self._runtime
            )
            while len(self._traces) > TRACES_KEPT:
                self._traces.popitem(last=False)
        return trace

    # Copies and pickles go by tape: the Python function need not be importable where it is read.

    def __reduce__(self):
        self._trace(self._split_constants({}))
        state = {name: getattr(self, name) for name in ("defaults", "_options", "__name__", "__doc__")}
        return _restored, (self.parameters, dict(self._traces), state)

    def __deepcopy__(self, memo: dict) -> "Fused":
        return self

    def __repr__(self) -> str:
        return f"<fused {self.__name__}({', '.join(p.name for p in self.parameters)})>"


def _restored(parameters: tuple[Parameter, ...], traces: dict, state: dict[str, Any]) -> Fused:
    new = Fused(None, parameters, traces)
    new.__dict__.update(state)
    return new


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def trace_function(name: str, function: Callable, parameters: tuple[Parameter, ...]) -> Trace:
    """The trace of a function with the given inputs."""
    graph = Graph()
    inputs = tuple(Input(p.name, "vector" if p.kind == "vector" else "scalar", p.kind == "runtime") for p in parameters)
    nodes = [graph.input(n, one.name, one.kind == "vector") for n, one in enumerate(inputs)]
    symbols = [Tensor.of_node(node) if node.is_vector else Scalar(node) for node in nodes]
    positional = [s for s, p in zip(symbols, parameters, strict=True) if p.kind != "runtime"]
    keywords = {p.name: s for s, p in zip(symbols, parameters, strict=True) if p.kind == "runtime"}
    value = function(*positional, **keywords)
    if isinstance(value, dict):
        structure, parts = Structure("dict", tuple(value)), list(value.values())
    elif isinstance(value, Stacked):
        structure, parts = Structure("stack"), list(value)
    elif isinstance(value, tuple) and not isinstance(value, Summed):
        structure, parts = Structure("tuple"), list(value)
    else:
        structure, parts = Structure("single"), [value]
    if not parts:
        raise TypeError(f"{name}() returned nothing to compute")
    return Trace(assemble(inputs, [output_of(name, graph, part) for part in parts]), structure)


class Stacked(tuple):
    """Outputs of equal kind that the caller gets in one array, stacked along its first axis."""


def bundle(*waves: Callable, **defaults: Any) -> Fused:
    """Several fused functions of the same arguments in one pass: one array (n_waves, ..., 4), or fewer `components`.

    Whatever the functions have in common is computed once: `bundle(...).cost` against the costs of the single ones
    shows how much. The values are those of the single functions, to the bit. Its parameters are theirs, which must be
    the same, with the same defaults; `defaults` are those of `fused`. Raises ValueError for no function, or for
    functions of different parameters.
    """
    members = [wave if isinstance(wave, Fused) else fused(wave) for wave in waves]
    if not members:
        raise ValueError("bundle: at least one function is needed")
    first = members[0]
    for member in members[1:]:
        if (member.parameters, member.defaults) != (first.parameters, first.defaults):
            names = ", ".join(p.name for p in first.parameters)
            raise ValueError(
                f"bundle: {member.__name__} has other parameters or defaults than {first.__name__}: {names}"
            )

    def together(*args: Any, **keywords: Any) -> Stacked:
        return Stacked(member(*args, **keywords) for member in members)

    together.__name__ = together.__qualname__ = "bundle"
    together.__doc__ = "Bundle of " + ", ".join(member.__name__ for member in members)
    parameters = tuple(p._replace(default=first.defaults.get(p.name, p.default)) for p in first.parameters)
    return Fused(together, parameters, {}).with_defaults(**defaults)


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
