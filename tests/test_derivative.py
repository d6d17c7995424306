"""Derivatives: exact arithmetic, differences, each operation, structures, shared inputs, and higher orders."""

from fractions import Fraction

import exact
import numpy as np
import pytest
import tape_exact
from tape_numpy import evaluate

import fastcov as fc
from fastcov import derivative, waves
from fastcov.assemble import nodes_of
from fastcov.opcodes import OPCODES
from fastcov.phasespace import psi2s_kkpipi

N = 20
MOMENTA = psi2s_kkpipi(N, seed=9)
rng = np.random.default_rng(3)
COTANGENT = rng.normal(size=(N, 4))
TANGENTS = tuple(rng.normal(size=(4, N, 4)))
HEAVY = [p + np.array([0, 0, 0, 1.5]) for p in MOMENTA]  # so that differences converge
P, R = HEAVY[:2]
PLAIN = {name: fc.fused(getattr(waves, name), barrier=False) for name in ("phif243", "phif201")}
WAVES = {w.__name__: w for w in (*waves.all, waves.phif4)}


def relative(got, wanted):
    """The largest deviation of each event in units of its largest component."""
    axes = tuple(range(1, wanted.ndim))
    return np.max(np.max(np.abs(got - wanted), axis=axes) / (np.max(np.abs(wanted), axis=axes) + 1e-300))


def assert_close(got, wanted, tolerance):
    assert got.shape == wanted.shape
    assert np.max(np.abs(got - wanted)) <= tolerance * max(np.max(np.abs(wanted)), 1e-300)


def shifted(arrays, tangents, step):
    return [a if t is None else a + step * t for a, t in zip(arrays, tangents, strict=True)]


def difference(function, arrays, tangents, step=1e-3):
    """The derivative along the tangents by differences of sixth order."""
    total = 0
    for k, weight in ((1, 45), (2, -9), (3, 1)):
        up, down = (function(*shifted(arrays, tangents, s * k * step)) for s in (1, -1))
        total = total + weight * (np.asarray(up) - np.asarray(down))
    return total / (60 * step)


# Against exact rational arithmetic


@pytest.mark.parametrize("name", PLAIN)
def test_vjp_against_exact_derivatives(name):
    """Ten random events within 1e-12 relative."""
    wave = PLAIN[name]
    gradients = np.stack(wave.vjp(*MOMENTA, cotangent=COTANGENT), axis=1)
    by_value = np.stack(wave.value_and_vjp(*MOMENTA, cotangent=COTANGENT)[1], axis=1)
    jacobian = np.concatenate(wave.jacobian(*MOMENTA), axis=2)
    tangent = wave.jvp(*MOMENTA, tangents=TANGENTS)
    for n in range(10):
        matrix = getattr(exact, name)(*(p[n] for p in MOMENTA)).derivative
        c = [Fraction(x) for x in COTANGENT[n]]
        wanted = np.array([float(sum(c[m] * matrix[m][k] for m in range(4))) for k in range(16)])
        assert_close(gradients[n].ravel(), wanted, 1e-12)
        assert_close(by_value[n].ravel(), wanted, 1e-12)
        assert_close(jacobian[n], np.array(matrix, dtype=float), 1e-12)
        t = [Fraction(x) for one in TANGENTS for x in one[n]]
        assert_close(
            tangent[n], np.array([float(sum(a * b for a, b in zip(t, row, strict=True))) for row in matrix]), 1e-11
        )


@pytest.mark.parametrize("name", PLAIN)
def test_derivative_tapes_are_exactly_the_derivatives(name):
    """No rounding, no tolerance."""
    event = [p[0] for p in MOMENTA]
    matrix = np.array(getattr(exact, name)(*event).derivative)
    wave = PLAIN[name]
    c = [Fraction(x) for x in COTANGENT[0]]
    got = tape_exact.evaluate(wave.vjp.tape, [*event, c])
    assert np.concatenate(got).tolist() == (c @ matrix).tolist()
    t = [[Fraction(x) for x in one[0]] for one in TANGENTS]
    (got,) = tape_exact.evaluate(wave.jvp.tape, [*event, *t])
    assert got.tolist() == (matrix @ np.concatenate(t)).tolist()
    got = tape_exact.evaluate(wave.jacobian.tape, event)
    assert np.concatenate(got, axis=1).tolist() == matrix.tolist()


# Each operation


