"""A self-check on the user's momenta: do they look right, and are the waves on them what the formulas say."""

from typing import Any

import numpy as np
import numpy.typing as npt

from . import reference, waves
from .dense import dense
from .formalism import breakup2, orbital
from .fused import fused
from .momenta import NAMES, InputError, Momenta, read_momenta
from .phasespace import KAON_MASS, PION_MASS, psi2s_kkpipi

EVENTS = 100_000  # generated where no file is given
SAMPLE = 1_000  # events on which the waves are compared
MASSES = dict(zip(NAMES, (("K", KAON_MASS), ("K", KAON_MASS), ("pi", PION_MASS), ("pi", PION_MASS)), strict=True))
MASS_TOLERANCE = 0.01  # relative
BOUND = 1e-11  # relative to an event's largest component, times (E/m)^2 of the psi, by which p^2 cancels

Array = npt.NDArray[np.float64]


class Findings:
    """Prints one line for each finding and counts the failures."""

    def __init__(self) -> None:
        self.failures = 0

    def __call__(self, passed: bool, text: str) -> None:
        self.failures += not passed
        print(f"{'OK' if passed else 'FAIL':<6}{text}")


def check(*, input: str | None, order: str) -> int:
    """Check the momenta of a file, or 100,000 generated events, and print the findings; 1 if one failed, else 0.

    `order` is the order of the components in the file. Raises InputError for a file or an order that cannot be used.
    """
    if sorted(order) != sorted("xyzE"):
        raise InputError(f"--order must be the letters x, y, z, E in some order, not {order!r}")
    momenta = psi2s_kkpipi(EVENTS) if input is None else read_momenta(input)
    if input is None:
        order = "xyzE"
    print(f"{len(momenta[0]):,} events {f'of {input}' if input else 'psi(2S) -> K+ K- pi+ pi-, generated'}")
    found = Findings()
    momenta = _finite(found, momenta)
    if len(momenta[0]):
        momenta, unit = _ordered(found, momenta, order)
        _masses(found, momenta, unit)
        momenta = _physical(found, momenta, unit)
    if len(momenta[0]):
        _waves(found, momenta, unit)
    if found.failures:
        print(f"{found.failures} of the checks failed")
    return 1 if found.failures else 0


def _finite(found: Findings, momenta: Momenta) -> Momenta:
    finite = np.all([np.isfinite(p).all(axis=1) for p in momenta], axis=0)
    bad = len(finite) - np.count_nonzero(finite)
    found(not bad, f"{bad:,} events with a NaN or an infinity{', left out from here on' if bad else ''}")
    return tuple(p[finite] for p in momenta)


def _ordered(found: Findings, momenta: Momenta, order: str) -> tuple[Momenta, float]:
    """The momenta as (px, py, pz, E), and their unit in GeV.

    The energy is the component that, read as such, gives the masses of kaons and pions best, in GeV or in MeV.
    """
    readings = {(place, unit): _misfit(momenta, place, unit) for place in range(4) for unit in (1.0, 1e-3)}
    place, unit = min(readings, key=lambda reading: readings[reading])
    told = order.index("E")
    rest = order.replace("E", "")
    better = rest[:place] + "E" + rest[place:]
    where = ("first", "second", "third", "last")
    if place == told:
        found(True, f"the energy is the {where[place]} component: order {order!r}")
    else:
        found(
            False,
            f"the energy looks like the {where[place]} component, not the {where[told]}: read on as {better!r}; call "
            f"the waves with order={better!r}, or check with --order {better}",
        )
    if unit == 1:
        found(True, "the unit is GeV")
    else:
        found(True, "the unit is MeV: the presets of q0 are in GeV, so give the waves a q0 in MeV, such as 197.321")
    columns = [better.index(letter) for letter in "xyzE"]
    return tuple(p[:, columns] for p in momenta), unit


def _misfit(momenta: Momenta, place: int, unit: float) -> float:
    """How far the momenta are from the known masses with this component as the energy and this unit."""
    total = 0.0
    for p, (_, mass) in zip(momenta, MASSES.values(), strict=True):
        square = (2 * p[:, place] ** 2 - np.sum(p**2, axis=1)) * unit**2
        total += float(np.median(np.abs(np.log(np.maximum(square / mass**2, 1e-30)))))
    return total


def _masses(found: Findings, momenta: Momenta, unit: float) -> None:
    for p, (name, (particle, mass)) in zip(momenta, MASSES.items(), strict=True):
        masses = np.sqrt(np.maximum(_square(p), 0)) * unit
        low, high = masses.min(), masses.max()
        passed = bool(max(mass - low, high - mass) <= MASS_TOLERANCE * mass)
        found(passed, f"{name}: masses from {low:.6f} to {high:.6f} GeV; a {particle} has {mass:.6f}")


