"""The functions of the script posted in google/jax issue 1923, on all events at once: replace its import by this one.

The functions take a momentum `a` and a vector `r`, both (..., 4) in the order px, py, pz, E, and keep the post's
meaning: components are lower ones except those of `Gt_con`, and `phif243` sums components as they stand. The post has
r = a, which is the default here. Then T1_cov, T2_cov, T4_cov and phif243 are exactly zero, since a is orthogonal to its
own transverse metric; for a decay a -> b c the vector that belongs there is r = b - c.

The posted P4 is not the spin-4 projector, though it was meant to be. Its permutations are applied as scatters where
the formula gathers (`einsum('ijklmnop->minjolpk', gggg)` says where the axes of the product go, not where they come
from), and the first of its 24 fully mixed terms is the unpermuted product g~_ij g~_kl g~_mn g~_op. So it is not
symmetric, not idempotent, its trace depends on a (11.26 for one random a, where a projector on spin 4 has 9), and with
r r r r it gives -0.381 r~ r~ r~ r~ + ... instead of r~ r~ r~ r~ + ... `projector="posted"`, the default, reproduces it;
`projector="spin4"` takes the projector, eq. (22) of Zou and Bugg, Eur. Phys. J. A 16, 537 (hep-ph/0211457), which is
`fastcov.projector(4, a)` with lower indices. Either way phif243 stays the post's sum of components, which depends on
the frame; the amplitude itself, eq. (45), is `fastcov.waves.phif243`, another function of the same name.

`dot`, `Gt_con`, `Gt_cov`, `T1_cov`, `T2_cov` and `phif243` return arrays and take the keywords of a fused function's
call (`compute`, `threads`, `out`, ...; see `fastcov.fused`). `P4` and `T4_cov` return tensors built on the arrays,
which hold no components: contract them with `fastcov.einsum`, or look at a few events with `fastcov.dense`.

Domain: a^2 != 0.
"""

import json
from collections import defaultdict
from fractions import Fraction
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from . import polynomial
from .deferred import deferrable
from .formalism import dot as lorentz_product
from .formalism import einsum, lower, orbital, transverse
from .formalism import projector as spin_projector
from .fused import Fused, fused
from .tensors import Tensor, Terms, add_term

__all__ = ["P4", "Gt_con", "Gt_cov", "T1_cov", "T2_cov", "T4_cov", "dot", "metric", "phif243"]

Pairs = tuple[tuple[int, int], ...]


def metric() -> np.ndarray:
    """The metric diag(-1, -1, -1, 1), shape (4, 4)."""
    return np.diag([-1.0, -1.0, -1.0, 1.0])


def dot(a: Any, r: Any = None, **options: Any) -> Any:
    """a_E r_E - a_x r_x - a_y r_y - a_z r_z, shape (...)."""
    return _dot(a, a if r is None else r, **options)


def Gt_con(a: Any, **options: Any) -> Any:
    """g~^{mn} = g^{mn} - a^m a^n / a^2, eq. (2), upper components, shape (..., 4, 4)."""
    return _gt_con(a, **options)


def Gt_cov(a: Any, **options: Any) -> Any:
    """g~_{mn}, lower components, shape (..., 4, 4)."""
    return _gt_cov(a, **options)


def P4(a: Any, *, projector: str = "posted") -> Any:
    """P4_{ijklmnop}, lower indices, rank 8, as a structured tensor; 524,288 bytes an event if it were dense.

    projector="posted": the sum of 24, 72 and 9 permuted products g~ g~ g~ g~ with the weights 1/24, -1/84 and 1/105, as
    posted; not the spin-4 projector, see the module's text. projector="spin4": the spin-4 projector, eq. (22).
    Raises ValueError for another projector.
    """
    return _p4(a, _checked(projector))


def T1_cov(a: Any, r: Any = None, **options: Any) -> Any:
    """r~_m = g~_{mn} r^n, lower components, shape (..., 4): t~^(1), eq. (10)."""
    return _of_two(_t1_cov, _t1_cov_alone, a, r, options)


def T2_cov(a: Any, r: Any = None, **options: Any) -> Any:
    """r~_m r~_n - (r~.r~) g~_{mn} / 3, lower components, shape (..., 4, 4): t~^(2), eq. (11)."""
    return _of_two(_t2_cov, _t2_cov_alone, a, r, options)


