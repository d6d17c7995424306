"""From structured tensors to the nodes of their components, the last step before a tape."""

from . import polynomial
from .contract import Replacement, into_epsilon, expand, expand_metric, vector_node
from .graph import Graph, Node
from .polynomial import Polynomial
from .tensors import Epsilon, Factor, Metric, Tensor, Terms, Vector, add_term


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
                for weight, new in into_epsilon(epsilon, graph.unit(m), 0):
                    add_term(total, new, polynomial.scale(polynomial.multiply(coefficient, weight), sign))
            case _:
                raise AssertionError(factors)
    coefficient, node = vector_node(graph, expand(total))
    return graph.vscale(polynomial.to_node(graph, coefficient), node)
