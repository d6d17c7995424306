"""From nodes to a tape: which operations become one, and their order."""

import numpy as np
from nodes import VALUES, assembled, dot, v, value

from fastcov.opcodes import OPCODES


def operations(*nodes):
    """The names of a tape's operations in their order, without loads and stores."""
    names = [OPCODES[row[0]].name for row in assembled(*nodes).code]
    return [name for name in names if not name.startswith(("load", "store"))]


def test_a_projection_is_one_operation(graph, inputs):
    p, q, *_ = inputs
    _, node = graph.transverse(p, q)
    assert operations(node) == ["dot", "reciprocal", "project"]
    wanted = v("q") - dot(v("p"), v("q")) / dot(v("p"), v("p")) * v("p")
    assert np.array_equal(value(node), wanted)


def test_a_projection_keeps_what_is_needed_elsewhere(graph, inputs):
    p, q, *_ = inputs
    _, node = graph.transverse(p, q)
    parts = ["dot", "reciprocal", "dot", "mul", "vsub_scaled"]
    assert operations(node, graph.dot(p, q)) == parts
    assert operations(node, graph.mul(graph.dot(p, q), graph.reciprocal(graph.dot(p, p)))) == parts


def test_what_resembles_a_projection(graph, inputs):
    """q - (p.r) x p and q - (p.q) x r"""
    p, q, r, x, _ = inputs
    for a, b in ((r, p), (q, r)):
        node = graph.vsub_scaled(q, graph.mul(graph.dot(p, a), x), b)
        assert operations(node) == ["dot", "mul", "vsub_scaled"]


def test_a_multiple_is_absorbed_by_the_sum(graph, inputs):
    p, q, _, x, _ = inputs
    once = graph.vscale(x, q)
    assert operations(graph.vadd(p, once)) == ["vadd_scaled"]
    assert operations(graph.vsub(p, once)) == ["vsub_scaled"]
    assert operations(graph.vadd(p, once), once) == ["vscale", "vadd"]
    recorded = graph.recorded("vadd", [p, graph.vneg(once)], True)  # as in derivatives
    assert operations(recorded) == ["vsub_scaled"]
    assert np.array_equal(value(recorded), v("p") - VALUES["x"] * v("q"))


def test_the_sign_goes_to_the_scalar(graph, inputs):
    """-(s v) is (-s) v, but not where s v is needed too: the same bits alone and in a bundle, signs of zeros too."""
    p, _, _, x, y = inputs
    scaled = graph.vscale(x, p)
    assert operations(graph.vneg(scaled)) == ["neg", "vscale"]
    assert operations(graph.vneg(scaled), scaled) == ["vscale", "vneg"]
    assert operations(graph.vneg(graph.vscale(graph.scaled(x, 3), p))) == ["mul_constant", "vscale"]
    assert operations(graph.vneg(graph.vscale(graph.sub(x, y), p))) == ["sub", "neg", "vscale"]


def test_a_division_comes_first(graph, inputs):
    p, q, _, x, _ = inputs
    assert operations(graph.mul(graph.dot(p, q), graph.sqrt(x))) == ["sqrt", "dot", "mul"]
    assert operations(graph.mul(graph.dot(p, q), graph.neg(x)))[0] == "dot"
