"""The vocabulary of the formalism on symbols and arrays: projectors, orbital tensors, barriers, arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

import fastcov as fc
from fastcov import formalism, reference
from fastcov.graph import Graph
from fastcov.tensors import Tensor

EPS = np.finfo(float).eps
METRIC = np.diag([-1.0, -1, -1, 1])
EVENTS = 50
rng = np.random.default_rng(50)


def time_like(count):
    p = rng.normal(size=(count, 4))
    p[:, 3] = np.sqrt(np.sum(p[:, :3] ** 2, axis=1) + rng.uniform(0.3, 3, count) ** 2)
    return p


P, R, K = (time_like(EVENTS) for _ in range(3))


def assert_small(difference, *terms):
    """Zero up to rounding, event by event, beside the largest of what was added up."""
    axes = tuple(range(1, difference.ndim))
    size = np.max(np.abs(np.stack([np.max(np.abs(t), axis=tuple(range(1, t.ndim))) for t in terms])), axis=0)
    assert np.all(np.max(np.abs(difference), axis=axes) <= 1000 * EPS * size)


@pytest.fixture(scope="module", params=[1, 2, 3, 4])
def projector(request):
    """Spin, and the dense projectors as a matrix from L indices to L indices."""
    return request.param, fc.dense(fc.projector(request.param, P)).reshape(EVENTS, 4**request.param, -1)


def lowered(matrix, spin):
    """The second half of the indices lowered, so that matrices multiply covariantly."""
    signs = np.ones(1)
    for _ in range(spin):
        signs = np.multiply.outer(signs, np.diag(METRIC)).ravel()
    return matrix * signs


def test_projector_is_idempotent_with_its_sign(projector):
    spin, matrix = projector
    square = lowered(matrix, spin) @ matrix
    size = np.abs(matrix) @ np.abs(matrix)
    assert_small(square - (-1) ** spin * matrix, size)


def test_trace_of_projector(projector):
    spin, matrix = projector
    diagonal = np.diagonal(lowered(matrix, spin), axis1=1, axis2=2)
    assert_small((diagonal.sum(1) - (-1) ** spin * (2 * spin + 1))[:, None], diagonal)


def test_projector_is_symmetric(projector):
    spin, matrix = projector
    tensor = matrix.reshape(EVENTS, *(4,) * (2 * spin))
    assert_small(matrix - np.swapaxes(matrix, 1, 2), matrix)
    for side in (1, 1 + spin):
        for n in range(spin - 1):
            assert_small(tensor - np.swapaxes(tensor, side + n, side + n + 1), tensor)


def test_projector_is_traceless(projector):
    spin, matrix = projector
    if spin == 1:
        return
    tensor = matrix.reshape(EVENTS, 4, 4, -1)
    assert_small(np.einsum("naab,a->nb", tensor, np.diag(METRIC)), tensor)


def test_projector_is_transverse(projector):
    _, matrix = projector
    tensor = matrix.reshape(EVENTS, 4, -1)
    assert_small(np.einsum("nab,na->nb", tensor, P * np.diag(METRIC)), tensor * P[:, :, None])


@pytest.mark.parametrize("spin", [1, 2, 3])
def test_projector_against_its_states(spin):
    wanted = reference.projector(spin, P)
    assert_small(fc.dense(fc.projector(spin, P)) - wanted, wanted)


def test_projector_4_against_its_states():
    for p in P[:3]:
        wanted = reference.projector(4, p)
        assert_small((fc.dense(fc.projector(4, p)) - wanted)[None], wanted[None])


@pytest.mark.parametrize("spin", [1, 2, 3, 4, 5, 6])
def test_orbital_against_its_states(spin):
    got = fc.dense(fc.orbital(spin, P, R))
    wanted = reference.orbital(spin, P, R)
    transverse = reference.einsum("mn,n->m", reference.transverse(P), R)
    size = np.max(np.abs(transverse), axis=1) * np.max(np.abs(P), axis=1) ** 2 / np.abs(reference.dot(P, P))
    assert_small(got - wanted, got, (size**spin)[:, None])


@pytest.mark.parametrize("spin", [2, 3, 4])
def test_orbital_is_symmetric_traceless_transverse(spin):
    t = fc.dense(fc.orbital(spin, P, R))
    for n in range(spin - 1):
        assert_small(t - np.swapaxes(t, n + 1, n + 2), t)
    flat = t.reshape(EVENTS, 4, 4, -1)
    assert_small(np.einsum("naab,a->nb", flat, np.diag(METRIC)), flat)
    assert_small(np.einsum("nabc,na->nbc", flat, P * np.diag(METRIC)), flat * P[:, :, None, None])


def test_p1_is_minus_the_transverse_metric():
    assert np.array_equal(fc.dense(fc.projector(1, P)), -fc.dense(fc.transverse(P)))
    wanted = reference.transverse(P)
    assert_small(fc.dense(fc.transverse(P)) - wanted, wanted)


def test_spin_zero():
    assert np.array_equal(fc.dense(fc.projector(0, P)), np.ones(EVENTS))
    assert np.array_equal(fc.dense(fc.orbital(0, P, R)), np.ones(EVENTS))
    assert np.array_equal(fc.dense(fc.lower(fc.orbital(0, P, R))), np.ones(EVENTS))
    assert np.array_equal(fc.fused(lambda p, r: p * fc.lower(fc.orbital(0, p, r)))(P, R), P)


def test_orbital_of_the_momentum_itself_is_zero():
    for spin in (1, 2, 4):
        assert not fc.dense(fc.orbital(spin, P, P)).any()
        assert not fc.fused(lambda p: fc.einsum("i,i->", fc.orbital(1, p, p * 3), p))(P).any()


@pytest.mark.parametrize("spin", [1, 2, 3])
def test_scales(spin):
    """t~ is homogeneous of degree L in r and 0 in p; P of degree 0."""
    t = fc.dense(fc.orbital(spin, P, R))
    assert np.array_equal(fc.dense(fc.orbital(spin, P * 4, R * 2)), t * 2**spin)

    def contracted(p, r, k):
        spec = ",".join(["abc"[:spin], *"abc"[:spin]]) + "->"
        return fc.einsum(spec, fc.orbital(spin, p, r), *[k] * spin)

    plain = fc.fused(contracted)
    scaled = fc.fused(lambda p, r, k: contracted(p * -3, r / 2, k))
    assert np.array_equal(scaled(P, R, K) * 2**spin, plain(P, R, K))
    by_scalar = fc.fused(lambda p, r: fc.einsum("ab,b->a", fc.projector(1, p * fc.dot(r, r)), r))
    wanted = fc.fused(lambda p, r: fc.einsum("ab,b->a", fc.projector(1, p), r))
    assert_small(by_scalar(P, R) - wanted(P, R), R, wanted(P, R))


def test_scale_of_qftpp():
    assert [fc.scale_qftpp(L) for L in range(5)] == [1, 2, Fraction(8, 3), Fraction(16, 5), Fraction(128, 35)]
    with pytest.raises(ValueError, match="-1"):
        fc.scale_qftpp(-1)


def test_dot_and_sqrt():
    assert_small((fc.dense(fc.dot(P, R)) - reference.dot(P, R))[:, None], P * R)
    assert np.array_equal(fc.dense(fc.sqrt(fc.dot(P, P))), np.sqrt(fc.dense(fc.dot(P, P))))


# Decays


def test_breakup():
    a, b, c = P + R, P, R
    general = fc.dense(fc.breakup2(a, b, c))
    sa, sb, sc = (reference.dot(v, v) for v in (a, b, c))
    wanted = reference.breakup2(sa, sb, sc)
    assert_small((general - wanted)[:, None], wanted[:, None], sa[:, None], sb[:, None])
    own = fc.fused(lambda b, c: fc.breakup2(b + c, b, c))
    assert_small((own(b, c) - wanted)[:, None], wanted[:, None], sa[:, None])


def test_breakup_near_threshold():
    """-b~^2 loses nothing where (s_a + s_b - s_c)^2 / 4 s_a - s_b does."""
    mass, kick = 0.13957039, 2.0**-20
    b, c = np.array([[kick, 0, 0, 0], [-kick, 0, 0, 0]])
    b[3] = c[3] = np.sqrt(mass**2 + kick**2)
    q2 = float(fc.fused(lambda b, c: fc.breakup2(b + c, b, c))(b, c))
    assert abs(q2 / kick**2 - 1) < 10 * EPS


@pytest.mark.parametrize("spin", [0, 1, 2, 3, 4])
def test_barrier(spin):
    for q0 in (0.2, "pwacg", "gpupwa", "tfpwa"):
        number = float(fc.Q0[q0]) if isinstance(q0, str) else q0
        amplitude = fc.fused(lambda p, *, q0: fc.barrier(spin, fc.dot(p, p), q0))
        wanted = reference.barrier(spin, reference.dot(P, P), number)
        got = amplitude(P, q0=q0)
        assert np.all(np.abs(got - wanted) <= 20 * EPS * wanted)


def test_barrier_at_its_scale():
    """B_L(Q = q0) = q0^-L, which fixes the numerators."""

    def all_spins(q2: fc.Scalar, q0: fc.Scalar):
        return tuple(fc.barrier(L, q2, q0) for L in range(7))

    for q0 in (0.197321, 0.5, 3.0):
        for L, value in enumerate(fc.fused(all_spins)(q0**2, q0)):
            assert abs(value * q0**L - 1) < 20 * EPS


def test_barrier_numbers():
    """Those printed in eqs. (14-17), and the spherical Hankel functions for spins beyond."""
    printed = {1: (1, 1), 2: (1, 3, 9), 3: (1, 6, 45, 225), 4: (1, 10, 135, 1575, 11025)}
    for spin, wanted in printed.items():
        assert tuple(formalism.barrier_weights(spin)) == wanted
    assert [sum(formalism.barrier_weights(L)) for L in (1, 2, 3, 4)] == [2, 13, 277, 12746]
    for spin in (5, 6):
        x = 1.7
        # |h_L|^2 by the recurrence of the spherical Bessel functions, complex, from exp(ix) / x
        h = [np.exp(1j * x) / x, np.exp(1j * x) / x * (1 / x - 1j)]
        for n in range(1, spin):
            h.append((2 * n + 1) / x * h[n] - h[n - 1])
        polynomial = sum(a * x ** (2 * (spin - k)) for k, a in enumerate(formalism.barrier_weights(spin)))
        assert abs(polynomial / (x ** (2 * spin + 2) * abs(h[spin]) ** 2) - 1) < 1e-12


def test_barrier_presets():
    assert {name: float(q0) for name, q0 in fc.Q0.items()} == {
        "pwacg": 0.197321,
        "gpupwa": 0.197321 / 0.728656,
        "tfpwa": 1 / 3,
    }
    assert abs(float(fc.Q0["gpupwa"]) ** 2 - 0.22 / 3) < 1e-6


def test_barrier_below_threshold():
    barrier = fc.fused(lambda p: fc.barrier(1, fc.dot(p, p), 0.5))
    p = np.array([[0, 0, 0.4, 0], [0, 0, 0.6, 0], [0, 0, 0, 1]])
    got = barrier(p)
    assert np.array_equal(np.isnan(got), [False, True, False])
    assert abs(got[0] ** 2 * (0.25 - 0.16) - 2) < 1e-14


@pytest.mark.parametrize("q0", [0, -0.2, Fraction(-1, 3), "bes3", np.nan, np.inf])
def test_bad_barrier_scale(q0):
    with pytest.raises(ValueError, match=r"q0 must be positive|'pwacg', 'gpupwa', 'tfpwa'|not finite"):
        fc.fused(lambda p: fc.barrier(1, fc.dot(p, p), q0))(P)


# Arithmetic


def test_tensor_arithmetic():
    t, g = fc.orbital(2, P, R), fc.transverse(P)
    a, b = fc.dense(t), fc.dense(g)
    s = reference.dot(R, R)[:, None, None]
    cases = {
        "sum": (t + g, a + b),
        "difference": (t - g, a - b),
        "negative": (-t, -a),
        "positive": (+t, a),
        "number": (t * 3, a * 3),
        "number on the left": (2.5 * t, a * 2.5),
        "quotient": (t / 4, a / 4),
        "fraction": (t * Fraction(1, 3), a / 3),
        "NumPy number": (np.float64(2) * t * np.int64(3), a * 6),
        "scalar": (t * fc.dot(R, R), a * s),
        "scalar on the left": (fc.dot(R, R) * t, a * s),
        "by a scalar": (t / fc.dot(R, R), a / s),
        "nothing": (t - t, 0 * a),
        "with the metric": (t - fc.metric(), a - METRIC),
        "zero": (t * 0, 0 * a),
    }
    for name, (tensor, wanted) in cases.items():
        assert fc.dense(tensor).shape == a.shape, name
        assert_small(fc.dense(tensor) - wanted, a, b, wanted)


def test_scalar_arithmetic():
    x, y = reference.dot(P, P), reference.dot(P, R)

    def f(p, r):
        x, y = fc.dot(p, p), fc.dot(p, r)
        return {
            "x + 2": (x + 2, 2 + x),
            "x - 2": (x - 2, -(2 - x)),
            "3 x": (3 * x, x * 3),
            "x / 3": (x / 3, x * Fraction(1, 3)),
            "1 / x": (1 / x, x**-1),
            "x y - y / x": (x * y - y / x, -(y / x) + y * x),
            "x^5": (x**5, x * x * x * x * x),
            "x^0": (x**0, 1),
            "+x": (+x, x),
        }

    wanted = {
        "x + 2": x + 2,
        "x - 2": x - 2,
        "3 x": 3 * x,
        "x / 3": x / 3,
        "1 / x": 1 / x,
        "x y - y / x": x * y - y / x,
        "x^5": x**5,
        "x^0": np.ones(EVENTS),
        "+x": x,
    }
    for name, values in wanted.items():
        for which in (0, 1):
            got = fc.fused(lambda p, r: f(p, r)[name][which])(P, R)  # noqa: B023
            assert np.all(np.abs(got - values) <= 1e-12 * (1 + np.abs(values) + np.abs(x * y))), name


def test_scalars_on_arrays():
    x, y = fc.dot(P, P), fc.dot(P, R)
    a, b = reference.dot(P, P), reference.dot(P, R)
    for got, wanted in ((2 - x, 2 - a), (1 / x, 1 / a), (x**3 * y, a**3 * b), (-x / y, -a / b), (x - 1, a - 1)):
        assert_small((fc.dense(got) - wanted)[:, None], wanted[:, None], (a * b)[:, None], a[:, None] ** 4)


def test_integers_of_numpy_do_not_overflow():
    big = np.int64(2**40)
    got = fc.fused(lambda p: fc.dot(p, p) * big * big * big)(P)
    assert np.array_equal(got, fc.fused(lambda p: fc.dot(p, p))(P) * 2.0**120)
    small = fc.fused(lambda p: p * np.int8(100) * np.int8(100))(P)
    assert np.array_equal(small, P * 10000)


def test_keywords_and_arrays():
    """Every function takes its arguments by name too, on arrays as under trace."""
    assert np.array_equal(fc.dense(fc.orbital(L=2, p=P, r=R)), fc.dense(fc.orbital(2, P, R)))
    assert np.array_equal(fc.dense(fc.projector(p=P, L=1)), fc.dense(fc.projector(1, P)))
    assert np.array_equal(fc.dense(fc.transverse(p=P)), fc.dense(fc.transverse(P)))
    assert np.array_equal(fc.dense(fc.dot(a=P, b=R)), fc.dense(fc.dot(P, R)))


def test_repr():
    graph = Graph()
    p = Tensor.of_node(graph.input(0, "p", True))
    assert repr(fc.projector(2, p)) == "<Tensor of rank 4, 1 terms>"
    assert repr(fc.dot(p, p)) == "<Scalar %2 = dot %0 %0>"
    assert repr(fc.projector(2, P)) == "<tensor of rank 4 built on arrays>"


# Covariance


def boosts(count):
    """Boosts in random directions with gamma up to 3, followed by rotations."""
    u = rng.normal(size=(count, 3))
    u *= rng.uniform(0, 2, (count, 1)) / np.linalg.norm(u, axis=1, keepdims=True)
    gamma = np.sqrt(1 + np.sum(u * u, 1))
    boost = np.zeros((count, 4, 4))
    boost[:, :3, :3] = np.eye(3) + u[:, :, None] * u[:, None] / (1 + gamma)[:, None, None]
    boost[:, :3, 3] = boost[:, 3, :3] = u
    boost[:, 3, 3] = gamma
    rotation = np.broadcast_to(np.eye(4), (count, 4, 4)).copy()
    rotation[:, :3, :3] = np.linalg.qr(rng.normal(size=(count, 3, 3)))[0]
    return rotation @ boost


@pytest.mark.parametrize("spin", [1, 2, 3])
def test_boost_covariance(spin):
    L = boosts(EVENTS)
    p, r = np.einsum("nab,nb->na", L, P), np.einsum("nab,nb->na", L, R)
    for tensor, moved in (
        (fc.orbital(spin, P, R), fc.orbital(spin, p, r)),
        (fc.projector(spin, P), fc.projector(spin, p)),
    ):
        wanted = fc.dense(tensor)
        size = np.abs(wanted)
        for axis in range(1, wanted.ndim):
            wanted = np.moveaxis(np.einsum("nab,n...b->n...a", L, np.moveaxis(wanted, axis, -1)), -1, axis)
            size = np.moveaxis(np.einsum("nab,n...b->n...a", np.abs(L), np.moveaxis(size, axis, -1)), -1, axis)
        assert_small(fc.dense(moved) - wanted, size * 10)
