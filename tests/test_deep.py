"""Amplitudes that a loop makes thousands of operations deep: no recursion, and time that grows with the depth only."""

import pickle
import subprocess
import sys
import time

import numpy as np
import pytest

import fastcov as fc
from fastcov import reference
from fastcov.fused import bundle, fused
from fastcov.graph import SPELT_HEIGHT, Graph

rng = np.random.default_rng(3)
N = 3
P, Q = (rng.normal(size=(N, 4)) * 0.1 + [0, 0, 0, 1] for _ in range(2))
X, Y = rng.uniform(0.5, 0.99, N), rng.uniform(0, 1, N)


def horner(depth):
    def function(x: fc.Scalar, y: fc.Scalar):
        s = x
        for _ in range(depth):
            s = s * x + y
        return s

    return fused(function)


def test_scalars_of_a_hundred_thousand_operations():
    function = horner(50_000)
    want = X
    for _ in range(50_000):
        want = want * X + Y
    assert len(function.tape.code) == 100_003
    np.testing.assert_array_equal(function(X, Y), want)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(function))(X, Y), want)


def test_derivatives():
    function = horner(3000)
    value, by_x, by_y = X, np.ones(N), np.zeros(N)
    for _ in range(3000):
        value, by_x, by_y = value * X + Y, by_x * X + value, by_y * X + 1
    for gradients in (function.vjp(X, Y, cotangent=np.ones(N)), function.jacobian(X, Y)):
        np.testing.assert_allclose(gradients, (by_x, by_y), rtol=1e-13)
    np.testing.assert_allclose(function.jvp(X, Y, tangents=(X, Y)), by_x * X + by_y * Y, rtol=1e-13)


def test_a_derivative_of_more_values_than_there_are_registers():
    with pytest.raises(ValueError, match="5004 scalars at once, more than the 4096"):
        horner(5000).vjp(X, Y, cotangent=X)


def test_jax():
    jnp = pytest.importorskip("jax.numpy")
    got = horner(1000)(jnp.asarray(X, "float32"), jnp.asarray(Y, "float32"))
    np.testing.assert_allclose(got, horner(1000)(X, Y), rtol=1e-4)


def vectors(depth):
    """A vector through a chain of projections and of sums."""

    def function(p, q, x: fc.Scalar):
        v = p
        for _ in range(depth):
            v = (fc.einsum("mn,n->m", fc.transverse(p), v) + q * fc.dot(v, q)) * x / 3
        return v

    return fused(function)


def test_vectors():
    want = P
    for _ in range(2000):
        projected = np.einsum("emn,en->em", reference.transverse(P), reference.lower(want, 1))
        want = (projected + Q * reference.dot(want, Q)[:, None]) * X[:, None] / 3
    np.testing.assert_allclose(vectors(2000)(P, Q, X), want, rtol=1e-9)


@pytest.mark.parametrize("coefficient", ["x", "dot"])
def test_a_vector_that_is_scaled_and_added_to(coefficient):
    def function(p, q, x: fc.Scalar):
        v = p
        for _ in range(2000):
            v = v * (x if coefficient == "x" else fc.dot(v, q)) / 8 + q
        return v

    want = P
    for _ in range(2000):
        weight = X if coefficient == "x" else reference.dot(want, Q)
        want = want * weight[:, None] / 8 + Q
    np.testing.assert_allclose(fused(function)(P, Q, X), want, rtol=1e-11)


def test_a_coherent_sum():
    def function(p, q, x: fc.Scalar):
        total, s = 0 * p, x
        for _ in range(500):
            s = s * x + 1
            total = total + s * fc.einsum("mn,n->m", fc.transverse(p + s * q), q)
        return total

    total, s = 0 * P, X
    for _ in range(500):
        s = s * X + 1
        projector = reference.transverse(P + s[:, None] * Q)
        total = total + s[:, None] * np.einsum("emn,en->em", projector, reference.lower(Q, 1))
    np.testing.assert_allclose(fused(function)(P, Q, X), total, rtol=1e-11)


