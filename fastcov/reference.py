"""Every formula once more: dense, slow, in NumPy, from the definitions. What the fast code is compared with.

Shares nothing with the rest of the package. Components are (x, y, z, E), the metric is diag(-1, -1, -1, +1) and all
indices are upper unless a name or a docstring says lower. Momenta `(..., 4)` are in GeV; leading axes are events and
broadcast; arithmetic is float64. Equation numbers are those of Zou and Bugg, Eur. Phys. J. A 16, 537 (hep-ph/0211457).

Spin projectors and orbital tensors are sums over polarisation states: three polarisation vectors transverse to the
momentum, coupled to spin L by Clebsch-Gordan coefficients. The closed forms of the paper are nowhere used.
"""

import json
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import permutations
from math import sqrt
from pathlib import Path
from string import ascii_letters
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Wave = Callable[..., Array]
Decay = Callable[[int, Array, Array], Array]

Q0 = 0.197321  # GeV, hbar c / 1 fm


_METRIC = np.diag([-1.0, -1.0, -1.0, 1.0])


def metric() -> Array:
    """g = diag(-1, -1, -1, +1), shape (4, 4)."""
    return _METRIC.copy()


def lower(tensor: npt.ArrayLike, rank: int) -> Array:
    """Lower the last `rank` indices of a tensor (or raise them: the operation is its own inverse)."""
    result = _array(tensor)
    for axis in range(-rank, 0):
        result = result * np.diag(_METRIC).reshape((4,) + (1,) * (-axis - 1))
    return result


def dot(a: npt.ArrayLike, b: npt.ArrayLike) -> Array:
    """a.b = aE bE - ax bx - ay by - az bz, shape (...)."""
    return np.asarray(np.sum(_array(a) * lower(b, 1), axis=-1))


def einsum(spec: str, *tensors: npt.ArrayLike, metric: Array | None = _METRIC) -> Array:
    """Dense contraction; letters name the tensor indices, leading axes are events.

    A letter that occurs twice is contracted with `metric`, so all tensors have upper indices; with `metric=None` it
    is summed over the components as they stand, as numpy.einsum does.
    """
    inputs, output = spec.split("->")
    letters = list(inputs)
    unused = (letter for letter in ascii_letters if letter not in spec)
    metrics = []
    if metric is not None:
        for place, letter in enumerate(letters):
            if letter != "," and letter in letters[:place]:
                letters[place] = next(unused)
                metrics.append(letter + letters[place])
    terms = ["..." + term for term in "".join(letters).split(",")] + metrics
    operands: list[Any] = [_array(t) for t in tensors] + [metric] * len(metrics)
    return np.asarray(np.einsum(f"{','.join(terms)}->...{output}", *operands, optimize="greedy"))


def transverse(p: npt.ArrayLike) -> Array:
    """g~^{mn}(p) = g^{mn} - p^m p^n / p^2 (eq. 2), shape (..., 4, 4), for p^2 != 0."""
    p = _array(p)
    return _METRIC - p[..., :, None] * p[..., None, :] / dot(p, p)[..., None, None]


def polarisations(p: npt.ArrayLike) -> Array:
    """Three vectors e_i with e_i.p = 0 and e_i.e_j = -delta_ij, shape (..., 3, 4), for p^2 != 0.

    The unit vectors along x, y, z, boosted from the rest frame of p. Where p is space-like the mass, and with it the
    vectors, are complex; products in which each vector occurs twice, without conjugation, stay real.
    """
    p = _array(p)
    p = np.where(p[..., 3:] < 0, -p, p)
    mass = np.emath.sqrt(dot(p, p))[..., None, None]
    space, energy = p[..., :3, None], p[..., 3, None, None]
    along = np.eye(3) + space * np.swapaxes(space, -1, -2) / (mass * (energy + mass))
    return np.concatenate([along, space / mass], axis=-1)


