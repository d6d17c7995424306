"""Polynomials in scalar nodes: arithmetic, common factors, and what is written down again."""

from fractions import Fraction

import pytest
import tape_exact
from hypothesis import given
from hypothesis import strategies as st

from fastcov import polynomial
from fastcov.assemble import assemble
from fastcov.graph import Graph
from fastcov.tape import Input, Output

NAMES = "xyz"
VALUES = (Fraction(2, 3), Fraction(-5), Fraction(7, 11))
THIRD = Fraction(1, 3)


@pytest.fixture
def xyz(graph):
    return [graph.input(n, name, False) for n, name in enumerate(NAMES)]


def value_of_node(node):
    tape = assemble(tuple(Input(name, "scalar") for name in NAMES), [(Output("scalar"), [node])])
    return tape_exact.evaluate(tape, VALUES)[0]


def value(a, nodes):
    numbers = dict(zip(nodes, VALUES, strict=True))
    total = Fraction(0)
    for monomial, coefficient in a.items():
        for node, power in monomial:
            coefficient *= numbers[node] ** power
        total += coefficient
    return total


def flops(node):
    tape = assemble(tuple(Input(name, "scalar") for name in NAMES), [(Output("scalar"), [node])])
    return tape.cost().flops


TERMS = st.dictionaries(
    st.tuples(*[st.integers(-2, 3)] * 3), st.fractions(-5, 5, max_denominator=12).filter(bool), max_size=6
)


def made(nodes, terms):
    total = {}
    for powers, coefficient in terms.items():
        monomial = polynomial._monomial(dict(zip(nodes, powers, strict=True)))
        polynomial.add_to(total, {monomial: coefficient})
    return total


@given(TERMS, TERMS, st.integers(0, 3))
def test_arithmetic(one, other, exponent):
    graph = Graph()
    nodes = [graph.input(n, name, False) for n, name in enumerate(NAMES)]
    a, b = made(nodes, one), made(nodes, other)
    assert value(polynomial.multiply(a, b), nodes) == value(a, nodes) * value(b, nodes)
    assert value(polynomial.scale(a, -THIRD), nodes) == -value(a, nodes) / 3
    assert polynomial.scale(a, 0) == {}
    assert value(polynomial.power(a, exponent), nodes) == value(a, nodes) ** exponent
    difference = dict(a)
    polynomial.add_to(difference, b, -2)
    assert value(difference, nodes) == value(a, nodes) - 2 * value(b, nodes)
    assert all(difference.values())


@given(TERMS)
def test_written_down(terms):
    graph = Graph()
    nodes = [graph.input(n, name, False) for n, name in enumerate(NAMES)]
    a = made(nodes, terms)
    node = polynomial.to_node(graph, a)
    assert value_of_node(node) == value(a, nodes)


@given(st.lists(TERMS.filter(bool), min_size=1, max_size=3))
def test_content(several):
    graph = Graph()
    nodes = [graph.input(n, name, False) for n, name in enumerate(NAMES)]
    polynomials = [made(nodes, terms) for terms in several]
    factor, common = polynomial.content(polynomials)
    rest = [polynomial.divided(a, factor, common) for a in polynomials]
    for a, b in zip(polynomials, rest, strict=True):
        assert polynomial.multiply({common: factor}, b) == a
    factor, common = polynomial.content(rest)
    assert (abs(factor), common) == (1, polynomial.ONE)


def test_content_of_reciprocals(graph, xyz):
    """Of u^3 and u with u = 1/x it is u, so that no power of x remains to be multiplied."""
    cube, single = ({polynomial._monomial({xyz[0]: n}): Fraction(1)} for n in (-3, -1))
    assert polynomial.content([cube, single]) == (1, ((xyz[0], -1),))
    assert polynomial.content([single, cube]) == (1, ((xyz[0], -1),))


def test_a_node_is_taken_apart(graph, xyz):
    x, y, z = xyz
    node = graph.neg(graph.mul(graph.scaled(x, THIRD), graph.mul(graph.reciprocal(y), graph.mul(x, z))))
    assert polynomial.from_node(node) == {polynomial._monomial({x: 2, y: -1, z: 1}): -THIRD}
    assert polynomial.from_node(graph.mul(x, graph.reciprocal(x))) == {polynomial.ONE: 1}
    assert polynomial.from_node(graph.constant(0)) == {}
    total = graph.add(x, y)
    assert polynomial.from_node(total) == {((total, 1),): 1}


def test_constants():
    assert polynomial.constant(0) == {}
    assert polynomial.constant(THIRD) == {(): THIRD}
    assert polynomial.times(polynomial.ONE, polynomial.ONE) == polynomial.ONE


def test_terms_that_cancel_are_gone(graph, xyz):
    a = polynomial.from_node(xyz[0])
    polynomial.add_to(a, polynomial.from_node(xyz[0]), -1)
    assert a == {}
    assert polynomial.to_node(graph, a) is graph.constant(0)


def test_common_factors_are_multiplied_once(graph, xyz):
    """x^2 y / 3 + x^2 z / 3 as ((y + z) x^2) / 3."""
    x, y, z = xyz
    a = {polynomial._monomial({x: 2, y: 1}): THIRD, polynomial._monomial({x: 2, z: 1}): THIRD}
    assert flops(polynomial.to_node(graph, a)) == 4


def test_factored_greedily(graph, xyz):
    """x y + x z + y z as x (y + z) + y z."""
    x, y, z = xyz
    a = {}
    for one, other in ((x, y), (x, z), (y, z)):
        polynomial.add_to(a, {polynomial._monomial({one: 1, other: 1}): Fraction(1)})
    assert flops(polynomial.to_node(graph, a)) == 4


def test_the_commonest_factor_goes_first(graph, xyz):
    """x y + x z + x + y as x (y + z + 1) + y."""
    x, y, z = xyz
    a = {}
    for powers in ({x: 1, y: 1}, {x: 1, z: 1}, {x: 1}, {y: 1}):
        polynomial.add_to(a, {polynomial._monomial(powers): Fraction(1)})
    assert flops(polynomial.to_node(graph, a)) == 4


def test_the_order_of_terms_does_not_matter(graph, xyz):
    x, y, z = xyz
    items = [
        (polynomial._monomial({x: 1, y: 1}), THIRD),
        (polynomial._monomial({z: 2}), Fraction(-2)),
        (polynomial._monomial({x: 1, z: -1}), Fraction(1)),
        ((), Fraction(5)),
    ]
    assert polynomial.to_node(graph, dict(items)) is polynomial.to_node(graph, dict(reversed(items)))
