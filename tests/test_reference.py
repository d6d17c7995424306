"""The dense reference against the properties that define its tensors, and against values computed by others."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.polynomial.legendre import Legendre

from fastcov import reference

DATA = Path(__file__).parent / "data"
EPS = np.finfo(float).eps
TERMS = 200  # rounding errors that may add up

WAVES = [
    *("phif001", "phif021", "phif201", "phif221", "phif222", "phif223", "phif243"),
    *(f"u_{name}_{which}" for name in ("rho", "SS", "SD", "DS", "DD") for which in (1, 2)),
]


def time_like(rng, count):
    mass = rng.uniform(0.3, 3, (count, 1))
    momentum = rng.normal(size=(count, 3))
    energy = np.sqrt(mass**2 + np.sum(momentum**2, axis=-1, keepdims=True))
    return np.concatenate([momentum, energy], axis=-1)


def space_like(rng, count):
    p = time_like(rng, count)
    return np.concatenate([p[:, 3:], p[:, 1:3], 0.5 * p[:, :1]], axis=-1)


def negative_energy(rng, count):
    return -time_like(rng, count)


def at_rest(rng, count):
    return [0, 0, 0, 1] * rng.uniform(0.3, 3, (count, 1)) * rng.choice([-1, 1], (count, 1))


MOMENTA = {
    "time-like": time_like,
    "space-like": space_like,
    "negative energy": negative_energy,
    "at rest": at_rest,
}


@pytest.fixture
def rng():
    return np.random.default_rng(20)


def assert_contraction(got, wanted, spec, *tensors):
    """`got`, being einsum(spec, *tensors), is `wanted` up to rounding, relative to the event's largest sum of terms."""
    terms = reference.einsum(spec, *(np.abs(t) for t in tensors), metric=np.eye(4))
    components = tuple(range(1, terms.ndim))
    assert np.all(np.max(np.abs(got - wanted), axis=components) <= TERMS * EPS * np.max(terms, axis=components))


def assert_close(got, wanted, rank, tolerance):
    """Equal within a tolerance relative to each event's largest component."""
    axes = tuple(range(-rank, 0))
    assert got.shape == wanted.shape
    error = np.max(np.abs(got - wanted), axis=axes) / np.max(np.abs(wanted), axis=axes)
    assert np.max(error) <= tolerance


def test_metric_and_lower():
    assert np.array_equal(reference.metric(), np.diag([-1, -1, -1, 1]))
    tensor = np.arange(32.0).reshape(2, 4, 4)
    assert np.array_equal(reference.lower(tensor, 2), reference.metric() @ tensor @ reference.metric())
    assert reference.dot([1, 2, 3, 10], [4, 5, 6, 7]) == 70 - 4 - 10 - 18


def test_einsum_contracts_with_the_metric(rng):
    g = reference.metric()
    a, b, v = rng.normal(size=(3, 4, 4)), rng.normal(size=(4, 4)), rng.normal(size=(3, 4))
    np.testing.assert_allclose(reference.einsum("ij,jk,k->i", a, b, v), (a @ g @ b @ g @ v[..., None])[..., 0])
    np.testing.assert_allclose(reference.einsum("ii->", a), np.trace(a @ g, axis1=1, axis2=2))
    np.testing.assert_allclose(reference.einsum("ij,j->i", a, v, metric=None), (a @ v[..., None])[..., 0])
    assert np.array_equal(reference.einsum("ij->ji", a), np.swapaxes(a, 1, 2))


@pytest.mark.parametrize("kind", MOMENTA)
def test_polarisation_vectors(rng, kind):
    p = MOMENTA[kind](rng, 50)
    e = reference.polarisations(p)
    signs = np.diag(reference.metric())
    for got, wanted, other in (
        ((e * signs) @ np.swapaxes(e, -1, -2), -np.eye(3), e),
        ((e * signs) @ p[..., None], 0, p[:, None]),
    ):
        assert np.all(np.abs(got - wanted) <= TERMS * EPS * (np.abs(e) @ np.swapaxes(np.abs(other), -1, -2)))


@pytest.mark.parametrize("L", range(7))
def test_spin_states_are_orthonormal_symmetric_and_traceless(L):
    states = reference.spin_states(L)
    flat = states.reshape(2 * L + 1, -1)
    np.testing.assert_allclose(flat @ flat.T, np.eye(2 * L + 1), atol=20 * EPS)
    for i, j in pairwise(range(1, L + 1)):
        np.testing.assert_allclose(states, np.swapaxes(states, i, j), atol=20 * EPS)
    if L > 1:
        np.testing.assert_allclose(np.trace(states, axis1=1, axis2=2), 0, atol=20 * EPS)