@cache
def spin_states(L: int) -> Array:
    """The 2L+1 states of spin L in the rest frame, as real, symmetric, traceless, orthonormal tensors of rank L.

    Shape (2L+1, 3, ..., 3). Spin 1 has e(+1) = -(x + iy)/sqrt2, e(0) = z, e(-1) = (x - iy)/sqrt2; spin L is
    chi(L, m) = sum over n of <1 n; L-1 m-n | L m> e(n) chi(L-1, m-n). Since chi(L, -m) = (-1)^m chi(L, m)*, the real
    basis chi(L, 0), sqrt2 Re chi(L, m), sqrt2 Im chi(L, m) spans the same states.
    """
    half = np.sqrt(0.5)
    vectors = {1: np.array([-half, -half * 1j, 0]), 0: np.array([0, 0, 1]), -1: np.array([half, -half * 1j, 0])}
    states = {0: np.array(1.0 + 0j)}
    for j in range(L):
        states = {
            m: sum(
                _clebsch_gordan(j, n, m) * np.multiply.outer(vectors[n], states[m - n])
                for n in vectors
                if m - n in states
            )
            for m in range(-j - 1, j + 2)
        }
    real = [states[0].real]
    for m in range(1, L + 1):
        real += [np.sqrt(2) * states[m].real, np.sqrt(2) * states[m].imag]
    return np.stack(real)


def _clebsch_gordan(j: int, n: int, m: int) -> float:
    """<1 n; j m-n | j+1 m>."""
    if n == 0:
        return sqrt((j - m + 1) * (j + m + 1) / ((2 * j + 1) * (j + 1)))
    return sqrt((j + n * m) * (j + n * m + 1) / ((2 * j + 1) * (2 * j + 2)))


def projector(L: int, p: npt.ArrayLike) -> Array:
    """P^(L)(p) = sum over the 2L+1 states of chi chi* (eqs. 20-22), shape (..., 4, ..., 4) of rank 2L, for p^2 != 0.

    P^(1) = -g~. Contracting P with P gives (-1)^L P, contracting its two halves (-1)^L (2L+1). An event takes
    8 * 16^L bytes: 0.5 MB for L = 4, 134 MB for L = 6.
    """
    e = polarisations(p)
    states = spin_states(L).reshape(2 * L + 1, 3**L)
    chi = _lift(np.broadcast_to(states, e.shape[:-2] + states.shape), e[..., None, :, :], L)
    square = np.swapaxes(chi, -1, -2) @ chi
    return np.asarray(square.real).reshape(e.shape[:-2] + (4,) * (2 * L))


def orbital(L: int, p: npt.ArrayLike, r: npt.ArrayLike) -> Array:
    """t~^(L) = (-1)^L P^(L)(p) r ... r (eqs. 10-12, 23), shape (..., 4, ..., 4) of rank L, for p^2 != 0.

    For a decay a -> b c, p = p_a and r = p_b - p_c. Units GeV^L.
    """
    e = polarisations(p)
    states = spin_states(L).reshape(2 * L + 1, 3**L)
    x = np.sum(e * lower(r, 1)[..., None, :], axis=-1)
    overlap = np.broadcast_to(states, x.shape[:-1] + states.shape)
    for _ in range(L):
        overlap = np.einsum("...kir,...i->...kr", overlap.reshape((*overlap.shape[:-1], 3, -1)), x)
    tensor = _lift((-1) ** L * overlap[..., 0] @ states, e, L)
    return np.asarray(tensor.real).reshape(x.shape[:-1] + (4,) * L)


def _lift(tensor: npt.NDArray[Any], e: npt.NDArray[Any], L: int) -> npt.NDArray[Any]:
    """From components along e_i (..., 3^L) to space-time components (..., 4^L)."""
    for _ in range(L):
        split = tensor.reshape((*tensor.shape[:-1], 3, -1))
        tensor = np.einsum("...ir,...im->...rm", split, e)
        tensor = tensor.reshape((*tensor.shape[:-2], -1))
    return tensor


def levi_civita() -> Array:
    """epsilon_{mnrs} with *lower* indices and epsilon_{xyzE} = +1, shape (4, 4, 4, 4)."""
    epsilon = np.zeros((4,) * 4)
    for order in permutations(range(4)):
        epsilon[order] = np.linalg.det(np.eye(4)[list(order)])
    return epsilon