def every_operation(p, q, x: fc.Scalar, y: fc.Scalar):
    """Amplitudes whose graphs hold each operation that has a derivative."""
    turned = fc.einsum("ab,b->a", fc.transverse(p), q, metric=None)
    c = fc.einsum("abcd,b,c,d->a", fc.levi_civita(), p, q, p * x + turned)
    plain = fc.einsum("a,a->", p, q, metric=None)
    return (
        x * y - x / y + fc.dot(p, q) ** 3 - 1 / (x + 2),
        fc.sqrt(3 + fc.dot(p, p)) * x - y * plain - 7,
        p * x - q * y + (p - q) * (1 / y) - 3 * p,
        fc.einsum("ab,b->a", fc.transverse(p), q) * x,
        c * plain,
        fc.einsum("ab,bc,c->a", fc.orbital(2, p, q), fc.transverse(q), p, metric=None),
        fc.orbital(2, p, q) + fc.transverse(q) * y,
        fc.sum(fc.dot(p, q) * x),
        fc.sum(p * y),
        fc.lower(p * fc.dot(p, q)),
    )


def operation_inputs(n=N):
    return [P[:n], R[:n], np.linspace(0.5, 1.5, n), np.linspace(-2, -1, n)]


OPERATIONS = fc.fused(every_operation)


def directional(values, cotangents):
    return sum(np.sum(np.asarray(v) * c) for v, c in zip(values, cotangents, strict=True))


def test_every_operation_has_its_rules():
    args = operation_inputs()
    values = OPERATIONS(*args)
    tangents = tuple(rng.normal(size=a.shape) for a in args)
    cotangents = tuple(rng.normal(size=np.shape(v)) for v in values)
    pushed = OPERATIONS.jvp(*args, tangents=tangents)
    for n, one in enumerate(pushed):
        wanted = difference(lambda *a: OPERATIONS(*a)[n], args, tangents)  # noqa: B023
        assert_close(one, wanted, 1e-9)
    pulled = OPERATIONS.vjp(*args, cotangent=cotangents)
    assert [g.shape for g in pulled] == [a.shape for a in args]
    forward, backward = directional(pushed, cotangents), directional(pulled, tangents)
    assert abs(forward - backward) <= 1e-12 * (
        abs(forward) + sum(np.abs(g * t).sum() for g, t in zip(pulled, tangents, strict=True))
    )


def test_the_derivatives_of_every_operation_have_their_rules():
    """Reverse and forward mode agree on the reverse derivative, which has operations that no amplitude has."""
    args = operation_inputs()
    values = OPERATIONS(*args)
    inputs = (*args, tuple(rng.normal(size=np.shape(v)) for v in values))
    tangents = mapped(lambda x: rng.normal(size=np.shape(x)), inputs)
    pushed = OPERATIONS.vjp.jvp(*inputs, tangents=tangents)
    cotangents = tuple(rng.normal(size=np.shape(v)) for v in pushed)
    pulled = OPERATIONS.vjp.vjp(*inputs, cotangent=cotangents)
    products = [np.sum(a * b) for a, b in zip(leaves(pulled), leaves(tangents), strict=True)]
    wanted = sum(np.sum(a * b) for a, b in zip(pushed, cotangents, strict=True))
    assert abs(sum(products) - wanted) <= 1e-12 * np.sum(np.abs(products))


def test_jacobians_by_scalars_have_derivatives():
    f = fc.fused(_weighted)
    w = np.linspace(1, 2, N)
    by_p, by_w = f.jacobian.vjp(P, w, cotangent=(np.zeros((N, 4, 4)), COTANGENT))  # of 2 w p_m
    assert_close(by_p, 2 * w[:, None] * COTANGENT, 1e-14)
    assert_close(by_w, 2 * np.sum(P * COTANGENT, axis=1), 1e-13)


def test_inputs_that_do_not_vary():
    """Tangents of some inputs only, and gradients by some: those of all, with zeros for the others."""
    tape = fc.fused(lambda a, b, r: fc.einsum("ij,j->i", fc.transverse(3 * a + b), r)).tape
    point = [[Fraction(x) for x in v] for v in ([1, 2, 3, 9], [-2, 1, 4, 11], [5, -1, 0, 3])]
    t = [Fraction(x) for x in (1, -4, 2, 6)]
    zero = [0] * 4
    (wanted,) = tape_exact.evaluate(derivative.jvp(tape, [True] * 3), [*point, t, zero, zero])
    (got,) = tape_exact.evaluate(derivative.jvp(tape, [True, False, False]), [*point, t])
    assert got.tolist() == wanted.tolist()
    value, tangent = tape_exact.evaluate(derivative.jvp(tape, [True] * 3, value=True), [*point, t, t, t])
    assert value.tolist() == tape_exact.evaluate(tape, point)[0].tolist()
    assert tangent.tolist() == tape_exact.evaluate(derivative.jvp(tape, [True] * 3), [*point, t, t, t])[0].tolist()
    full = tape_exact.evaluate(derivative.vjp(tape, [True] * 3, [False] * 3), [*point, t])
    for n in range(3):
        wanted = [k == n for k in range(3)]
        (got,) = tape_exact.evaluate(derivative.vjp(tape, wanted, [False] * 3), [*point, t])
        assert got.tolist() == full[n].tolist()


