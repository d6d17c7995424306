"""Structured tensors: sums of products of 4-vectors, metrics, projectors and epsilons on index slots.

Nothing here has components. A tensor is a map from its factors to the polynomial that multiplies them; a slot is an
integer, and a slot that two factors name is contracted with the metric. Whether a free index is upper or lower is kept
beside the terms, in `Tensor.lower`, because covariant contraction does not depend on it.
"""

import numbers
from collections.abc import Callable
from fractions import Fraction
from math import isfinite, prod
from typing import Any, NamedTuple

from . import polynomial
from .graph import Graph, Node, sort_sign
from .polynomial import Polynomial


class Vector(NamedTuple):
    """v^a"""

    node: Node
    slot: int

    @property
    def slots(self) -> tuple[int, ...]:
        return (self.slot,)


class Metric(NamedTuple):
    """g~(p)^{ac} D_c^b: the metric g where p is None; D the identity, or the parity diag(-1,-1,-1,1) if `flipped`.

    A sum of two upper components as they stand is a contraction with D. Parity moves through a metric as
    D g~(p) = g~(Dp) D.
    """

    p: Node | None
    a: int
    b: int
    flipped: bool = False

    @property
    def slots(self) -> tuple[int, ...]:
        return (self.a, self.b)

    def turned(self) -> "Metric":
        """The same with its slots in the other order."""
        p = self.p.graph.vlower(self.p) if self.p is not None and self.flipped else self.p
        return Metric(p, self.b, self.a, self.flipped)


class Epsilon(NamedTuple):
    """epsilon^{slots..., vectors...}, the vectors contracted into the last places; epsilon_{xyzE} = +1."""

    slots: tuple[int, ...]
    vectors: tuple[Node, ...]


class Side(NamedTuple):
    """One side of a projector: L indices, some contracted with vectors (transverse already), the others open."""

    vectors: tuple[Node, ...]
    open: tuple[int, ...]

    def with_vector(self, slot: int, node: Node) -> "Side":
        vectors = tuple(sorted((*self.vectors, node), key=lambda v: v.key))
        return Side(vectors, tuple(s for s in self.open if s != slot))

    def key(self) -> tuple[Any, ...]:
        return len(self.open), [v.key for v in self.vectors], self.open


class Projector(NamedTuple):
    """P^(L)(p) of spin L, symmetric, traceless and transverse in either side, symmetric in the two sides."""

    spin: int
    p: Node
    left: Side
    right: Side

    @property
    def slots(self) -> tuple[int, ...]:
        return self.left.open + self.right.open

    def ordered(self) -> "Projector":
        sides = sorted((self.left, self.right), key=Side.key)
        return Projector(self.spin, self.p, *sides)


Factor = Vector | Metric | Epsilon | Projector
Factors = tuple[Factor, ...]
Terms = dict[Factors, Polynomial]


def sort_key(factor: Factor) -> tuple[Any, ...]:
    match factor:
        case Vector(node, slot):
            return 0, slot, node.key
        case Metric(p, a, b, flipped):
            return 1, a, b, p.key if p is not None else (), flipped
        case Epsilon(slots, vectors):
            return 2, slots, [v.key for v in vectors]
        case Projector(spin, p, left, right):
            return 3, spin, p.key, left.key(), right.key()
    raise AssertionError(factor)


def add_term(terms: Terms, factors: Factors | list[Factor], coefficient: Polynomial) -> None:
    key = tuple(sorted(factors, key=sort_key))
    total = terms.setdefault(key, {})
    polynomial.add_to(total, coefficient)
    if not total:
        del terms[key]


def renamed(factor: Factor, name: Callable[[int], int]) -> tuple[int, Factor]:
    """A factor with its slots renamed and in order, and the sign (of an epsilon; 0 if two slots are now the same)."""
    match factor:
        case Vector(node, slot):
            return 1, Vector(node, name(slot))
        case Metric(p, a, b, flipped):
            metric = Metric(p, name(a), name(b), flipped)
            return 1, metric if metric.a <= metric.b else metric.turned()
        case Epsilon(slots, vectors):
            return ordered_epsilon(tuple(name(s) for s in slots), vectors)
        case Projector(spin, p, left, right):
            sides = (Side(s.vectors, tuple(sorted(name(x) for x in s.open))) for s in (left, right))
            return 1, Projector(spin, p, *sides).ordered()
    raise AssertionError(factor)


