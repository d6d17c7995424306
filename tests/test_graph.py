"""The graph: equal things are one node, and a simplified node means what was asked for."""

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
import tape_exact
from nodes import VALUES, VECTORS, dot, v, value

from fastcov.graph import Graph, orthogonal, sort_sign


def equal(a, b):
    return np.array_equal(a, b)


def test_the_same_operation_is_the_same_node(graph, inputs):
    p, q, _, x, y = inputs
    assert graph.add(x, y) is graph.add(y, x)
    assert graph.mul(x, y) is graph.mul(y, x)
    assert graph.dot(p, q) is graph.dot(q, p)
    assert graph.sub(x, y) is not graph.sub(y, x)
    assert graph.div(x, y) is not graph.div(y, x)


def test_sums_of_vectors_do_not_depend_on_their_order(graph, inputs):
    p, q, r, *_ = inputs
    sums = {graph.vadd(graph.vadd(*two), one) for *two, one in permutations((p, q, r))}
    assert len(sums) == 1
    assert graph.vsub(graph.vadd(p, q), q) is p
    assert graph.vsub(p, p) is graph.zero_vector()
    assert graph.vadd(p, p) is graph.vscaled(p, Fraction(2))
    assert graph.vscaled(graph.vscaled(p, Fraction(2)), Fraction(1, 2)) is p
    half = graph.vscaled(graph.vadd(p, q), Fraction(1, 2))
    assert half is graph.vadd(graph.vscaled(p, Fraction(1, 2)), graph.vscaled(q, Fraction(1, 2)))
    assert equal(value(half), (v("p") + v("q")) / 2)
    assert equal(value(graph.vsub(graph.vscaled(q, Fraction(3)), graph.vadd(p, r))), 3 * v("q") - v("p") - v("r"))


def test_partial_sums_stay_where_they_are_not_flattened():
    graph = Graph(flatten=False)
    p, q, r = (graph.input(n, name, True) for n, name in enumerate(VECTORS))
    total = graph.vadd(graph.vadd(r, q), p)
    assert graph.vadd(r, q) in total.args
    assert graph.vsub(total, total) is graph.zero_vector()


def scalar_cases(g, x, y):
    k, zero, one = g.constant(Fraction(2, 3)), g.constant(0), g.constant(1)
    a, b = VALUES["x"], VALUES["y"]
    t = Fraction(2, 3)
    return {
        "x + 0": (g.add(x, zero), a, x),
        "0 + x": (g.add(zero, x), a, x),
        "k + x": (g.add(k, x), a + t, g.add(x, k)),
        "k + k": (g.add(k, k), 2 * t, g.constant(2 * t)),
        "x + -y": (g.add(x, g.neg(y)), a - b, g.sub(x, y)),
        "-x + y": (g.add(g.neg(x), y), b - a, g.sub(y, x)),
        "k - k": (g.sub(k, k), 0, zero),
        "x - k": (g.sub(x, k), a - t, g.add(x, g.constant(-t))),
        "k - x": (g.sub(k, x), t - a, g.add(g.neg(x), k)),
        "0 - x": (g.sub(zero, x), -a, g.neg(x)),
        "x - -y": (g.sub(x, g.neg(y)), a + b, g.add(x, y)),
        "x * 0": (g.mul(x, zero), 0, zero),
        "1 * x": (g.mul(one, x), a, x),
        "x * -1": (g.mul(x, g.constant(-1)), -a, g.neg(x)),
        "-x * y": (g.mul(g.neg(x), y), -a * b, g.neg(g.mul(x, y))),
        "x * -y": (g.mul(x, g.neg(y)), -a * b, g.neg(g.mul(x, y))),
        "k (k x)": (g.scaled(g.scaled(x, t), t), a * t * t, g.scaled(x, t * t)),
        "k (-x)": (g.scaled(g.neg(x), t), -a * t, g.scaled(x, -t)),
        "-(-x)": (g.neg(g.neg(x)), a, x),
        "-(k x)": (g.neg(g.scaled(x, t)), -a * t, g.scaled(x, -t)),
        "-(x - y)": (g.neg(g.sub(x, y)), b - a, g.sub(y, x)),
        "-k": (g.neg(k), -t, g.constant(-t)),
        "x / k": (g.div(x, k), a / t, g.scaled(x, 1 / t)),
        "k / x": (g.div(k, x), t / a, g.scaled(g.reciprocal(x), t)),
        "x / y": (g.div(x, y), a / b, g.div(x, y)),
        "1 / k": (g.reciprocal(k), 1 / t, g.constant(1 / t)),
        "1 / (1 / x)": (g.reciprocal(g.reciprocal(x)), a, x),
        "1 / -x": (g.reciprocal(g.neg(x)), -1 / a, g.neg(g.reciprocal(x))),
        "x ** 0": (g.power(x, 0), 1, one),
        "x ** 1": (g.power(x, 1), a, x),
        "x ** 2": (g.power(x, 2), a**2, g.mul(x, x)),
        "x ** 7": (g.power(x, 7), a**7, None),
        "x ** 8": (g.power(x, 8), a**8, None),
        "x ** -3": (g.power(x, -3), a**-3, g.power(g.reciprocal(x), 3)),
    }