def test_projections_are_recognised_in_a_tape():
    """Their derivative is shorter than that of the operations they consist of."""
    project = fc.fused(lambda p, q, r: fc.einsum("ij,jk,k->i", fc.transverse(p), fc.transverse(q), r))
    graph, *_ = nodes_of(project.tape)
    assert sum(node.op == "transverse" for node in graph.nodes.values()) == 2
    assert project.vjp.cost.flops <= 2.2 * project.cost.flops


def test_every_operation_is_differentiated():
    """The rules of all operations that a graph can hold are used by the tapes of this file."""
    used = {OPCODES[row[0]].name for row in OPERATIONS.tape.code}
    second = OPERATIONS.vjp.tape
    used |= {OPCODES[row[0]].name for row in second.code}
    no_rule = {"load_vector", "load_scalar", "constant", "unit", "store_scalar", "store_vector", "store_row"}
    assert {op.name for op in OPCODES} - no_rule <= used | {"vadd_scaled", "vsub_scaled"}


@pytest.mark.parametrize("name", WAVES)
def test_waves_by_differences(name):
    wave = WAVES[name]
    tangent = wave.jvp(*MOMENTA, tangents=TANGENTS)
    assert relative(tangent, difference(wave, MOMENTA, TANGENTS, 1e-4)) <= 1e-6
    pulled = wave.vjp(*MOMENTA, cotangent=COTANGENT)
    products = [g * t for g, t in zip(pulled, TANGENTS, strict=True)]
    size = np.sum(np.abs(products)) + np.sum(np.abs(tangent * COTANGENT))
    assert abs(np.sum(products) - np.sum(tangent * COTANGENT)) <= 1e-12 * size
    rows = np.concatenate(wave.jacobian(*MOMENTA), axis=2)
    assert relative(np.einsum("nab,nb->na", rows, np.concatenate(TANGENTS, axis=1)), tangent) <= 1e-11
    assert relative(np.einsum("na,nab->nb", COTANGENT, rows), np.concatenate(pulled, axis=1)) <= 1e-11


@pytest.mark.parametrize("name", WAVES)
def test_the_value_beside_a_gradient_has_the_bits_of_a_call(name):
    wave = WAVES[name]
    value, gradients = wave.value_and_vjp(*MOMENTA, cotangent=COTANGENT)
    assert np.array_equal(value, wave(*MOMENTA))
    for a, b in zip(gradients, wave.vjp(*MOMENTA, cotangent=COTANGENT), strict=True):
        assert_close(a, b, 1e-13)


def test_a_bundle_and_its_waves():
    bundle = fc.bundle(*waves.psi_phi_f)
    cotangents = rng.normal(size=(7, N, 4))
    total = bundle.vjp(*MOMENTA, cotangent=cotangents)
    for n, gradient in enumerate(total):
        parts = [w.vjp(*MOMENTA, cotangent=c)[n] for w, c in zip(waves.psi_phi_f, cotangents, strict=True)]
        assert relative(gradient, np.sum(parts, axis=0)) <= 1e-11
    value, again = bundle.value_and_vjp(*MOMENTA, cotangents)
    assert np.array_equal(value, bundle(*MOMENTA))
    assert relative(again[0], total[0]) <= 1e-12
    tangent = bundle.jvp(*MOMENTA, tangents=TANGENTS)
    assert tangent.shape == (7, N, 4)
    rows = bundle.jacobian(*MOMENTA)
    assert [r.shape for r in rows] == [(7, N, 4, 4)] * 4
    for n, wave in enumerate(waves.psi_phi_f):
        assert relative(tangent[n], wave.jvp(*MOMENTA, tangents=TANGENTS)) <= 1e-11
        assert relative(rows[2][n], wave.jacobian(*MOMENTA)[2]) <= 1e-11
    matrices = fc.bundle(fc.transverse, lambda p: fc.projector(1, p) * 2)
    c = rng.normal(size=(2, N, 4, 4))
    (gradient,) = matrices.vjp(MOMENTA[0], cotangent=c)
    single = fc.fused(fc.transverse).vjp(MOMENTA[0], cotangent=c[0] - 2 * c[1])[0]
    assert relative(gradient, single) <= 1e-12