def test_a_product_of_many_factors():
    def product(x):
        factor, total = x, x
        for _ in range(1000):
            factor = factor * 0.5 + 0.5
            total = total * factor
        for _ in range(60):
            total = total * total
        return total

    def function(p, x: fc.Scalar):
        return product(x) * p

    np.testing.assert_array_equal(fused(function)(P, X), product(X)[:, None] * P)


def test_many_constant_factors_keep_their_precision():
    def function(x: fc.Scalar):
        for _ in range(400):
            x = x * 0.1
        return x

    function = fused(function)
    assert function(1e200) == pytest.approx(1e-200, rel=1e-13)
    assert pickle.loads(pickle.dumps(function))(1e200) == function(1e200)


def test_constants_beyond_the_range_of_floats():
    """A product of constants may be none of float64's numbers where its multiples are."""

    def function(p, x: fc.Scalar):
        small = x * 1e-200 * 1e-200
        return p * 1e-200 * 1e-200, small, (x + x * x) * 1e-200 * 1e-200

    vector, scalar, other = fused(function)(np.array([1e300, 2e280, 0, 3e-90]), 1e150)
    np.testing.assert_allclose(vector, [1e-100, 2e-120, 0, 0], rtol=1e-13)
    np.testing.assert_allclose([scalar, other], [1e-250, 1e-100], rtol=1e-13)

    def large(x: fc.Scalar, y: fc.Scalar):
        return x * y * 1e200 * 1e200

    assert fused(large)(1e-150, 1e-150) == pytest.approx(1e100, rel=1e-13)


def test_tensors_on_arrays():
    tensor, twice = fc.orbital(3, P, Q), fc.orbital(3, P, Q)
    for _ in range(2000):
        tensor = tensor * fc.dot(P, Q) / 3 + fc.orbital(3, P, Q)
    for _ in range(60):
        twice = twice + twice
    dense, weight = fc.dense(fc.orbital(3, P, Q)), 1
    for _ in range(2000):
        weight = weight * reference.dot(P, Q) / 3 + 1
    np.testing.assert_allclose(fc.dense(tensor), dense * weight[:, None, None, None], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(fc.dense(twice), dense * 2.0**60, rtol=1e-14)


def deep_vector(p, q, start):
    v = p * start + q
    for _ in range(SPELT_HEIGHT):
        v = fc.einsum("mn,n->m", fc.transverse(v), p)
    return v


def test_a_deep_wave_has_the_same_bits_in_a_bundle():
    def in_order(*starts):
        def function(p, q):
            first, second, third = (deep_vector(p, q, start) for start in starts)
            return first + second + third

        return fused(function)

    waves = [in_order(2, 3, 5), in_order(5, 3, 2), in_order(3, 5, 2)]
    together = bundle(*waves)(P, Q)
    for wave, got in zip(waves, together, strict=True):
        np.testing.assert_array_equal(got, wave(P, Q))
        np.testing.assert_array_equal(got, together[0])


def deep_tape():
    return vectors(300).tape.fingerprint


def test_the_order_is_the_same_in_every_process():
    code = "import test_deep; print(test_deep.deep_tape())"
    found = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300).stdout
        for _ in range(2)
    }
    assert found == {deep_tape() + "\n"}


def test_keys_tell_deep_nodes_apart():
    graph = Graph()
    x, y = (graph.input(n, "xy"[n], False) for n in range(2))
    chains = [x, y]
    for _ in range(2 * SPELT_HEIGHT):
        chains = [graph.add(graph.mul(s, x), y) for s in chains]
    assert len({node.key for node in graph.nodes.values()}) == len(graph.nodes)
    low, high = sorted(chains, key=lambda node: node.key)
    assert low.key < high.key
    assert low.key[0] == high.key[0] == 4 * SPELT_HEIGHT


def test_time_grows_with_the_depth():
    def seconds(depth):
        start = time.process_time()
        assert vectors(depth).tape
        return time.process_time() - start

    seconds(100)
    assert seconds(2000) < 40 * seconds(200)