@pytest.mark.parametrize("case", scalar_cases(Graph(), *(Graph().input(n, "", False) for n in (3, 4))))
def test_scalars(case, graph, inputs):
    node, wanted, same = scalar_cases(graph, *inputs[3:])[case]
    assert value(node) == wanted
    assert same is None or node is same


def test_a_power_takes_few_multiplications(graph, inputs):
    before = len(graph.nodes)
    graph.power(inputs[3], 64)
    assert len(graph.nodes) - before == 6


def test_division_by_zero_is_left_to_the_run(graph, inputs):
    x = inputs[3]
    assert graph.div(x, graph.constant(0)).op == "div"
    assert graph.reciprocal(graph.constant(0)).op == "reciprocal"


def test_nothing_that_may_not_be_finite_cancels(graph, inputs):
    x = inputs[3]
    assert graph.sub(x, x).op == "sub"
    assert graph.div(x, x).op == "div"


def vector_cases(g, p, q, r, x, y):
    P, Q = v("p"), v("q")
    a = VALUES["x"]
    return {
        "-p . q": (g.dot(g.vneg(p), q), -dot(P, Q), g.neg(g.dot(p, q))),
        "x p . q": (g.dot(g.vscale(x, p), q), a * dot(P, Q), g.mul(x, g.dot(p, q))),
        "2 p . q": (g.dot(g.vscaled(p, Fraction(2)), q), 2 * dot(P, Q), g.scaled(g.dot(p, q), Fraction(2))),
        "lower p . lower q": (g.dot(g.vlower(p), g.vlower(q)), dot(P, Q), g.dot(p, q)),
        "lower p . q": (g.dot(g.vlower(p), q), np.sum(P * Q), None),
        "p . unit E": (g.dot(p, g.unit(3)), P[3], g.component(p, 3)),
        "unit x . p": (g.dot(g.unit(0), p), -P[0], g.neg(g.component(p, 0))),
        "unit y . unit y": (g.dot(g.unit(1), g.unit(1)), -1, g.constant(-1)),
        "unit y . unit z": (g.dot(g.unit(1), g.unit(2)), 0, g.constant(0)),
        "0 . p": (g.dot(g.zero_vector(), p), 0, g.constant(0)),
        "lower lower p": (g.vlower(g.vlower(p)), P, p),
        "lower unit x": (g.vlower(g.unit(0)), [-1, 0, 0, 0], g.vneg(g.unit(0))),
        "lower unit E": (g.vlower(g.unit(3)), [0, 0, 0, 1], g.unit(3)),
        "lower -p": (g.vlower(g.vneg(p)), [*P[:3], -P[3]], g.vneg(g.vlower(p))),
        "(lower p)_y": (g.component(g.vlower(p), 1), -P[1], g.neg(g.component(p, 1))),
        "(lower p)_E": (g.component(g.vlower(p), 3), P[3], g.component(p, 3)),
        "0_x": (g.component(g.zero_vector(), 0), 0, g.constant(0)),
        "packed": (g.component(g.pack(x, y, x, x), 1), VALUES["y"], y),
        "packed again": (g.pack(*(g.component(p, m) for m in range(4))), P, p),
        "packed of two": (g.pack(*(g.component(p if m else q, m) for m in range(4))), [Q[0], *P[1:]], None),
        "packed in another order": (g.pack(*(g.component(p, 3 - m) for m in range(4))), P[::-1], None),
        "1 p": (g.vscale(g.constant(1), p), P, p),
        "0 p": (g.vscale(g.constant(0), p), [0] * 4, g.zero_vector()),
        "-x p": (g.vscale(g.neg(x), p), -a * P, g.vneg(g.vscale(x, p))),
        "x (-p)": (g.vscale(x, g.vneg(p)), -a * P, g.vneg(g.vscale(x, p))),
        "x 0": (g.vscale(x, g.zero_vector()), [0] * 4, g.zero_vector()),
        "p - 3 q": (g.vsub_scaled(p, g.constant(3), q), P - 3 * Q, g.vsub(p, g.vscaled(q, Fraction(3)))),
        "p - x q": (g.vsub_scaled(p, x, q), P - a * Q, None),
    }