@pytest.mark.parametrize("kind", MOMENTA)
@pytest.mark.parametrize("L", range(1, 5))
def test_projector(rng, L, kind):
    p = MOMENTA[kind](rng, 50 if kind == "time-like" else 5)
    left, right, other = "abcd"[:L], "efgh"[:L], "ijkl"[:L]
    for one in p.reshape(-1, 5, 4):
        P = reference.projector(L, one)
        assert P.shape == (5,) + (4,) * (2 * L)

        square = f"{left}{right},{right}{other}->{left}{other}"
        assert_contraction(reference.einsum(square, P, P), (-1) ** L * P, square, P, P)
        trace = f"{left}{left}->"
        assert_contraction(reference.einsum(trace, P), (-1) ** L * (2 * L + 1), trace, P)
        along = f"{left}{right},a->{left[1:]}{right}"
        assert_contraction(reference.einsum(along, P, one), 0, along, P, one)
        for i, j in pairwise(range(1, L + 1)):
            assert_close(np.swapaxes(P, i, j), P, 2 * L, TERMS * EPS)
        assert_close(reference.einsum(f"{left}{right}->{right}{left}", P), P, 2 * L, TERMS * EPS)
        if L > 1:
            pair = f"aa{left[2:]}{right}->{left[2:]}{right}"
            assert_contraction(reference.einsum(pair, P), 0, pair, P)


@pytest.mark.parametrize("kind", MOMENTA)
def test_projectors_of_spin_1_and_2_have_the_closed_form(rng, kind):
    p = MOMENTA[kind](rng, 50)
    gt = reference.transverse(p)
    assert_close(reference.projector(1, p), -gt, 2, TERMS * EPS)
    mixed = np.einsum("nac,nbd->nabcd", gt, gt) + np.einsum("nad,nbc->nabcd", gt, gt)
    assert_close(reference.projector(2, p), mixed / 2 - np.einsum("nab,ncd->nabcd", gt, gt) / 3, 4, TERMS * EPS)


@pytest.mark.parametrize("kind", MOMENTA)
@pytest.mark.parametrize("L", range(6))
def test_orbital_is_the_projection_of_r(rng, L, kind):
    p, r = MOMENTA[kind](rng, 3), rng.normal(size=(3, 4))
    free, summed = "abcde"[:L], "ijklm"[:L]
    spec = ",".join([free + summed, *summed]) + "->" + free
    tensors = reference.projector(L, p), *[r] * L
    wanted = (-1) ** L * reference.einsum(spec, *tensors)
    assert_contraction(reference.orbital(L, p, r), wanted, spec, *tensors)


@pytest.mark.parametrize("kind", MOMENTA)
@pytest.mark.parametrize("L", range(1, 7))
def test_orbitals_contract_to_legendre_polynomials(rng, L, kind):
    """t~(r).t~(k) = L!/(2L-1)!! N^L P_L(r~.k~ / N) with N^2 = r~^2 k~^2; at rest N = -|r||k| and r~.k~ / N = cos."""
    p, r, k = MOMENTA[kind](rng, 50), rng.normal(size=(50, 4)), rng.normal(size=(50, 4))
    tensors = reference.orbital(L, p, r), reference.orbital(L, p, k)
    r, k = (reference.einsum("mn,n->m", reference.transverse(p), x) for x in (r, k))
    norm = np.sqrt(reference.dot(r, r) + 0j) * np.sqrt(reference.dot(k, k) + 0j)
    factor = math.factorial(L) / math.prod(range(1, 2 * L, 2))
    wanted = (factor * norm**L * Legendre.basis(L)(reference.dot(r, k) / norm)).real
    letters = "abcdef"[:L]
    spec = f"{letters},{letters}->"
    assert_contraction(reference.einsum(spec, *tensors), wanted, spec, *tensors)


@pytest.mark.parametrize("L", range(1, 5))
def test_boost_covariance(rng, L):
    p, r = time_like(rng, 50), rng.normal(size=(50, 4))
    boost = lorentz_transformation(rng)
    letters, new = "abcd"[:L], "ijkl"[:L]
    spec = ",".join([letters] + [n + a for n, a in zip(new, letters, strict=True)]) + "->" + new
    transformed = reference.einsum(spec, reference.orbital(L, p, r), *[boost] * L, metric=None)
    assert_close(reference.orbital(L, p @ boost.T, r @ boost.T), transformed, L, 1e-12)


def lorentz_transformation(rng):
    rotation = np.eye(4)
    rotation[:3, :3] = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    gamma = 1.5
    boost = np.eye(4)
    boost[2:, 2:] = [[gamma, math.sqrt(gamma**2 - 1)], [math.sqrt(gamma**2 - 1), gamma]]
    return rotation @ boost


def test_levi_civita():
    epsilon = reference.levi_civita()
    assert epsilon[0, 1, 2, 3] == 1
    assert np.count_nonzero(epsilon) == 24
    for i, j in pairwise(range(4)):
        assert np.array_equal(np.swapaxes(epsilon, i, j), -epsilon)