def relabelled(terms: Terms, name: Callable[[int], int]) -> Terms:
    """The terms with each slot renamed."""
    result: Terms = {}
    for factors, coefficient in terms.items():
        pairs = [renamed(factor, name) for factor in factors]
        sign = prod(s for s, _ in pairs)
        add_term(result, [factor for _, factor in pairs], polynomial.scale(coefficient, sign))
    return result


def ordered_epsilon(slots: tuple[int, ...], vectors: tuple[Node, ...]) -> tuple[int, Epsilon]:
    """The epsilon with slots and vectors in order, and its sign: 0 if two are the same."""
    if len(set(slots)) < len(slots) or len(set(vectors)) < len(vectors):
        return 0, Epsilon(slots, vectors)
    inversions = sum(slots[i] > slots[k] for k in range(len(slots)) for i in range(k))
    sign, vectors = sort_sign(vectors)
    return sign * (-1) ** inversions, Epsilon(tuple(sorted(slots)), vectors)


def split_vector(node: Node) -> tuple[Polynomial, Node]:
    """A vector node as coefficient times a node that is neither scaled nor negated."""
    coefficient = polynomial.constant(1)
    while True:
        match node.op:
            case "vneg":
                coefficient, node = polynomial.scale(coefficient, -1), node.args[0]
            case "vscale_constant":
                coefficient, node = polynomial.scale(coefficient, node.args[1]), node.args[0]
            case "vscale":
                coefficient = polynomial.multiply(coefficient, polynomial.from_node(node.args[0]))
                node = node.args[1]
            case "zero_vector":
                return {}, node
            case _:
                return coefficient, node


def add_vector(terms: Terms, coefficient: Polynomial, node: Node, slot: int) -> None:
    weight, node = split_vector(node)
    add_term(terms, (Vector(node, slot),), polynomial.multiply(coefficient, weight))


def rational(value: object) -> Fraction | None:
    """A number as the rational it is, None for anything that is no real number.

    Raises ValueError for NaN and infinities: they cannot be constants of an amplitude.
    """
    if isinstance(value, numbers.Rational):
        return Fraction(int(value.numerator), int(value.denominator))  # not of NumPy's integers, which overflow
    if isinstance(value, numbers.Real):
        if not isfinite(value):
            raise ValueError(f"{value!r} cannot be a constant: it is not finite")
        return Fraction(float(value))
    return None


class _Traced:
    """What scalars and tensors under trace have in common: they have no values."""

    __slots__ = ()
    __array_ufunc__ = None
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError(
            "a traced value has no truth value: the amplitude is traced once, without data, so it cannot branch on it"
        )

    def _no_value(self, *_: Any) -> Any:
        raise TypeError("a traced value cannot be compared or converted: the amplitude is traced once, without data")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _no_value
    __float__ = __int__ = __index__ = __complex__ = __array__ = _no_value