@pytest.mark.parametrize("case", vector_cases(g := Graph(), *(g.input(n, "", n < 3) for n in range(5))))
def test_vectors(case, graph, inputs):
    node, wanted, same = vector_cases(graph, *inputs)[case]
    assert equal(value(node), wanted)
    assert same is None or node is same


def test_cross(graph, inputs):
    p, q, r, *_ = inputs
    P, Q, R = (v(name) for name in VECTORS)
    _, node = graph.cross(p, q, r)
    for order in permutations(((p, P), (q, Q), (r, R))):
        nodes, numbers = zip(*order, strict=True)
        sign, other = graph.cross(*nodes)
        assert other is node
        assert sign == sort_sign(nodes)[0]
        assert equal(sign * value(node), tape_exact.MEANING["cross"](*numbers))
    for vector, numbers in ((p, P), (q, Q), (r, R)):
        assert dot(value(node), numbers) == 0
        assert orthogonal(node, vector)
        assert graph.dot(node, vector) is graph.constant(0)
    assert not orthogonal(node, graph.unit(3))
    assert equal(value(graph.dot(node, graph.unit(3))), value(node)[3])
    assert graph.cross(p, q, p) == (0, graph.zero_vector())


def test_transverse(graph, inputs):
    p, q, *_ = inputs
    P, Q = v("p"), v("q")
    factor, node = graph.transverse(p, q)
    assert equal(factor * value(node), Q - P * dot(P, Q) / dot(P, P))
    assert graph.transverse(p, node) == (1, node)
    assert graph.dot(node, p) is graph.constant(0)
    assert graph.transverse(p, p)[1] is graph.zero_vector()
    assert graph.transverse(p, graph.vscaled(p, Fraction(-3)))[1] is graph.zero_vector()
    assert not orthogonal(node, q)


def test_the_vectors_of_a_decay_have_one_projection(graph, inputs):
    """At p -> b c all of b, c, b - c are the same vector up to a factor and a multiple of p."""
    b, c, other, *_ = inputs
    p = graph.vadd(b, c)
    P = v("p") + v("q")
    nodes = set()
    for vector, numbers in (
        (b, v("p")),
        (c, v("q")),
        (graph.vsub(b, c), v("p") - v("q")),
        (graph.vsub(graph.vscaled(c, Fraction(5)), b), 5 * v("q") - v("p")),
    ):
        factor, node = graph.transverse(p, vector)
        nodes.add(node)
        assert equal(factor * value(node), numbers - P * dot(P, numbers) / dot(P, P))
    assert len(nodes) == 1
    factor, node = graph.transverse(p, graph.vadd(b, other))
    numbers = v("p") + v("r")
    assert equal(factor * value(node), numbers - P * dot(P, numbers) / dot(P, P))


def test_order_does_not_depend_on_the_rest_of_the_graph():
    def product(graph):
        p, q = (graph.input(n, "", True) for n in range(2))
        return graph.mul(graph.dot(q, q), graph.dot(p, q))

    plain, crowded = Graph(), Graph()
    q, p = crowded.input(1, "", True), crowded.input(0, "", True)
    crowded.dot(q, q)
    crowded.dot(p, p)
    assert product(plain).key == product(crowded).key


def test_repr():
    graph = Graph()
    assert repr(graph.dot(graph.input(0, "p", True), graph.input(1, "q", True))) == "%2 = dot %0 %1"


def test_powers_of_any_size(graph, inputs):
    x = inputs[3]
    for exponent in (1, 2, 3, 7, 12, -5):
        assert value(graph.power(x, exponent)) == VALUES["x"] ** exponent
    assert graph.power(x, 10**400).key[0] > 1000