def breakup2(sa: npt.ArrayLike, sb: npt.ArrayLike, sc: npt.ArrayLike) -> Array:
    """Q^2 = (s_a + s_b - s_c)^2 / (4 s_a) - s_b, the squared momentum of b in the rest frame of a -> b c (eq. 13).

    The s are squared masses, in GeV^2, as is Q^2.
    """
    sa, sb, sc = _array(sa), _array(sb), _array(sc)
    return (sa + sb - sc) ** 2 / (4 * sa) - sb


_BARRIERS = {0: (1,), 1: (1, 1), 2: (1, 3, 9), 3: (1, 6, 45, 225), 4: (1, 10, 135, 1575, 11025)}


def barrier(L: int, q2: npt.ArrayLike, q0: npt.ArrayLike) -> Array:
    """Blatt-Weisskopf factor B_L, unnormalised, L = 0 to 4 (eqs. 14-17), in GeV^-L.

    B_1 = sqrt(2 / (Q^2 + q0^2)), B_2 = sqrt(13 / (Q^4 + 3 Q^2 q0^2 + 9 q0^4)) and so on; B_L(Q = q0) = q0^-L, which
    fixes the numerators. `q2` is Q^2 in GeV^2, `q0` is hbar c / radius in GeV.
    """
    q2, q0 = _array(q2), _array(q0)
    numbers = _BARRIERS[L]
    return np.sqrt(sum(numbers) / sum(c * q2 ** (L - k) * q0 ** (2 * k) for k, c in enumerate(numbers)))


def decay(L: int, b: npt.ArrayLike, c: npt.ArrayLike, q0: float | None = None) -> Array:
    """t~^(L)(a; b, c) of a -> b c with a = b + c, times B_L unless `q0` is None; rank L, upper indices."""
    b, c = _array(b), _array(c)
    tensor = orbital(L, b + c, b - c)
    if q0 is None:
        return tensor
    factor = barrier(L, breakup2(dot(b + c, b + c), dot(b, b), dot(c, c)), q0)
    return factor.reshape(factor.shape + (1,) * L) * tensor


def _array(x: npt.ArrayLike) -> Array:
    return np.asarray(x, dtype=np.float64)


waves: dict[str, Wave] = {}


def _wave(formula: Callable[..., Array]) -> Wave:
    """Register a wave written as formula(t, kp, km, pip, pim), t(L, b, c) being `decay` with the barriers asked for."""

    def wave(
        kp: npt.ArrayLike,
        km: npt.ArrayLike,
        pip: npt.ArrayLike,
        pim: npt.ArrayLike,
        *,
        q0: float = Q0,
        barrier: bool = True,
    ) -> Array:
        def t(L: int, b: Array, c: Array) -> Array:
            return decay(L, b, c, q0 if barrier else None)

        return formula(t, *np.broadcast_arrays(*(_array(p) for p in (kp, km, pip, pim))))

    wave.__name__, wave.__doc__ = formula.__name__, formula.__doc__
    waves[formula.__name__] = wave
    return wave


def _swapped(name: str, wave: Wave) -> None:
    """Register the wave with pi+ and pi- exchanged."""
    waves[name] = lambda kp, km, pip, pim, **options: wave(kp, km, pim, pip, **options)


@_wave
def phif001(t: Decay, kp: Array, km: Array, pip: Array, pim: Array) -> Array:
    """t1^m (eq. 36), with t1 = t~^(1)(phi; kp, km) here and below."""
    return t(1, kp, km)


@_wave
def phif021(t: Decay, kp: Array, km: Array, pip: Array, pim: Array) -> Array:
    """T2^{mn} t1_n (eq. 37), with TL = t~^(L)(psi; phi, f) here and below."""
    return einsum("mn,n->m", t(2, kp + km, pip + pim), t(1, kp, km))


@_wave
def phif201(t: Decay, kp: Array, km: Array, pip: Array, pim: Array) -> Array:
    """t2^{mn} t1_n (eq. 41), with t2 = t~^(2)(f; pip, pim) here and below."""
    return einsum("mn,n->m", t(2, pip, pim), t(1, kp, km))