def T4_cov(a: Any, r: Any = None, *, projector: str = "posted") -> Any:
    """P4_{ijklmnop} r^m r^n r^o r^p, lower indices, rank 4, as a structured tensor.

    With projector="posted" this is the posted P4's and not t~^(4), see the module's text; with projector="spin4" it is
    t~^(4), eq. (23).
    Raises ValueError for another projector.
    """
    return _t4_cov(a, a if r is None else r, _checked(projector))


def phif243(a: Any, r: Any = None, *, projector: str = "posted", **options: Any) -> Any:
    """The sum of lower components T4_{ijkl} T1_j T2_{kl} over j, k and l as they stand, shape (..., 4).

    No covariant: it depends on the frame, with either projector (see `T4_cov`). Not `fastcov.waves.phif243`.
    Raises ValueError for another projector than "posted" and "spin4".
    """
    if _checked(projector) != "posted":
        options["projector"] = projector
    return _of_two(_phif243, _phif243_alone, a, r, options)


def _of_two(both: Fused, alone: Fused, a: Any, r: Any, options: dict[str, Any]) -> Any:
    """both(a, r); where r is a, alone(a), traced with one vector so that r~ = 0 is known and not a rounding error."""
    return alone(a, **options) if r is None or r is a else both(a, r, **options)


@fused
def _dot(a, r):
    return lorentz_product(a, r)


@fused
def _gt_con(a):
    return transverse(a)


@fused
def _gt_cov(a):
    return lower(transverse(a))


@deferrable(rank=lambda a, projector: 8)
def _p4(a: Any, projector: str) -> Any:
    if projector == "spin4":
        return lower(spin_projector(4, a))
    g = transverse(a)
    [(factor,)] = g.terms
    terms: Terms = {}
    for pairs, weight in _posted_pairings():
        add_term(terms, [factor._replace(a=i, b=k) for i, k in pairs], polynomial.constant(weight))
    return Tensor(g.graph, terms, (True,) * 8)


@deferrable(rank=lambda a, r, projector: 4)
def _t4_cov(a: Any, r: Any, projector: str) -> Any:
    if projector == "spin4":
        return lower(orbital(4, a, r))
    return einsum("ijklmnop,m,n,o,p->ijkl", _p4(a, projector), r, r, r, r)


@fused
def _t1_cov(a, r):
    return lower(orbital(1, a, r))


@fused
def _t1_cov_alone(a):
    return _t1_cov(a, a)


@fused
def _t2_cov(a, r):
    return lower(orbital(2, a, r))


@fused
def _t2_cov_alone(a):
    return _t2_cov(a, a)


@fused
def _phif243(a, r, *, projector="posted"):
    T4 = T4_cov(a, r, projector=projector)
    return einsum("ijkl,j,kl->i", T4, _t1_cov(a, r), _t2_cov(a, r), metric=None)


@fused
def _phif243_alone(a, *, projector="posted"):
    return _phif243(a, a, projector=projector)


def _checked(projector: str) -> str:
    if projector not in ("posted", "spin4"):
        raise ValueError(f"projector must be 'posted' or 'spin4', not {projector!r}")
    return projector


@cache
def _posted_pairings() -> tuple[tuple[Pairs, Fraction], ...]:
    """The posted P4 as weights of products of four g~, each g~ on the two of the eight indices it pairs.

    numpy.einsum("ijklmnop->" + output) of g~_ij g~_kl g~_mn g~_op has an index of each g~ where its letter is in
    `output`. g~ is symmetric, so different outputs make the same product.
    """
    sums = json.loads(files(__package__).joinpath("posted_permutations.json").read_text())["sums"]
    weights: defaultdict[Pairs, Fraction] = defaultdict(Fraction)
    for one in sums:
        for output in one["output_subscripts"]:
            places = [output.index(letter) for letter in "ijklmnop"]
            pairs = sorted(tuple(sorted(places[n : n + 2])) for n in range(0, 8, 2))
            weights[tuple(pairs)] += Fraction(one["weight"])
    return tuple((pairs, weight) for pairs, weight in weights.items() if weight)
