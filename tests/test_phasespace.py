"""The generator against kinematics and against phase-space integrals over other variables than its own."""

import numpy as np
import pytest

from fastcov.phasespace import KAON_MASS, PION_MASS, PSI2S_MASS, psi2s_kkpipi

NAMES = ("kp", "km", "pip", "pim")
MASSES = dict(zip(NAMES, (KAON_MASS, KAON_MASS, PION_MASS, PION_MASS), strict=True))
KOLMOGOROV = 1.95  # exceeded by sqrt(N) D with probability 1e-3


@pytest.fixture(scope="module")
def events():
    return dict(zip(NAMES, psi2s_kkpipi(100_000, seed=7), strict=True))


def mass(p):
    return np.sqrt(p[:, 3] ** 2 - np.sum(p[:, :3] ** 2, axis=1))


@pytest.mark.parametrize("name", NAMES)
def test_on_shell(events, name):
    p = events[name]
    assert p.shape == (100_000, 4)
    assert p.dtype == np.float64
    assert p.flags.c_contiguous
    eps = np.finfo(float).eps
    square = p[:, 3] ** 2 - np.sum(p[:, :3] ** 2, axis=1)
    assert np.all(np.abs(square - MASSES[name] ** 2) <= 4 * eps * p[:, 3] ** 2)


def test_energy_and_momentum_are_conserved(events):
    total = sum(events.values()) - [0, 0, 0, PSI2S_MASS]
    assert np.max(np.abs(total)) < 1e-13


@pytest.mark.parametrize("count", [0, 1, 2, 9_000, 40_000])
def test_fewer_events_are_the_beginning_of_the_same_sequence(events, count):
    for part, whole in zip(psi2s_kkpipi(count, seed=7), events.values(), strict=True):
        assert part.shape == (count, 4)
        assert np.array_equal(part, whole[:count])


def test_seeds_differ():
    assert not np.any(np.isclose(psi2s_kkpipi(100, seed=1)[0], psi2s_kkpipi(100, seed=2)[0], rtol=1e-9))
    assert np.array_equal(psi2s_kkpipi(3)[0], psi2s_kkpipi(3, seed=0)[0])


def test_bad_counts():
    with pytest.raises(ValueError, match="events = -1"):
        psi2s_kkpipi(-1)
    with pytest.raises(TypeError):
        psi2s_kkpipi(1.5)


def breakup(m, m1, m2):
    return np.sqrt(np.maximum((m**2 - (m1 + m2) ** 2) * (m**2 - (m1 - m2) ** 2), 0)) / (2 * m)


def middle(low, high, count):
    """Mid-points of `count` equal steps, on a new last axis."""
    low, high = np.asarray(low)[..., None], np.asarray(high)[..., None]
    return low + (high - low) * (np.arange(count) + 0.5) / count


def pair_density(m, first, second):
    """dPhi4/dm of a pair, the two others being the other pair."""
    others = [MASSES[n] for n in NAMES if n not in (first, second)]
    m = m[:, None]
    other = middle(np.full(len(m), sum(others)), PSI2S_MASS - m[:, 0], 1000)
    terms = breakup(PSI2S_MASS, m, other) * breakup(other, *others) * (PSI2S_MASS - m - sum(others))
    return breakup(m, MASSES[first], MASSES[second])[:, 0] * terms.mean(axis=1)


def triple_density(m, first, second, third):
    """dPhi4/dm of three particles, by the mass of the first two of them."""
    (other,) = (MASSES[n] for n in NAMES if n not in (first, second, third))
    m1, m2, m3 = MASSES[first], MASSES[second], MASSES[third]
    inner = middle(np.full(len(m), m1 + m2), m - m3, 1000)
    terms = breakup(m[:, None], inner, m3) * breakup(inner, m1, m2) * (m - m3 - m1 - m2)[:, None]
    return breakup(PSI2S_MASS, m, other) * terms.mean(axis=1)


def assert_distributed(sample, edges, density):
    """Kolmogorov-Smirnov against a density given in the middle of equal steps."""
    cumulative = np.concatenate([[0], np.cumsum(density)]) / np.sum(density)
    expected = np.interp(np.sort(sample), edges, cumulative)
    n = len(sample)
    distance = max(np.max(expected - np.arange(n) / n), np.max(np.arange(1, n + 1) / n - expected))
    assert np.sqrt(n) * distance < KOLMOGOROV


@pytest.mark.parametrize(
    "names",
    [
        *(("kp", "km"), ("pip", "pim"), ("kp", "pip"), ("km", "pip"), ("kp", "pim")),
        *(("kp", "km", "pip"), ("pip", "kp", "pim"), ("km", "pip", "kp")),
    ],
)
def test_mass_spectrum(events, names):
    low = sum(MASSES[n] for n in names)
    high = PSI2S_MASS - sum(MASSES[n] for n in NAMES if n not in names)
    density = (pair_density if len(names) == 2 else triple_density)(middle(low, high, 2000), *names)
    assert_distributed(mass(sum(events[n] for n in names)), np.linspace(low, high, 2001), density)


@pytest.mark.parametrize("name", NAMES)
def test_directions_are_isotropic(events, name):
    x, y, z, _ = events[name].T
    cosine, azimuth = z / np.sqrt(x**2 + y**2 + z**2), np.arctan2(y, x)
    assert_distributed(cosine, [-1, 1], [1])
    assert_distributed(azimuth, [-np.pi, np.pi], [1])