@_wave
def phif221(t: Decay, kp: Array, km: Array, pip: Array, pim: Array) -> Array:
    """T2^{ma} t2_{an} t1^n (eq. 42)."""
    return einsum("ma,an,n->m", t(2, kp + km, pip + pim), t(2, pip, pim), t(1, kp, km))


@_wave
def phif222(t: Decay, kp: Array, km: Array, pip: Array, pim: Array) -> Array:
    """e^{mabc} psi_a T2_b^d [e_{clsn} t2^l_d + e_{dlsn} t2^l_c] psi^s t1^n (eq. 43)."""
    phi, f = kp + km, pip + pim
    epsilon = lower(levi_civita(), 4)
    operands = epsilon, phi + f, t(2, phi, f), epsilon, t(2, pip, pim), phi + f, t(1, kp, km)
    return einsum("mabc,a,bd,clsn,ld,s,n->m", *operands) + einsum("mabc,a,bd,dlsn,lc,s,n->m", *operands)


@_wave
def phif223(t: Decay, kp: Array, km: Array, pip: Array, pim: Array) -> Array:
    """P3(psi)^{mabcdn} T2_{ab} t2_{cd} t1_n (eq. 44)."""
    phi, f = kp + km, pip + pim
    return einsum("mabcdn,ab,cd,n->m", projector(3, phi + f), t(2, phi, f), t(2, pip, pim), t(1, kp, km))


@_wave
def phif243(t: Decay, kp: Array, km: Array, pip: Array, pim: Array) -> Array:
    """T4^{mnls} t1_n t2_{ls} (eq. 45)."""
    return einsum("mnls,n,ls->m", t(4, kp + km, pip + pim), t(1, kp, km), t(2, pip, pim))


@_wave
def u_rho_1(t: Decay, kp: Array, km: Array, pip: Array, pim: Array) -> Array:
    """e^m_{abc} psi^a T1^b e^{cdsl} psi_d t_s t1_l (eq. 46).

    With rho = phi + pim, T1 = t~^(1)(psi; rho, pip) and t = t~^(1)(rho; phi, pim).
    """
    phi = kp + km
    rho = phi + pim
    psi = rho + pip
    epsilon = lower(levi_civita(), 4)
    return einsum("mabc,a,b,cdsl,d,s,l->m", epsilon, psi, t(1, rho, pip), epsilon, psi, t(1, phi, pim), t(1, kp, km))


@_wave
def u_SS_1(t: Decay, kp: Array, km: Array, pip: Array, pim: Array) -> Array:
    """g~(b)^{mn} t1_n (eq. 47), with b = phi + pip here and below."""
    return einsum("mn,n->m", transverse(kp + km + pip), t(1, kp, km))


@_wave
def u_SD_1(t: Decay, kp: Array, km: Array, pip: Array, pim: Array) -> Array:
    """t~^(2)(b; phi, pip)^{mn} t1_n (eq. 48)."""
    return einsum("mn,n->m", t(2, kp + km, pip), t(1, kp, km))


@_wave
def u_DS_1(t: Decay, kp: Array, km: Array, pip: Array, pim: Array) -> Array:
    """T^{mn} g~(b)_{nl} t1^l (eq. 49), with T = t~^(2)(psi; b, pim) here and below."""
    b = kp + km + pip
    return einsum("mn,nl,l->m", t(2, b, pim), transverse(b), t(1, kp, km))


@_wave
def u_DD_1(t: Decay, kp: Array, km: Array, pip: Array, pim: Array) -> Array:
    """T^{mn} t~^(2)(b; phi, pip)_{nl} t1^l (eq. 50)."""
    phi = kp + km
    return einsum("mn,nl,l->m", t(2, phi + pip, pim), t(2, phi, pip), t(1, kp, km))


for _name in ("u_rho", "u_SS", "u_SD", "u_DS", "u_DD"):
    _swapped(f"{_name}_2", waves[f"{_name}_1"])