# Structures, components, order


STRUCTURES = {
    "scalar": lambda p, r: fc.dot(p, r) ** 2,
    "vector": lambda p, r: fc.einsum("ab,b->a", fc.transverse(p), r),
    "matrix": lambda p, r: fc.orbital(2, p, r),
    "lower matrix": lambda p, r: fc.lower(fc.orbital(2, p, r)),
    "tuple": lambda p, r: (fc.dot(p, r), fc.orbital(2, p, r), p + r),
    "dict": lambda p, r: {"m": fc.transverse(p), "s": fc.sum(fc.dot(p, r)), "v": fc.sum(fc.dot(p, r) * p)},
}


def mapped(function, *values):
    if isinstance(values[0], tuple):
        return tuple(mapped(function, *parts) for parts in zip(*values, strict=True))
    if isinstance(values[0], dict):
        return {k: mapped(function, *(v[k] for v in values)) for k in values[0]}
    return function(*values)


def leaves(value):
    if isinstance(value, (tuple, dict)):
        return [x for part in (value.values() if isinstance(value, dict) else value) for x in leaves(part)]
    return [np.asarray(value)]


@pytest.mark.parametrize("components", [None, "xy", "Ezyx", "y"])
@pytest.mark.parametrize("order", ["xyzE", "Exyz"])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_structures_in_any_order_and_components(structure, order, components):
    function = fc.fused(STRUCTURES[structure], order=order, components=components)
    places = ["xyzE".index(c) for c in order]
    args = P[:, places], R[:, places]
    tangents = tuple(rng.normal(size=(2, N, 4)))
    value = function(*args)
    pushed = function.jvp(*args, tangents=tangents)
    cotangent = mapped(lambda v: rng.normal(size=v.shape), value)
    numeric = [difference(lambda *a, k=k: leaves(function(*a))[k], args, tangents) for k in range(len(leaves(value)))]
    for got, wanted in zip(leaves(pushed), numeric, strict=True):
        assert_close(got, wanted, 1e-9)
    pulled = function.vjp(*args, cotangent=cotangent)
    again, same = function.value_and_vjp(*args, cotangent=cotangent)
    for a, b in zip(leaves(again), leaves(value), strict=True):
        assert np.array_equal(a, b)
    wanted = sum(np.sum(a * b) for a, b in zip(leaves(pushed), leaves(cotangent), strict=True))
    for gradients in (pulled, same):
        products = [g * t for g, t in zip(gradients, tangents, strict=True)]
        assert abs(np.sum(products) - wanted) <= 1e-12 * np.sum(np.abs(products))


def test_jacobian_in_any_order():
    function = fc.fused(STRUCTURES["vector"])
    places = [3, 0, 1, 2]
    plain = function.jacobian(P, R)
    turned = function.jacobian(P[:, places], R[:, places], order="Exyz")
    for a, b in zip(plain, turned, strict=True):
        assert np.array_equal(a[:, places][:, :, places], b)
    with pytest.raises(ValueError, match="components are not chosen here"):
        function.jacobian(P, R, components="xy")


def test_jacobian_by_scalars_and_of_scalars():
    @fc.fused
    def f(p, w: fc.Scalar, *, k: fc.Scalar = 2.0):
        return {"v": p * (w * w * k), "s": fc.dot(p, p) * w}

    w = np.linspace(1, 2, N)
    got = f.jacobian(P, w)
    assert [x.shape for x in got["v"]] == [(N, 4, 4), (N, 4), (N, 4)]
    assert [x.shape for x in got["s"]] == [(N, 4), (N,), (N,)]
    assert_close(got["v"][0], np.eye(4) * (2 * w * w)[:, None, None], 1e-15)
    assert_close(got["v"][1], P * (4 * w)[:, None], 1e-15)
    assert_close(got["v"][2], P * (w * w)[:, None], 1e-15)
    assert_close(got["s"][0], 2 * P * [-1, -1, -1, 1] * w[:, None], 1e-15)
    assert_close(got["s"][1], np.einsum("na,na,a->n", P, P, [-1, -1, -1, 1]), 1e-13)
    assert not got["s"][2].any()
    with pytest.raises(TypeError, match="Jacobian of a tensor of rank 2 has rank 3"):
        fc.fused(fc.transverse).jacobian(P)
    with pytest.raises(TypeError, match="a summed output has none"):
        fc.fused(lambda p: fc.sum(p)).jacobian(P)


