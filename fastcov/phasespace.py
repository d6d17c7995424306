"""Phase-space events psi(2S) -> K+ K- pi+ pi-: every point of the four-body phase space equally likely."""

from operator import index

import numpy as np
import numpy.typing as npt

# GeV. Kaon and pion: Particle Data Group, Review of Particle Physics (2022). The psi(2S) at the rounded value that
# amplitude analyses of this channel generate at (the Review has 3.68610).
PSI2S_MASS = 3.686
KAON_MASS = 0.493677
PION_MASS = 0.13957039

Array = npt.NDArray[np.float64]

_ROUND = 1 << 15


def psi2s_kkpipi(events: int, seed: int = 0) -> tuple[Array, Array, Array, Array]:
    """Four-momenta (px, py, pz, E) in GeV of K+, K-, pi+ and pi-, in the rest frame of the psi(2S).

    Four arrays (events, 4), float64. The events of a seed are one fixed sequence: fewer events are its beginning.
    Memory beyond the result is that of one round of 32,768 proposals.

    The decay is taken as psi -> X Y, X -> K K, Y -> pi pi. Phase space is then isotropic in each of the three decays,
    with the density q(psi; X, Y) q(X; K, K) q(Y; pi, pi) dm_X dm_Y of break-up momenta q (Particle Data Group, Review
    of Particle Physics, section Kinematics), sampled by rejection.

    Raises ValueError for a negative number of events or seed.
    """
    events = index(events)
    if events < 0:
        raise ValueError(f"events = {events}, not a number of events")
    rng = np.random.default_rng(seed)
    momenta = np.empty((4, events, 4))
    done = 0
    while done < events:
        some = _round(rng)[:, : events - done]
        momenta[:, done : done + some.shape[1]] = some
        done += some.shape[1]
    kp, km, pip, pim = momenta
    return kp, km, pip, pim


def _round(rng: np.random.Generator) -> Array:
    """The accepted events of one round of proposals, shape (4 particles, events, 4)."""
    kk, pipi = 2 * KAON_MASS, 2 * PION_MASS
    free = PSI2S_MASS - kk - pipi
    low, high = np.sort(rng.random((2, _ROUND)), axis=0)
    mx, my = kk + free * low, pipi + free * (1 - high)
    q, qx, qy = _breakup(PSI2S_MASS, mx, my), _breakup(mx, KAON_MASS, KAON_MASS), _breakup(my, PION_MASS, PION_MASS)
    accepted = rng.random(_ROUND) * _bound(free) < q * qx * qy
    mx, my, q, qx, qy = (values[accepted] for values in (mx, my, q, qx, qy))
    x = q * _directions(rng, len(q))
    kaon, pion = qx * _directions(rng, len(q)), qy * _directions(rng, len(q))
    return np.stack(
        [
            _boosted(kaon, KAON_MASS, x, mx),
            _boosted(-kaon, KAON_MASS, x, mx),
            _boosted(pion, PION_MASS, -x, my),
            _boosted(-pion, PION_MASS, -x, my),
        ]
    )


def _bound(free: float) -> float:
    """An upper bound of q qx qy.

    The three factors that vanish at a threshold have the fixed sum `free`, so their product is at most (free / 3)^3;
    in q the others are below 2 M^3, in qx and qy largest at the largest mass.
    """
    kk, pipi = 2 * KAON_MASS, 2 * PION_MASS
    others = (PSI2S_MASS / 2) * (PSI2S_MASS - pipi + kk) / 4 * (PSI2S_MASS - kk + pipi) / 4
    return float(np.sqrt((free / 3) ** 3 * others))


def _breakup(mass: npt.ArrayLike, first: npt.ArrayLike, second: npt.ArrayLike) -> Array:
    """Momentum in the rest frame of a decay into two masses; factored, so that it is accurate at threshold."""
    mass, first, second = (np.asarray(m) for m in (mass, first, second))
    threshold = (mass - first - second) * (mass + first + second)
    momentum: Array = np.sqrt(threshold * (mass - first + second) * (mass + first - second)) / (2 * mass)
    return momentum


def _directions(rng: np.random.Generator, count: int) -> Array:
    """Isotropic unit vectors, shape (3, count)."""
    cosine, azimuth = rng.uniform(-1, 1, count), rng.uniform(0, 2 * np.pi, count)
    sine = np.sqrt((1 - cosine) * (1 + cosine))
    return np.stack([sine * np.cos(azimuth), sine * np.sin(azimuth), cosine])


def _boosted(p: Array, mass: float, parent: Array, parent_mass: Array) -> Array:
    """Four-momentum, from the momentum `p` (3, N) in the rest frame of a parent of momentum `parent` (3, N)."""
    energy = np.sqrt(np.sum(p * p, axis=0) + mass**2)
    parent_energy = np.sqrt(np.sum(parent * parent, axis=0) + parent_mass**2)
    p = p + parent * ((np.sum(p * parent, axis=0) / (parent_energy + parent_mass) + energy) / parent_mass)
    return np.column_stack([*p, np.sqrt(np.sum(p * p, axis=0) + mass**2)])