def phif243_six(
    psi: npt.ArrayLike,
    r4: npt.ArrayLike,
    phi: npt.ArrayLike,
    r1: npt.ArrayLike,
    f: npt.ArrayLike,
    r2: npt.ArrayLike,
) -> Array:
    """t~^(4)(psi; r4)^{mnls} t~^(1)(phi; r1)_n t~^(2)(f; r2)_{ls}: phif243 of six free vectors, without barriers."""
    return einsum("mnls,n,ls->m", orbital(4, psi, r4), orbital(1, phi, r1), orbital(2, f, r2))


# The functions posted in google/jax issue 1923, as posted. Their P4 is not the spin-4 projector: its permutations
# scatter the axes where they should gather them, and the first of the 24 is the unpermuted product.


def posted_gt_con(a: npt.ArrayLike) -> Array:
    """g~^{mn}(a), upper, shape (..., 4, 4)."""
    return transverse(a)


def posted_gt_cov(a: npt.ArrayLike) -> Array:
    """g~_{mn}(a), lower, shape (..., 4, 4)."""
    return lower(transverse(a), 2)


@cache
def _posted_permutations() -> tuple[tuple[float, str], ...]:
    sums = json.loads(Path(__file__).with_name("posted_permutations.json").read_text())["sums"]
    return tuple((float(Fraction(s["weight"])), output) for s in sums for output in s["output_subscripts"])


def posted_p4(a: npt.ArrayLike) -> Array:
    """The weighted sum of 24, 72 and 9 permuted g~ g~ g~ g~, lower, shape (..., 4, ..., 4) of rank 8."""
    gt = posted_gt_cov(a)
    gggg = einsum("ij,kl,mn,op->ijklmnop", gt, gt, gt, gt)
    total = np.zeros_like(gggg)
    for weight, output in _posted_permutations():
        total += weight * np.einsum(f"...ijklmnop->...{output}", gggg)
    return total


def posted_t1_cov(a: npt.ArrayLike, r: npt.ArrayLike | None = None) -> Array:
    """g~_{mn}(a) r^n, lower, shape (..., 4). The post has r = a, for which this is zero."""
    return einsum("mn,n->m", posted_gt_cov(a), a if r is None else r, metric=None)


def posted_t2_cov(a: npt.ArrayLike, r: npt.ArrayLike | None = None) -> Array:
    """r~_m r~_n - (r~.r~) g~_{mn} / 3, lower, shape (..., 4, 4)."""
    t1 = posted_t1_cov(a, r)
    return einsum("m,n->mn", t1, t1) - dot(t1, t1)[..., None, None] / 3 * posted_gt_cov(a)


def posted_t4_cov(a: npt.ArrayLike, r: npt.ArrayLike | None = None) -> Array:
    """P4_{ijklmnop} r^m r^n r^o r^p with the posted P4, lower, shape (..., 4, 4, 4, 4).

    Contracted one permutation at a time, so that P4 (0.5 MB an event) is not built.
    """
    r = _array(a if r is None else r)
    gt = posted_gt_cov(a)
    total = np.zeros(np.broadcast_shapes(gt.shape[:-2], r.shape[:-1]) + (4,) * 4)
    for weight, output in _posted_permutations():
        spec = f"ij,kl,mn,op,{','.join(output[4:])}->{output[:4]}"
        total += weight * einsum(spec, gt, gt, gt, gt, r, r, r, r, metric=None)
    return total


def posted_phif243(a: npt.ArrayLike, r: npt.ArrayLike | None = None) -> Array:
    """The plain sum over components T4_{ijkl} T1_j T2_{kl}, shape (..., 4): not a covariant."""
    return einsum("ijkl,j,kl->i", posted_t4_cov(a, r), posted_t1_cov(a, r), posted_t2_cov(a, r), metric=None)


posted: dict[str, Wave] = {
    "Gt_con": posted_gt_con,
    "Gt_cov": posted_gt_cov,
    "P4": posted_p4,
    "T1_cov": posted_t1_cov,
    "T2_cov": posted_t2_cov,
    "T4_cov": posted_t4_cov,
    "phif243": posted_phif243,
}