class Scalar(_Traced):
    """A scalar of an amplitude: a dot product, or an argument annotated `fc.Scalar`.

    As an annotation it declares an argument that is a number: of all events, or one per event (positional), or a
    run-time keyword shared by all events (keyword-only). Scalars have + - * /, integer powers and `fc.sqrt`.
    """

    __slots__ = ("node",)

    def __init__(self, node: Node):
        self.node = node

    def _other(self, value: object) -> Node | None:
        if isinstance(value, Scalar):
            return value.node
        number = rational(value)
        return None if number is None else self.node.graph.constant(number)

    def _binary(self, value: object, operation: str, reverse: bool = False) -> Any:
        other = self._other(value)
        if other is None:
            return NotImplemented
        _same_graph(self.node, other)
        a, b = (other, self.node) if reverse else (self.node, other)
        return Scalar(getattr(self.node.graph, operation)(a, b))

    def __add__(self, value: Any) -> Any:
        return self._binary(value, "add")

    __radd__ = __add__

    def __sub__(self, value: Any) -> Any:
        return self._binary(value, "sub")

    def __rsub__(self, value: Any) -> Any:
        return self._binary(value, "sub", reverse=True)

    def __mul__(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return value * self
        return self._binary(value, "mul")

    def __rmul__(self, value: Any) -> Any:
        return self._binary(value, "mul")

    def __truediv__(self, value: Any) -> Any:
        return self._binary(value, "div")

    def __rtruediv__(self, value: Any) -> Any:
        return self._binary(value, "div", reverse=True)

    def __neg__(self) -> Any:
        return Scalar(self.node.graph.neg(self.node))

    def __pos__(self) -> Any:
        return self

    def __pow__(self, exponent: Any) -> Any:
        if not isinstance(exponent, numbers.Integral):
            raise TypeError(f"a scalar has integer powers only, not {exponent!r}; fc.sqrt is there")
        return Scalar(self.node.graph.power(self.node, int(exponent)))

    def __repr__(self) -> str:
        return f"<Scalar {self.node!r}>"


class Tensor(_Traced):
    """A tensor of an amplitude: rank, terms, and for each index whether it is lower.

    Made by the functions of this package; tensors of equal rank and index positions add and subtract, and scale by
    scalars and numbers.
    """

    __slots__ = ("graph", "lower", "terms")

    def __init__(self, graph: Graph | None, terms: Terms, lower: tuple[bool, ...]):
        self.graph, self.terms, self.lower = graph, terms, lower

    @classmethod
    def of_node(cls, node: Node) -> "Tensor":
        terms: Terms = {}
        add_vector(terms, polynomial.constant(1), node, 0)
        return cls(node.graph, terms, (False,))

    @property
    def rank(self) -> int:
        return len(self.lower)

    def plain_vector(self) -> Node | None:
        """The node of a rank-1 tensor that is a constant times one vector, else None."""
        if self.rank != 1 or len(self.terms) != 1:
            return None
        ((factors, coefficient),) = self.terms.items()
        if not isinstance(factors[0], Vector) or set(coefficient) != {polynomial.ONE}:
            return None
        node = factors[0].node
        return node.graph.vscaled(node, coefficient[polynomial.ONE])

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, Tensor):
            return NotImplemented
        if self.rank != other.rank:
            raise ValueError(f"cannot add tensors of rank {self.rank} and {other.rank}")
        if self.lower != other.lower:
            raise ValueError(f"cannot add tensors with indices {positions(self)} and {positions(other)}")
        graph = common_graph(self, other)
        a, b = self.plain_vector(), other.plain_vector()
        if a is not None and b is not None and graph is not None:
            return Tensor(graph, Tensor.of_node(graph.vadd(a, b)).terms, self.lower)
        terms = {factors: dict(coefficient) for factors, coefficient in self.terms.items()}
        for factors, coefficient in other.terms.items():
            add_term(terms, factors, coefficient)
            if factors in terms:
                terms[factors] = polynomial.shortened(graph, terms[factors])
        return Tensor(graph, terms, self.lower)

    def __sub__(self, other: Any) -> Any:
        return self + -other if isinstance(other, Tensor) else NotImplemented

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> Any:
        return self

    def __mul__(self, value: Any) -> Any:
        if isinstance(value, Scalar):
            factor = polynomial.from_node(value.node)
            graph = common_graph(self, value)
        elif (number := rational(value)) is not None:
            factor, graph = polynomial.constant(number), self.graph
        else:
            return NotImplemented
        terms: Terms = {}
        for factors, coefficient in self.terms.items():
            add_term(terms, factors, polynomial.shortened(graph, polynomial.multiply(coefficient, factor)))
        return Tensor(graph, terms, self.lower)

    __rmul__ = __mul__

    def __truediv__(self, value: Any) -> Any:
        if isinstance(value, Scalar):
            return self * (1 / value)
        number = rational(value)
        return NotImplemented if number is None else self * (1 / number)

    def __repr__(self) -> str:
        return f"<Tensor of rank {self.rank}, {len(self.terms)} terms>"


def positions(tensor: Tensor) -> str:
    return ", ".join("lower" if low else "upper" for low in tensor.lower)


def common_graph(*values: Tensor | Scalar) -> Graph | None:
    """The one graph of values under trace; None if all are constants. Raises TypeError for two traces."""
    found: Graph | None = None
    for value in values:
        graph = value.node.graph if isinstance(value, Scalar) else value.graph
        if graph is not None:
            if found is not None and found is not graph:
                raise TypeError("values of two different traces cannot be combined")
            found = graph
    return found


def graph_of(*values: Tensor | Scalar) -> Graph:
    """The one graph of values of which not all are constants."""
    graph = common_graph(*values)
    if graph is None:
        raise TypeError("constant tensors alone are no traced values")
    return graph


def _same_graph(a: Node, b: Node) -> None:
    if a.graph is not b.graph:
        raise TypeError("values of two different traces cannot be combined")
