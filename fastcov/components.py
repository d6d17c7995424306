"""From structured tensors to the nodes of their components, the last step before a tape."""

from typing import NamedTuple

from . import polynomial
from .contract import Replacement, expand, expand_metric, into_epsilon, vector_node
from .graph import Graph, Node
from .polynomial import Polynomial
from .tape import Output
from .tensors import Epsilon, Factor, Metric, Tensor, Terms, Vector, add_term, renamed


class Piece(NamedTuple):
    """A factor of a term of high rank: an output of the tape, and the slots of the tensor that its axes are."""

    output: int
    slots: tuple[int, ...]


class Products(NamedTuple):
    """A tensor of any rank as a sum of outer products of scalars, 4-vectors and matrices.

    outputs: what a tape has to compute. terms: for each its coefficient, a number or an output, and its pieces.
    """

    outputs: list[tuple[Output, list[Node]]]
    terms: list[tuple[float | int, bool, list[Piece]]]  # (coefficient, whether it is an output's index, pieces)


def outer_products(graph: Graph, tensor: Tensor) -> Products:
    """The components of a tensor of rank above 2, as products that can be multiplied out event by event."""
    nodes: dict[tuple[Node, ...], int] = {}
    outputs: list[tuple[Output, list[Node]]] = []

    def output(kind: str, parts: list[Node]) -> int:
        key = tuple(parts)
        if key not in nodes:
            nodes[key] = len(outputs)
            outputs.append((Output(kind), parts))
        return nodes[key]

    terms = []
    for factors, coefficient in _open_epsilons(graph, expand(tensor.terms)).items():
        weight = polynomial.to_node(graph, coefficient)
        pieces = []
        for factor in factors:
            low = tuple(tensor.lower[slot] for slot in factor.slots)
            _, alone = renamed(factor, factor.slots.index)
            part = Tensor(graph, {(alone,): polynomial.constant(1)}, low)
            if len(factor.slots) == 1:
                pieces.append(Piece(output("vector", [vector(graph, part)]), factor.slots))
            else:
                pieces.append(Piece(output("matrix", matrix(graph, part)), factor.slots))
        if weight.op == "constant":
            terms.append((float(weight.args[0]), False, pieces))
        else:
            terms.append((output("scalar", [weight]), True, pieces))
    if not outputs:
        output("scalar", [graph.constant(0)])
    return Products(outputs, terms)


def _open_epsilons(graph: Graph, terms: Terms) -> Terms:
    """The terms with every epsilon of more than two open slots written as its components along the first of them."""
    while True:
        result: Terms = {}
        for factors, coefficient in terms.items():
            at = next((f for f in factors if isinstance(f, Epsilon) and len(f.slots) > 2), None)
            if at is None:
                add_term(result, factors, coefficient)
                continue
            rest = [f for f in factors if f is not at]
            for m in range(4):
                unit = graph.unit(m)
                for weight, new in into_epsilon(unit, at, at.slots[0]):
                    sign = 1 if m == 3 else -1
                    total = polynomial.scale(polynomial.multiply(coefficient, weight), sign)
                    add_term(result, [*rest, *new, Vector(unit, at.slots[0])], total)
        if len(result) == len(terms):
            return result
        terms = result


def scalar_polynomial(tensor: Tensor) -> Polynomial:
    """The value of a tensor of rank 0."""
    return expand(tensor.terms).get((), {})


def vector(graph: Graph, tensor: Tensor) -> Node:
    """The node of a tensor of rank 1."""
    coefficient, node = vector_node(graph, expand(tensor.terms))
    node = graph.vscale(polynomial.to_node(graph, coefficient), node)
    return graph.vlower(node) if tensor.lower[0] else node


def matrix(graph: Graph, tensor: Tensor) -> list[Node]:
    """The four rows of a tensor of rank 2."""
    terms: Terms = {}
    for factors, coefficient in expand(tensor.terms).items():
        for weight, new in _dyads(graph, factors):
            add_term(terms, new, polynomial.multiply(coefficient, weight))
    rows = []
    for m in range(4):
        row = _row(graph, terms, m)
        if tensor.lower[0] and m < 3:
            row = graph.vneg(row)
        rows.append(graph.vlower(row) if tensor.lower[1] else row)
    return rows


def _dyads(graph: Graph, factors: tuple[Factor, ...]) -> Replacement:
    if len(factors) == 1 and isinstance(factors[0], Metric) and factors[0].p is not None:
        return expand_metric(graph, factors[0])
    return [(polynomial.constant(1), list(factors))]


def _row(graph: Graph, terms: Terms, m: int) -> Node:
    """Row m of a sum of dyads, metrics and epsilons on the slots 0 and 1."""
    sign = 1 if m == 3 else -1
    total: Terms = {}
    for factors, coefficient in terms.items():
        match factors:
            case (Vector(u, 0), Vector(v, 1)):
                part = polynomial.from_node(graph.component(u, m))
                add_term(total, (Vector(v, 1),), polynomial.multiply(coefficient, part))
            case (Metric(None, _, _, flipped),):
                weight = polynomial.scale(coefficient, 1 if flipped else sign)
                add_term(total, (Vector(graph.unit(m), 1),), weight)
            case (Epsilon() as epsilon,):
                for weight, new in into_epsilon(graph.unit(m), epsilon, 0):
                    add_term(total, new, polynomial.scale(polynomial.multiply(coefficient, weight), sign))
            case _:
                raise AssertionError(factors)
    coefficient, node = vector_node(graph, expand(total))
    return graph.vscale(polynomial.to_node(graph, coefficient), node)