def _physical(found: Findings, momenta: Momenta, unit: float) -> Momenta:
    """Count the events outside the domain of the formulas, and leave them out."""
    kp, km, pip, pim = momenta
    phi, f = kp + km, pip + pim
    systems = {"psi": phi + f, "phi": phi, "f": f, "b1+": phi + pip, "b1-": phi + pim}
    light = {name: _square(p) <= 0 for name, p in systems.items()}
    found(
        not any(bad.any() for bad in light.values()),
        f"events with p^2 <= 0: {', '.join(f'{np.count_nonzero(bad):,} of {name}' for name, bad in light.items())}",
    )
    least = {"psi": 2 * KAON_MASS + 2 * PION_MASS, "phi": 2 * KAON_MASS, "f": 2 * PION_MASS}
    below = {name: _square(systems[name]) * unit**2 < (1 - 1e-6) * mass**2 for name, mass in least.items()}
    q2 = {"psi": _q2(phi, f), "phi": _q2(kp, km), "f": _q2(pip, pim)}
    below = {name: bad | (q2[name] < 0) for name, bad in below.items()}
    found(
        not any(bad.any() for bad in below.values()),
        f"events below threshold: {', '.join(f'{np.count_nonzero(bad):,} of {name}' for name, bad in below.items())}",
    )
    good = ~np.any([*light.values(), *below.values()], axis=0)
    return tuple(p[good] for p in momenta)


@fused
def _q2(b: Any, c: Any) -> Any:
    return breakup2(b + c, b, c)


def _square(p: Array) -> Array:
    return p[:, 3] ** 2 - p[:, 0] ** 2 - p[:, 1] ** 2 - p[:, 2] ** 2


def _waves(found: Findings, momenta: Momenta, unit: float) -> None:
    """The waves and tensors on a sample of the events."""
    rows = np.linspace(0, len(momenta[0]) - 1, min(len(momenta[0]), SAMPLE)).astype(int)
    kp, km, pip, pim = sample = tuple(p[rows] for p in momenta)
    psi = kp + km + pip + pim
    bound = BOUND * float(np.max(psi[:, 3] ** 2 / _square(psi)))

    def compare(what: str, deviations: Array) -> None:
        worst = float(np.max(np.nan_to_num(deviations, nan=np.inf)))
        found(worst <= bound, f"{what}: off by at most {worst:.1e}, bound {bound:.1e}")

    print(f"{len(rows):,} of these events, deviations relative to an event's largest component:")
    q0 = reference.Q0 / unit
    values = {wave.__name__: wave(*sample, q0=q0) for wave in waves.all}
    dense_values = {name: reference.waves[name](*sample, q0=q0) for name in values}
    compare(
        f"closed form against dense reference, {len(values)} waves",
        np.stack([_relative(value - dense_values[name], value) for name, value in values.items()]),
    )
    boost = _boost(0.3, 0.2, -0.4)
    moved = tuple(p @ boost for p in sample)
    boosted = {wave.__name__: wave(*moved, q0=q0) for wave in waves.all}
    compare(
        f"boost covariance, {len(values)} waves",
        np.stack([_relative(boosted[name] - value @ boost, boosted[name]) for name, value in values.items()]),
    )
    for name, parent, relative in (("psi; phi, f", psi, kp + km - pip - pim), ("f; pi+, pi-", pip + pim, pip - pim)):
        for L, indices in ((2, "mn"), (4, "mnkl")):
            t = dense(orbital(L, parent, relative))
            along = reference.einsum(f"{indices},{indices[-1]}->{indices[:-1]}", t, parent / parent[:, 3:])
            compare(f"transversality of t~({L})({name})", _relative(along, t))
            trace = reference.einsum(f"{indices[:-1]}{indices[-2]}->{indices[:-2]}", t)
            compare(f"tracelessness of t~({L})({name})", _relative(trace, t))


def _relative(difference: Array, scale: Array) -> Array:
    """The largest component of each event's difference in units of the largest component of `scale`."""
    error, size = (np.max(np.abs(x.reshape(len(x), -1)), axis=1) for x in (difference, scale))
    with np.errstate(divide="ignore", invalid="ignore"):
        relative: Array = np.divide(error, size, out=np.zeros_like(error), where=error != 0)
    return relative


def _boost(x: float, y: float, z: float) -> Array:
    """The symmetric matrix of a boost by this velocity."""
    velocity = np.array([x, y, z])
    gamma = 1 / np.sqrt(1 - velocity @ velocity)
    matrix = np.eye(4)
    matrix[:3, :3] += gamma**2 / (gamma + 1) * np.outer(velocity, velocity)
    matrix[:3, 3] = matrix[3, :3] = gamma * velocity
    matrix[3, 3] = gamma
    return matrix