def test_columns_and_lists():
    function = fc.fused(STRUCTURES["vector"])
    wanted = function.vjp(P, R, cotangent=COTANGENT)
    columns = tuple(P.T), tuple(R.T)
    for cotangent in (COTANGENT, tuple(COTANGENT.T), COTANGENT.tolist(), np.asfortranarray(COTANGENT)):
        for a, b in zip(function.vjp(*columns, cotangent=cotangent), wanted, strict=True):
            assert np.array_equal(a, b)
    two = function.vjp(P, R, cotangent=COTANGENT[:, :2], components="xy")
    for cotangent in (tuple(COTANGENT.T[:2]), COTANGENT[:, :2].tolist()):
        for a, b in zip(function.vjp(P, R, cotangent=cotangent, components="xy"), two, strict=True):
            assert np.array_equal(a, b)


def test_a_cotangent_without_strides():
    function = fc.fused(STRUCTURES["vector"])
    ones = function.vjp(P, R, cotangent=np.ones((N, 4)))
    for cotangent in (np.broadcast_to(1.0, (N, 4)), np.ones(4), [1, 1, 1, 1], np.ones((1, 4))):
        for a, b in zip(function.vjp(P, R, cotangent=cotangent), ones, strict=True):
            assert np.array_equal(a, b)


def test_tangents_that_are_zero():
    function = fc.fused(STRUCTURES["tuple"])
    t = TANGENTS[0]
    for a, b in zip(
        function.jvp(P, R, tangents=(t, None)), function.jvp(P, R, tangents=(t, np.zeros((N, 4)))), strict=True
    ):
        assert np.array_equal(a, b)
    single = function.jvp(P.astype("f4"), R.astype("f4"), tangents=(None, t.astype("f4")))
    assert {x.dtype for x in single} == {np.dtype(np.float32)}


def test_float32():
    wave = waves.phif021
    single = [p.astype("f4") for p in MOMENTA]
    c = COTANGENT.astype("f4")
    got = wave.vjp(*single, cotangent=c)
    wanted = wave.vjp(*[p.astype("f8") for p in single], cotangent=c.astype("f8"))
    for a, b in zip(got, wanted, strict=True):
        assert a.dtype == np.float32
        assert np.array_equal(a, b.astype("f4"))
    shared = wave.vjp(single[0][0], *single[1:], cotangent=c)[0]
    assert (shared.dtype, shared.shape) == (np.float32, (4,))


def test_no_events():
    empty = [p[:0] for p in MOMENTA]
    value, gradients = waves.phif021.value_and_vjp(*empty, cotangent=np.empty((0, 4)))
    assert [x.shape for x in (value, *gradients)] == [(0, 4)] * 5
    shared = waves.phif021.vjp(MOMENTA[0][0], *empty[1:], cotangent=np.empty((0, 4)))
    assert np.array_equal(shared[0], np.zeros(4))
    one = waves.phif021.vjp(*[p[0] for p in MOMENTA], cotangent=COTANGENT[0])
    for a, b in zip(one, waves.phif021.vjp(*MOMENTA, cotangent=COTANGENT), strict=True):
        assert np.array_equal(a, b[0])


# What events share


def test_shared_inputs_get_the_sum():
    @fc.fused
    def f(p, r, w: fc.Scalar, *, k: fc.Scalar = 0.5):
        return fc.einsum("ab,b->a", fc.transverse(p), r) * (w * w + k)

    p = P[0]
    each = f.vjp(np.broadcast_to(p, (N, 4)), R, np.full(N, 1.5), cotangent=COTANGENT)
    shared = f.vjp(p, R, 1.5, cotangent=COTANGENT)
    assert [g.shape for g in shared] == [(4,), (N, 4), (), ()]
    assert_close(shared[0], each[0].sum(0), 1e-13)
    assert_close(shared[1], each[1], 1e-15)
    assert_close(shared[2], each[2].sum(), 1e-13)
    slope = np.sum(COTANGENT * (f(p, R, 1.5, k=1.5) - f(p, R, 1.5, k=0.5)))
    assert abs(shared[3] - slope) <= 1e-12 * abs(slope)
    rows = f.vjp(p[None], R, np.full((1,), 1.5), cotangent=COTANGENT)
    assert [g.shape for g in rows] == [(1, 4), (N, 4), (1,), ()]
    assert_close(rows[0][0], shared[0], 1e-13)


