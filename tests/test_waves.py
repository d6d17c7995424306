"""The catalogue: values of an independent analysis code, exact arithmetic, angular distributions, cost."""

from fractions import Fraction

import exact
import numpy as np
import pytest
import tape_exact
from numpy.polynomial.legendre import Legendre

import fastcov as fc
from fastcov import reference, waves
from fastcov.opcodes import OPCODES
from fastcov.phasespace import KAON_MASS, PION_MASS, PSI2S_MASS, psi2s_kkpipi

EPS = 2.0**-52
ALL = {w.__name__: w for w in waves.all}
EVENTS = psi2s_kkpipi(1000, seed=3)


def worst(got, wanted):
    """Largest deviation, in units of each event's largest component."""
    return np.max(np.abs(got - wanted) / np.max(np.abs(wanted), axis=-1, keepdims=True))


def mass(*momenta):
    total = sum(momenta)
    return np.sqrt(reference.dot(total, total))


@pytest.fixture(scope="module")
def threshold_events():
    """Ten events above, ten within 1 MeV of the pi pi threshold."""
    rng = np.random.default_rng(12)
    directions = rng.normal(size=(3, 10, 3))
    directions /= np.linalg.norm(directions, axis=-1, keepdims=True)
    low = chain(*directions, f_mass=2 * PION_MASS + np.geomspace(1e-6, 0.9e-3, 10)[:, None])
    assert np.all(mass(*low[2:]) - 2 * PION_MASS < 1e-3)
    return [np.concatenate([p[:10], q]) for p, q in zip(EVENTS, low, strict=True)]


# Values


def test_names():
    assert len(waves.all) == 17
    assert set(waves.all) == {*waves.psi_phi_f, *waves.psi_b1_pi, *waves.psi_rho_pi}
    assert set(ALL) == set(reference.waves)
    for wave in (*waves.all, waves.phif4):
        assert getattr(waves, wave.__name__) is wave
        assert "eq. (" in wave.__doc__ or wave is waves.phif4
        assert [p.name for p in wave.parameters] == ["kp", "km", "pip", "pim", "q0", "barrier"]
    assert "No published formula" in waves.phif4.__doc__


@pytest.mark.parametrize("name", ALL)
def test_against_the_independent_code(name, pwacg, event_momenta):
    assert worst(ALL[name](*event_momenta), pwacg[name]) <= 1e-11


def test_bundle_against_the_independent_code(pwacg, event_momenta):
    for got, wave in zip(fc.bundle(*waves.all)(*event_momenta), waves.all, strict=True):
        assert worst(got, pwacg[wave.__name__]) <= 1e-11


def test_phif243_times_its_barriers(pwacg, event_momenta):
    """Without barrier factors, times the three of the reference."""
    kp, km, pip, pim = event_momenta
    value = waves.phif243(*event_momenta, barrier=False)
    for L, b, c in ((4, kp + km, pip + pim), (1, kp, km), (2, pip, pim)):
        q2 = reference.breakup2(*(reference.dot(p, p) for p in (b + c, b, c)))
        value = value * reference.barrier(L, q2, 0.197321)[:, None]
    assert worst(value, pwacg["phif243"]) <= 1e-11


