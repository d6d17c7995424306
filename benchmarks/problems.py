"""What is timed: functions of fastcov, the arrays to call them on, and the dense reference for their results."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import fastcov as fc
from fastcov import dropin, phasespace, reference, waves

DISTINCT_EVENTS = 200_000  # of the generator; a larger sample repeats them, which no part of a benchmark can notice


class Problem(NamedTuple):
    name: str
    vectors: Callable[[tuple[np.ndarray, ...]], tuple[np.ndarray, ...]]  # from the momenta kp, km, pip, pim
    function: fc.Fused
    reference: Callable[..., np.ndarray]
    named: tuple[str, ...] = ()  # the last of the vectors are passed by these names


@cache
def momenta(events: int) -> tuple[np.ndarray, ...]:
    some = phasespace.psi2s_kkpipi(min(events, DISTINCT_EVENTS), seed=1)
    return tuple(np.resize(p, (events, 4)) for p in some)


def _momenta(p: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    return p


def _six_vectors(p: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    kp, km, pip, pim = p
    phi, f = kp + km, pip + pim
    return phi + f, phi - f, phi, kp - km, f, pip - pim


def _phi_vertex(p: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    kp, km, _, _ = p
    return kp + km, kp - km


def _stacked(members: tuple[fc.Fused, ...]) -> Callable[..., np.ndarray]:
    return lambda *p: np.stack([reference.waves[wave.__name__](*p) for wave in members])


def _phif243_plain(*p: np.ndarray) -> np.ndarray:
    return reference.waves["phif243"](*p, barrier=False)


def _with_cotangent(vectors: Callable) -> Callable[..., tuple[np.ndarray, ...]]:
    return lambda p: (*vectors(p), p[0])


def _gradients(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """d(sum c f)/dx for each of the vectors, by differences of fourth order; stacked, the last argument is c."""

    def reference(*vectors_and_cotangent: np.ndarray) -> np.ndarray:
        *vectors, c = (v.astype(float) for v in vectors_and_cotangent)

        def moved(n: int, component: int, step: float) -> np.ndarray:
            changed = [v.copy() for v in vectors]
            changed[n][..., component] += step
            return np.sum(c * function(*changed), axis=-1)

        h = 1e-4
        gradients = np.empty((len(vectors), *c.shape))
        for n in range(len(vectors)):
            for m in range(4):
                near, far = (moved(n, m, k * h) - moved(n, m, -k * h) for k in (1, 2))
                gradients[n, ..., m] = (8 * near - far) / (12 * h)
        return gradients

    return reference


SEVEN, SEVENTEEN = waves.psi_phi_f, (*waves.psi_phi_f, *waves.psi_b1_pi, *waves.psi_rho_pi)
PLAIN = waves.phif243.with_defaults(barrier=False)
WAVES = tuple(f"wave {wave.__name__}" for wave in SEVENTEEN)
VJPS = ("vjp of six vectors", "vjp of four momenta")
BUNDLES = ("7 waves psi -> phi f", "17 waves")

PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem("six vectors", _six_vectors, waves.phif243_of_vertices, reference.phif243_six),
        Problem("four momenta", _momenta, PLAIN, _phif243_plain),
        Problem("posted", _phi_vertex, fc.fused(lambda a, r: dropin.phif243(a, r)), reference.posted_phif243),
        *(
            Problem(name, _momenta, wave, reference.waves[wave.__name__])
            for name, wave in zip(WAVES, SEVENTEEN, strict=True)
        ),
        Problem(
            VJPS[0],
            _with_cotangent(_six_vectors),
            waves.phif243_of_vertices.vjp,
            _gradients(reference.phif243_six),
            ("cotangent",),
        ),
        Problem(VJPS[1], _with_cotangent(_momenta), PLAIN.vjp, _gradients(_phif243_plain), ("cotangent",)),
        Problem(BUNDLES[0], _momenta, fc.bundle(*SEVEN), _stacked(SEVEN)),
        Problem(BUNDLES[1], _momenta, fc.bundle(*SEVENTEEN), _stacked(SEVENTEEN)),
    )
}


def arguments(problem: str, events: int, dtype: str, layout: str) -> tuple[Any, ...]:
    """The vectors of a problem: packed arrays (events, 4), or tuples of four contiguous columns."""
    return _arguments(PROBLEMS[problem].vectors, events, dtype, layout)


@cache
def _arguments(vectors: Callable, events: int, dtype: str, layout: str) -> tuple[Any, ...]:
    found = vectors(momenta(events))
    if layout == "packed":
        return tuple(np.ascontiguousarray(v, dtype) for v in found)
    return tuple(tuple(np.ascontiguousarray(v.T, dtype)) for v in found)


@cache
def output(shape: tuple[int, ...], dtype: str, place: int = 0) -> np.ndarray:
    """An array for results, the same for all rows: a result is not needed any more once the next is computed."""
    return np.zeros(shape, dtype)