def test_a_shared_gradient_is_summed_by_the_tape():
    """No array of a gradient per event is made for it."""
    tape = derivative.vjp(waves.phif021.tape, [True] * 4, [True, False, False, False])
    assert [(o.kind, o.summed) for o in tape.outputs] == [("vector", True)] + [("vector", False)] * 3

    @fc.fused
    def f(p, *, k: fc.Scalar):
        return p * k

    assert [o.summed for o in f.vjp.tape.outputs] == [False, True]


def test_broadcast_inputs():
    f = fc.fused(STRUCTURES["vector"])
    p, r = P[:15].reshape(5, 3, 4), R[:3]
    c = rng.normal(size=(5, 3, 4))
    got = f.vjp(p, r, cotangent=c)
    each = f.vjp(p, np.broadcast_to(r, p.shape), cotangent=c)
    assert [g.shape for g in got] == [(5, 3, 4), (3, 4)]
    assert np.array_equal(got[0], each[0])
    assert_close(got[1], each[1].sum(0), 1e-14)
    got = f.vjp(p[:, :1], r, cotangent=c)
    each = f.vjp(np.broadcast_to(p[:, :1], p.shape), np.broadcast_to(r, p.shape), cotangent=c)
    assert got[0].shape == (5, 1, 4)
    assert_close(got[0], each[0].sum(1, keepdims=True), 1e-14)


def test_gradients_of_scalars_keep_their_shape():
    f = fc.fused(_weighted)
    numbers = list(range(1, N + 1))
    for w, shape in ((np.array(numbers), (N,)), (numbers, (N,)), (tuple(numbers), (N,)), (2.0, ())):
        assert f.vjp(P, w, cotangent=COTANGENT)[1].shape == shape


def _weighted(p, w: fc.Scalar):
    return p * (w * w)


# Higher orders


@pytest.mark.parametrize("name", ["phif021", "phif222", "u_DD_1"])
def test_second_order(name):
    wave = WAVES[name]
    directions = tuple(rng.normal(size=(4, N, 4)))
    second = wave.vjp.jvp(*MOMENTA, COTANGENT, tangents=(*directions, None))
    for k in range(4):
        wanted = difference(lambda *a: wave.vjp(*a, cotangent=COTANGENT)[k], MOMENTA, directions, 1e-4)  # noqa: B023
        assert relative(second[k], wanted) <= 1e-6
    by_reverse = wave.vjp.vjp(*MOMENTA, COTANGENT, cotangent=directions)
    for k in range(4):  # second derivatives are symmetric
        assert relative(by_reverse[k], second[k]) <= 1e-9
    assert relative(by_reverse[4], wave.jvp(*MOMENTA, tangents=directions)) <= 1e-11
    forward = wave.jvp.jvp(*MOMENTA, directions, tangents=(*TANGENTS, (None,) * 4))
    pulled = sum(np.sum(a * b) for a, b in zip(second, TANGENTS, strict=True))
    assert abs(np.sum(forward * COTANGENT) - pulled) <= 1e-9 * np.sum(np.abs(forward * COTANGENT))


def test_third_order():
    """Against differences of second derivatives, and by symmetry."""
    wave = PLAIN["phif201"]
    a, b, c = (tuple(rng.normal(size=(4, N, 4))) for _ in range(3))
    none = (None,) * 4

    def second(*momenta):
        return wave.jvp.jvp(*momenta, a, tangents=(*b, none))

    third = wave.jvp.jvp.jvp(*HEAVY, a, (*b, (np.zeros(4),) * 4), tangents=(*c, none, (*none, none)))
    wanted = difference(second, HEAVY, c, 1e-3)
    assert relative(third, wanted) <= 1e-6
    pulled = wave.vjp.vjp.vjp(*HEAVY, COTANGENT, a, cotangent=(*b, np.zeros((N, 4))))
    contracted = sum(np.sum(x * y) for x, y in zip(pulled[:4], c, strict=True))
    wanted = np.sum(third * COTANGENT)
    assert abs(contracted - wanted) <= 1e-8 * np.sum(np.abs(third * COTANGENT))