@pytest.mark.parametrize("barrier", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_against_the_reference(name, barrier):
    momenta = [p[:200] for p in EVENTS]
    for q0 in (fc.Q0["pwacg"], 0.3):
        got = ALL[name](*momenta, q0=q0, barrier=barrier)
        assert worst(got, reference.waves[name](*momenta, q0=float(q0), barrier=barrier)) <= 1e-11


def test_f4():
    kp, km, pip, pim = momenta = [p[:100] for p in EVENTS]
    t = [reference.decay(4, pip, pim), reference.decay(2, kp + km, pip + pim), reference.decay(1, kp, km)]
    assert worst(waves.phif4(*momenta, barrier=False), reference.einsum("mnls,nl,s->m", *t)) <= 1e-11
    q0 = reference.Q0
    t = [reference.decay(4, pip, pim, q0), reference.decay(2, kp + km, pip + pim, q0), reference.decay(1, kp, km, q0)]
    assert worst(waves.phif4(*momenta), reference.einsum("mnls,nl,s->m", *t)) <= 1e-11


@pytest.mark.parametrize("options", [{}, {"barrier": False}, {"q0": 0.4}, {"components": "xy"}])
def test_a_bundle_has_the_bits_of_its_waves(options):
    momenta = [p[:500] for p in EVENTS]
    for members in (
        waves.all,
        waves.psi_phi_f,
        waves.all[::-1],
        (waves.u_rho_2, waves.phif223),
        (waves.phif4, *waves.all),
    ):
        got = fc.bundle(*members)(*momenta, **options)
        for wave, values in zip(members, got, strict=True):
            assert np.array_equal(values, wave(*momenta, **options)), wave.__name__


def test_swapped_waves():
    kp, km, pip, pim = (p[:50] for p in EVENTS)
    for name in ("u_SS", "u_SD", "u_DS", "u_DD", "u_rho"):
        one, other = (getattr(waves, f"{name}_{n}") for n in (1, 2))
        for barrier in (True, False):
            swapped = one(kp, km, pim, pip, barrier=barrier)
            assert worst(other(kp, km, pip, pim, barrier=barrier), swapped) <= 1e-12
        assert worst(other(kp, km, pip, pim), one(kp, km, pip, pim)) > 1e-3


def test_barrier_scale():
    momenta = [p[:50] for p in EVENTS]
    for name in fc.Q0:
        assert worst(waves.phif243(*momenta, q0=name), waves.phif243(*momenta, q0=float(fc.Q0[name]))) <= 1e-13
    assert np.array_equal(waves.phif243(*momenta), waves.phif243(*momenta, q0="pwacg"))
    for bad in (0, -1.0, "fermi"):
        with pytest.raises(ValueError, match="q0 must be"):
            waves.phif243(*momenta, q0=bad)


def test_momenta_in_mev():
    """Nothing but the default q0 knows the unit: in MeV, phif243 is 1000^7 times what it is, without its barriers."""
    momenta = [p[:50] for p in EVENTS]
    in_mev = [1000 * p for p in momenta]
    assert worst(waves.phif243(*in_mev, barrier=False), 1e21 * waves.phif243(*momenta, barrier=False)) <= 1e-11
    assert worst(waves.phif243(*in_mev, q0=197.321), waves.phif243(*momenta, q0=0.197321)) <= 1e-11


def test_a_floating_scale_has_a_gradient():
    @fc.fused
    def wave(kp, km, pip, pim, *, q0: fc.Scalar = 0.197321):
        return waves.phif021(kp, km, pip, pim, q0=q0)

    momenta = [p[:50] for p in EVENTS]
    assert worst(wave(*momenta), waves.phif021(*momenta)) <= 1e-14
    cotangent = np.random.default_rng(0).normal(size=(50, 4))
    *_, slope = wave.vjp(*momenta, cotangent=cotangent)
    step = 1e-5
    up, down = (np.sum(cotangent * wave(*momenta, q0=0.197321 + s * step)) for s in (1, -1))
    assert slope.shape == ()
    assert abs((up - down) / (2 * step) - slope) <= 1e-7 * abs(slope)


# Accuracy


@pytest.mark.parametrize("name", ["phif243", "phif201"])
def test_error_against_exact_arithmetic(name, threshold_events):
    """At most 4 eps times the condition number: the problem's own sensitivity to its 16 inputs."""
    got = ALL[name](*threshold_events, barrier=False)
    for n, values in enumerate(got):
        wanted = getattr(exact, name)(*(p[n] for p in threshold_events))
        error = max(abs(Fraction(float(x)) - y) for x, y in zip(values, wanted.value, strict=True))
        assert error <= 4 * Fraction(EPS) * wanted.condition()


@pytest.mark.parametrize("name", ["phif243", "phif201"])
def test_the_tape_is_exactly_the_formula(name, threshold_events):
    tape = fc.fused(ALL[name], barrier=False).tape
    for n in (0, 10):
        event = [p[n] for p in threshold_events]
        assert tape_exact.evaluate(tape, event)[0].tolist() == getattr(exact, name)(*event).value


@pytest.mark.parametrize("name", ALL)
def test_float32_storage_is_float64_arithmetic(name, threshold_events):
    """The float64 result of the same inputs, rounded: half an ulp, also near threshold."""
    single = [p.astype(np.float32) for p in threshold_events]
    got = ALL[name](*single)
    assert got.dtype == np.float32
    with np.errstate(over="ignore"):
        assert np.array_equal(got, ALL[name](*[p.astype(np.float64) for p in single]).astype(np.float32))


def test_float32_arithmetic_is_much_worse(threshold_events):
    """Why it is not the default."""
    single = [p.astype(np.float32) for p in threshold_events]
    got = waves.phif243(*single, compute="float32", barrier=False)
    wanted = waves.phif243(*single, barrier=False)
    error = np.max(np.abs(got - wanted) / np.max(np.abs(wanted), axis=1, keepdims=True), axis=1)
    assert 1e-3 < np.max(error[10:]) < 1
    assert np.max(error[:10]) < 1e-2


# Angular distributions


def two_body(parent, first, second, direction):
    """Momenta of a decay at rest; `direction` (N, 3) is that of the first."""
    q = np.sqrt((parent**2 - (first + second) ** 2) * (parent**2 - (first - second) ** 2)) / (2 * parent)
    energies = (np.broadcast_to(np.sqrt(q * q + m * m), (len(direction), 1)) for m in (first, second))
    return [np.hstack([sign * q * direction, energy]) for sign, energy in zip((1, -1), energies, strict=True)]


def boosted(p, frame, parent):
    """p from the rest frame of `parent`, whose momentum is `frame`."""
    space, energy = frame[:, :3], frame[:, 3:]
    along = np.sum(p[:, :3] * space, axis=1, keepdims=True)
    moved = p[:, :3] + space * (along / (energy + parent) + p[:, 3:]) / parent
    return np.column_stack([moved, (p[:, 3:] * energy + along) / parent])


def unit(cosine, azimuth=0.0):
    sine = np.sqrt(1 - np.square(cosine))
    return np.stack(np.broadcast_arrays(sine * np.cos(azimuth), sine * np.sin(azimuth), cosine), axis=-1)


PHI, F = 1.0195, 1.27


def chain(kaon, pion, flight=None, f_mass=F):
    """psi -> phi f along z, or `flight`, with the kaon and the pion in these directions of their parents' frames."""
    flight = np.broadcast_to([0.0, 0, 1], kaon.shape) if flight is None else flight
    phi, f = two_body(PSI2S_MASS, PHI, f_mass, flight)
    kp, km = (boosted(p, phi, PHI) for p in two_body(PHI, KAON_MASS, KAON_MASS, kaon))
    pip, pim = (boosted(p, f, f_mass) for p in two_body(f_mass, PION_MASS, PION_MASS, pion))
    return kp, km, pip, pim


def intensity(wave, *momenta):
    """Summed over the two spin projections of the psi on the beam, the z axis."""
    return np.sum(wave(*momenta)[:, :2] ** 2, axis=1)


COSINES = np.linspace(-0.99, 0.99, 41)


def fixed(direction):
    return np.broadcast_to(direction, (len(COSINES), 3))


@pytest.mark.parametrize("name", ["phif001", "phif021"])
def test_f0_waves_are_flat_in_the_pion_angle(name):
    for flight in ([0, 0, 1.0], [0.6, 0, 0.8]):
        momenta = chain(fixed(unit(0.3, 1.0)), unit(COSINES, 0.4), fixed(flight))
        values = intensity(ALL[name], *momenta)
        assert np.ptp(values) <= 1e-10 * np.max(values)


def test_s_wave_f0_follows_the_kaon():
    """t1 is the kaon's direction: transverse to the beam sin^2, for a phi along z."""
    values = intensity(waves.phif001, *chain(unit(COSINES), fixed(unit(0.2)), None))
    shape = 1 - COSINES**2
    assert np.max(np.abs(values / values[20] - shape / shape[20])) <= 1e-10


def gammas():
    q = np.sqrt((PSI2S_MASS**2 - (PHI + F) ** 2) * (PSI2S_MASS**2 - (PHI - F) ** 2)) / (2 * PSI2S_MASS)
    return np.hypot(q / PHI, 1), np.hypot(q / F, 1)


def test_f2_in_s_wave_is_a_sum_over_helicities():
    """phif201, psi at rest, phi and f along z: t2^{mn} t1_n in the helicity frames.

    With unit directions k and n of kaon and pion in their parents' frames, boosts along z multiply z components by
    gamma and add energies gamma beta; so A_i = n_i (n_perp k_perp + G n_z k_z) - (k_i) / 3 for i = x, y, with
    G = gamma_f gamma_phi (1 + beta_f beta_phi): Wigner functions d^2_{m0}(pion) d^1_{m0}(kaon) with m = -1, 0, 1.
    """
    gamma_phi, gamma_f = gammas()
    boost = gamma_phi * gamma_f + np.sqrt((gamma_phi**2 - 1) * (gamma_f**2 - 1))
    rng = np.random.default_rng(1)
    kaon, pion = (
        unit(rng.uniform(-1, 1, 200), rng.uniform(0, 6, 200)),
        unit(rng.uniform(-1, 1, 200), rng.uniform(0, 6, 200)),
    )
    product = np.sum(pion[:, :2] * kaon[:, :2], axis=1) + boost * pion[:, 2] * kaon[:, 2]
    wanted = pion[:, :2] * product[:, None] - kaon[:, :2] / 3
    got = waves.phif201(*chain(kaon, pion), barrier=False)[:, :2]
    scale = np.sum(got * wanted) / np.sum(wanted * wanted)
    assert np.max(np.abs(got / scale - wanted)) <= 1e-10 * np.max(np.abs(wanted))


@pytest.mark.parametrize(
    ("kaon", "shape"),
    [
        (unit(1.0), COSINES**2 * (1 - COSINES**2)),  # helicity 0 of the phi leaves +-1 to the f: |d^2_10|^2
        (unit(0.0, 0.7), (1 - COSINES**2 - 1 / 3) ** 2),  # helicities +-1, in the plane of the pion: d^2_20 and d^2_00
    ],
)
def test_wigner_functions_of_the_pion(kaon, shape):
    values = intensity(waves.phif201, *chain(fixed(kaon), unit(COSINES, 0.7)))
    assert np.max(np.abs(values * np.max(shape) / np.max(values) - shape)) <= 1e-10


@pytest.mark.parametrize("spin", [1, 2, 3, 4])
def test_orbital_tensors_of_a_decay_are_legendre_polynomials(spin):
    """t~(psi; phi, f) . t~(f; pi, pi) of a state that decays at rest: P_L of the angle between the two."""
    letters = "abcd"[:spin]

    @fc.fused
    def amplitude(parent, flight, first, second):
        T, t = fc.orbital(spin, parent, flight), fc.orbital(spin, parent, first - second)
        return fc.einsum(f"{letters},{letters}->", T, t)

    first, second = two_body(F, PION_MASS, PION_MASS, unit(COSINES))
    values = amplitude(first + second, np.array([0.0, 0, 1, 0]), first, second)
    shape = Legendre.basis(spin)(COSINES)
    scale = values[-1] / shape[-1]
    assert np.max(np.abs(values / scale - shape)) <= 1e-10
    assert np.sign(scale) == (-1) ** spin


@pytest.mark.parametrize("name", [*ALL, "phif4"])
def test_rotations(name):
    """Rotating all momenta rotates the amplitude's space part and keeps its energy part."""
    rng = np.random.default_rng(6)
    rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    rotation *= np.sign(np.linalg.det(rotation))
    full = np.eye(4)
    full[:3, :3] = rotation
    momenta = [p[:100] for p in EVENTS]
    wave = getattr(waves, name)
    assert worst(wave(*[p @ full.T for p in momenta]), wave(*momenta) @ full.T) <= 1e-11


@pytest.mark.parametrize("name", [*ALL, "phif4"])
def test_parity(name):
    """Reflecting all momenta turns over a vector's space part; no wave is an axial vector (epsilons come in pairs)."""
    momenta = [p[:100] for p in EVENTS]
    wave = getattr(waves, name)
    turned = [p * [-1, -1, -1, 1] for p in momenta]
    assert np.array_equal(wave(*turned), wave(*momenta) * [-1, -1, -1, 1])


@pytest.mark.parametrize(
    "name", ["phif021", "phif221", "phif222", "phif223", "phif243", "u_DS_1", "u_DD_2", "u_rho_1", "u_rho_2"]
)
def test_transverse_to_the_psi(name):
    """Waves whose free index is one of a tensor of the psi."""
    momenta = [p[:100] for p in EVENTS]
    values, psi = ALL[name](*momenta), sum(momenta)
    size = np.max(np.abs(values), axis=1) * np.max(np.abs(psi), axis=1)
    assert np.all(np.abs(reference.dot(values, psi)) <= 1e-11 * size)


# Cost


def test_flops():
    assert waves.phif222.cost.flops <= 750
    assert waves.phif223.cost.flops <= 550
    assert fc.bundle(*waves.all).cost.flops <= 2000
    seven = fc.bundle(*waves.psi_phi_f).cost.flops
    assert seven <= 0.5 * sum(w.cost.flops for w in waves.psi_phi_f)


def test_a_bundle_has_no_operation_twice():
    """No two operations of the tape compute the same from the same operands."""
    tape = fc.bundle(*waves.all).tape
    values = {}
    seen = set()
    for number, *row in tape.code:
        op = OPCODES[number]
        if not op.result:
            continue
        operands = [values[kind, x] if kind in "vs" else x for kind, x in zip(op.operands, row[1:], strict=True)]
        if op.name in ("add", "mul", "vadd", "dot"):
            operands.sort(key=repr)
        operation = (op.name, *operands)
        assert operation not in seen, op.name
        seen.add(operation)
        values[op.result, row[0]] = hash(operation)