@pytest.mark.parametrize("L", range(5))
def test_barrier_is_the_ratio_of_bessel_polynomials(L):
    """B_L^2 = D(1) / (q0^2L D(Q^2/q0^2)), D(z^2) = |theta_L(iz)|^2, theta_L the reverse Bessel polynomial."""
    theta = np.polynomial.Polynomial(
        [
            math.factorial(2 * L - n) // (math.factorial(L - n) * math.factorial(n) * 2 ** (L - n)) * 1j**n
            for n in range(L + 1)
        ]
    )
    q2, q0 = np.array([0.0, 0.01, 0.3, 4.0]), 0.197321
    wanted = abs(theta(1)) / (q0**L * abs(theta(np.sqrt(q2) / q0)))
    np.testing.assert_allclose(reference.barrier(L, q2, q0), wanted, rtol=20 * EPS)
    np.testing.assert_allclose(reference.barrier(L, q0**2, q0), q0**-L, rtol=20 * EPS)


def test_breakup2_is_the_daughters_momentum():
    q, mb, mc = np.array([0.0, 0.1, 1.5]), 0.5, 0.14
    sa = (np.sqrt(mb**2 + q**2) + np.sqrt(mc**2 + q**2)) ** 2
    np.testing.assert_allclose(reference.breakup2(sa, mb**2, mc**2), q**2, atol=20 * EPS)


@pytest.fixture(scope="module")
def pwacg():
    with np.load(DATA / "psi2s_kkpipi.npz") as data:
        return dict(data)


def test_the_waves_are_those_of_the_file(pwacg):
    assert set(reference.waves) == set(WAVES) == set(pwacg) - {"kp", "km", "pip", "pim"}


@pytest.mark.parametrize("name", WAVES)
def test_wave_agrees_with_pwacg(pwacg, name):
    got = reference.waves[name](pwacg["kp"], pwacg["km"], pwacg["pip"], pwacg["pim"])
    assert_close(got, pwacg[name], 1, 1e-11)


@pytest.mark.parametrize("name", WAVES)
def test_waves_broadcast(pwacg, name):
    kp, km, pip, pim = (pwacg[p][:4] for p in ("kp", "km", "pip", "pim"))
    grid = reference.waves[name](kp[:, None], km[:, None], pip[0], pim)
    assert grid.shape == (4, 4, 4)
    assert_close(grid[2, 3], reference.waves[name](kp[2], km[2], pip[0], pim[3]), 1, 1e-11)


def test_waves_without_barriers(pwacg):
    kp, km, pip, pim = (pwacg[p] for p in ("kp", "km", "pip", "pim"))
    phi, f = kp + km, pip + pim
    bare = reference.waves["phif243"](kp, km, pip, pim, barrier=False)
    assert_close(reference.phif243_six(phi + f, phi - f, phi, kp - km, f, pip - pim), bare, 1, TERMS * EPS)
    q0 = 0.25
    factor = math.prod(
        reference.barrier(L, reference.breakup2(*(reference.dot(x, x) for x in (b + c, b, c))), q0)
        for L, b, c in ((4, phi, f), (1, kp, km), (2, pip, pim))
    )
    assert_close(reference.waves["phif243"](kp, km, pip, pim, q0=q0), factor[:, None] * bare, 1, TERMS * EPS)


@pytest.fixture(scope="module")
def posted():
    with np.load(DATA / "posted.npz") as data:
        return dict(data)


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        *((name, 1e-12) for name in ("Gt_con", "Gt_cov", "P4", "T1_cov", "T2_cov")),
        *((name, 1e-11) for name in ("T4_cov", "phif243")),
    ],
)
def test_posted_function(posted, name, tolerance):
    wanted = posted[name]
    a, r = posted["a"][: len(wanted)], posted["r"][: len(wanted)]
    function = reference.posted[name]
    got = function(a) if name in ("Gt_con", "Gt_cov", "P4") else function(a, r)
    assert_close(got, wanted, wanted.ndim - 1, tolerance)


def test_posted_t4_contracts_the_posted_p4(posted):
    a, r = posted["a"][:2], posted["r"][:2]
    wanted = reference.einsum("ijklmnop,m,n,o,p->ijkl", reference.posted_p4(a), r, r, r, r, metric=None)
    assert_close(reference.posted_t4_cov(a, r), wanted, 4, 1e-12)


def test_posted_r_defaults_to_a(posted):
    a = posted["a"]
    assert np.array_equal(reference.posted_phif243(a), reference.posted_phif243(a, a))
    assert np.max(np.abs(reference.posted_t1_cov(a))) < TERMS * EPS * np.max(np.abs(reference.posted_gt_cov(a)))