def test_derivatives_of_values_and_jacobians():
    f = fc.fused(STRUCTURES["vector"])
    t = TANGENTS[:2]
    value, gradients = f.value_and_vjp.jvp(P, R, COTANGENT, tangents=(*t, None))
    assert_close(value, f.jvp(P, R, tangents=t), 1e-14)
    for a, b in zip(gradients, f.vjp.jvp(P, R, COTANGENT, tangents=(*t, None)), strict=True):
        assert_close(a, b, 1e-12)
    pulled = f.value_and_vjp.vjp(P, R, COTANGENT, cotangent=(TANGENTS[2], t))
    wanted = f.vjp.vjp(P, R, COTANGENT, cotangent=t)
    extra = f.vjp(P, R, cotangent=TANGENTS[2])
    for n, gradient in enumerate(pulled):
        assert_close(gradient, wanted[n] + (extra[n] if n < 2 else 0), 1e-12)
    rows = f.jacobian.jvp(P, R, tangents=t)
    for k in range(2):
        assert_close(rows[k], difference(lambda *a: f.jacobian(*a)[k], (P, R), t), 1e-9)  # noqa: B023
    with pytest.raises(ValueError, match="components are not chosen in the derivative of a derivative"):
        f.vjp.vjp(P, R, COTANGENT[:, :2], cotangent=t, components="xy")


def test_second_order_with_shared_inputs():
    f = fc.fused(_weighted)
    w = 1.3
    gp, gw, gc = f.vjp.vjp(P, w, COTANGENT, cotangent=(TANGENTS[0], 0.7))
    # the gradients are (c w^2, 2 w sum c.p); contracted with (t, 0.7)
    assert_close(gp, 0.7 * 2 * w * COTANGENT, 1e-14)
    assert_close(gw, np.sum(2 * w * TANGENTS[0] * COTANGENT) + 0.7 * 2 * np.sum(COTANGENT * P), 1e-13)
    assert_close(gc, w * w * TANGENTS[0] + 0.7 * 2 * w * P, 1e-14)


# out, errors


def test_out():
    wave = waves.phif021
    gradients = tuple(np.full((N, 4), np.nan) for _ in MOMENTA)
    wave.vjp(*MOMENTA, cotangent=COTANGENT, out=gradients)
    for a, b in zip(gradients, wave.vjp(*MOMENTA, cotangent=COTANGENT), strict=True):
        assert np.array_equal(a, b)
    value = np.full((N, 4), np.nan)
    got, _ = wave.value_and_vjp(*MOMENTA, cotangent=COTANGENT, out=(value, gradients))
    assert got is value
    assert np.array_equal(value, wave(*MOMENTA))
    tangent = np.full((N, 4), np.nan)
    assert wave.jvp(*MOMENTA, tangents=TANGENTS, out=tangent) is tangent
    assert np.array_equal(tangent, wave.jvp(*MOMENTA, tangents=TANGENTS))
    stacked = np.full((2, N, 4), np.nan)
    both = fc.bundle(wave, waves.phif201)
    assert both.jvp(*MOMENTA, tangents=TANGENTS, out=stacked) is stacked
    assert np.array_equal(stacked[0], tangent)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda f: f.vjp(P, R), TypeError, r"f\.vjp\(\) is missing the argument 'cotangent'"),
        (lambda f: f.jvp(P, R), TypeError, r"f\.jvp\(\) is missing the argument 'tangents'"),
        (lambda f: f.vjp(P, cotangent=COTANGENT), TypeError, r"missing the argument 'r'"),
        (lambda f: f.vjp(P, R, COTANGENT, cotangent=COTANGENT), TypeError, "takes 2 positional arguments, not 3"),
        (lambda f: f.vjp(P, R, cotangent=COTANGENT, seed=1), ValueError, "unknown keyword 'seed'; known are p, r"),
        (lambda f: f.vjp(P, R, cotangent=COTANGENT[:3]), ValueError, r"cotangent: events of shape \(3,\) do not fit"),
        (lambda f: f.vjp(P, R, cotangent=COTANGENT[:, None]), ValueError, r"cotangent: events of shape \(20, 1\)"),
        (lambda f: f.vjp(P[0], R[0], cotangent=COTANGENT), ValueError, r"cotangent: events of shape \(20,\)"),
        (lambda f: f.vjp(P, R, cotangent=COTANGENT[:, :3]), ValueError, r"a 4-vector has shape \(\.\.\., 4\)"),
        (
            lambda f: f.vjp(P, R, cotangent=COTANGENT, components="xy"),
            ValueError,
            "cotangent: 4 components instead of 2",
        ),
        (lambda f: f.vjp(P, R, cotangent=1.0, components="xy"), ValueError, "cotangent: 0 components instead of 2"),
        (lambda f: f.vjp(P, R, cotangent=COTANGENT * 1j), TypeError, "cotangent 0: dtype complex128"),
        (lambda f: f.vjp(P, R, cotangent=None), TypeError, "cotangent 0: dtype object"),
        (lambda f: f.vjp(P, R[:4], cotangent=COTANGENT), ValueError, "do not broadcast"),
        (lambda f: f.jvp(P, R, tangents=P), ValueError, "tangents must be a tuple of 2"),
        (lambda f: f.jvp(P, R, tangents=None), ValueError, "tangents must be a tuple of 2"),
        (lambda f: f.jvp(P, R, tangents=(P,)), ValueError, "tangents must be a tuple of 2"),
        (lambda f: f.jvp(P, R, tangents=(P, R[:3])), ValueError, r"do not broadcast: .*tangent r \(3,\)"),
        (lambda f: f.jvp(P, R, tangents=(P, 1.0)), ValueError, "tangent r: a 4-vector has shape"),
        (lambda f: f.jvp(P, R, cotangent=P), TypeError, "missing the argument 'tangents'"),
    ],
)
def test_errors(call, error, words):
    def f(p, r):
        return STRUCTURES["vector"](p, r)

    with pytest.raises(error, match=words):
        call(fc.fused(f))


def test_errors_of_structures():
    several = fc.fused(lambda p: {"v": p, "m": fc.transverse(p), "s": fc.sum(fc.dot(p, p)), "t": fc.sum(p)})
    good = {"v": COTANGENT, "m": np.ones((N, 4, 4)), "s": 1.0, "t": np.ones(4)}
    assert several.vjp(P, cotangent=good)[0].shape == (N, 4)
    for changed, words in (
        ({"v": COTANGENT}, "must be a dict with the keys 'v', 'm', 's', 't'"),
        (good | {"m": COTANGENT}, r"cotangent\['m'\]: a tensor of rank 2 has shape \(\.\.\., 4, 4\), not \(20, 4\)"),
        (good | {"m": np.ones((N, 4, 3))}, r"cotangent\['m'\]: a tensor of rank 2"),
        (good | {"s": np.ones(N)}, r"that of a summed output has no events, but has shape \(20,\)"),
        (good | {"t": np.ones((N, 4))}, r"that of a summed output has no events, but has shape \(20,\)"),
    ):
        with pytest.raises(ValueError, match=words):
            several.vjp(P, cotangent=changed)
    bundle = fc.bundle(waves.phif001, waves.phif021)
    with pytest.raises(ValueError, match=r"must be an array whose first axis has length 2, not of shape \(20, 4\)"):
        bundle.vjp(*MOMENTA, cotangent=COTANGENT)


def test_a_light_like_parent_stays_in_its_event():
    kp, km = MOMENTA[0].copy(), MOMENTA[1].copy()
    kp[4], km[4] = [0, 0, 0.5, 0.5], [0, 0, 1, 1]
    spoiled = [kp, km, *MOMENTA[2:]]
    others = np.arange(N) != 4
    for got, wanted in (
        (waves.phif021.vjp(*spoiled, cotangent=COTANGENT), waves.phif021.vjp(*MOMENTA, cotangent=COTANGENT)),
        (waves.phif021.jacobian(*spoiled), waves.phif021.jacobian(*MOMENTA)),
    ):
        for a, b in zip(got, wanted, strict=True):
            assert not np.isfinite(a[4]).all()
            assert np.array_equal(a[others], b[others])


# Cost


def test_a_gradient_costs_a_few_calls():
    for wave in waves.all:
        assert wave.vjp.cost.flops <= 6 * wave.cost.flops
        both = wave.value_and_vjp.cost.flops
        assert both <= wave.vjp.cost.flops + 8
    assert fc.bundle(*waves.psi_phi_f).vjp.cost.flops <= 5 * fc.bundle(*waves.psi_phi_f).cost.flops


def test_derivative_tapes_are_made_once():
    wave = fc.fused(waves.phif021, barrier=False)
    assert wave.vjp.tape is wave.vjp.tape
    assert wave.vjp is wave.vjp
    assert fc.fused(wave, threads=1).vjp.tape is wave.vjp.tape


def test_derivative_tapes_run_as_they_say():
    inputs = [*MOMENTA, COTANGENT]
    for got, wanted in zip(waves.phif222.vjp(*inputs), evaluate(waves.phif222.vjp.tape, inputs), strict=True):
        assert np.array_equal(got, wanted)
