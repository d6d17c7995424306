"""Partial waves of psi -> K+K- pi+pi-, written as in the paper.

Each wave takes the four momenta and gives the amplitude's four-vector, upper components; contracted with the psi's
polarisation it is the wave's amplitude without its coupling and resonance factors. Equation numbers are those of Zou
and Bugg, Eur. Phys. J. A 16, 537 (hep-ph/0211457). In the formulas, with phi = kp + km, f = pip + pim, psi = phi + f,

    T(L) = t~(L)(psi; phi, f) B_L      t1 = t~(1)(phi; kp, km) B_1      t2 = t~(2)(f; pip, pim) B_2

and each barrier factor B_L is that of its own decay. Every wave of four momenta has two keywords: `q0`, the barrier
scale hbar c / radius in the unit of the momenta, a number or a preset ("pwacg": 1 fm, "gpupwa", "tfpwa"; these are in
GeV), and `barrier=False`, which leaves the barrier factors out. Momenta in another unit than GeV need a q0 in that
unit.

Domain: p^2 != 0 for every decaying system; NaN for events below threshold where the barrier polynomial is negative.
"""

from typing import Any

from .formalism import barrier as blatt_weisskopf
from .formalism import breakup2, einsum, levi_civita, orbital, projector, transverse
from .fused import Fused, fused
from .tensors import Tensor


def decay(L: int, a: Tensor, b: Tensor, c: Tensor, q0: Any, barrier: bool) -> Any:
    """t~(L)(a; b, c), times B_L if `barrier`: the orbital tensor of the decay a -> b c."""
    t = orbital(L, a, b - c)
    return blatt_weisskopf(L, breakup2(a, b, c), q0) * t if barrier else t


# psi -> phi f_J, phi -> K+K-, f_J -> pi+pi-


@fused
def phif001(kp, km, pip, pim, *, q0="pwacg", barrier=True):
    """psi -> phi f0, S wave: t1^m; eq. (36)."""
    return decay(1, kp + km, kp, km, q0, barrier)


@fused
def phif021(kp, km, pip, pim, *, q0="pwacg", barrier=True):
    """psi -> phi f0, D wave: T2^{mn} t1_n; eq. (37)."""
    phi, f = kp + km, pip + pim
    T2 = decay(2, phi + f, phi, f, q0, barrier)
    t1 = decay(1, phi, kp, km, q0, barrier)
    return einsum("mn,n->m", T2, t1)


@fused
def phif201(kp, km, pip, pim, *, q0="pwacg", barrier=True):
    """psi -> phi f2, S wave: t2^{mn} t1_n; eq. (41)."""
    phi, f = kp + km, pip + pim
    t1 = decay(1, phi, kp, km, q0, barrier)
    t2 = decay(2, f, pip, pim, q0, barrier)
    return einsum("mn,n->m", t2, t1)


@fused
def phif221(kp, km, pip, pim, *, q0="pwacg", barrier=True):
    """psi -> phi f2, D wave, total spin 1: T2^{ma} t2_{an} t1^n; eq. (42)."""
    phi, f = kp + km, pip + pim
    T2 = decay(2, phi + f, phi, f, q0, barrier)
    t1 = decay(1, phi, kp, km, q0, barrier)
    t2 = decay(2, f, pip, pim, q0, barrier)
    return einsum("ma,an,n->m", T2, t2, t1)


@fused
def phif222(kp, km, pip, pim, *, q0="pwacg", barrier=True):
    """psi -> phi f2, D wave, total spin 2; eq. (43).

    e^{mabc} psi_a T2_b^d [ e_{clsn} t2^l_d + e_{dlsn} t2^l_c ] psi^s t1^n
    """
    phi, f = kp + km, pip + pim
    psi = phi + f
    T2 = decay(2, psi, phi, f, q0, barrier)
    t1 = decay(1, phi, kp, km, q0, barrier)
    t2 = decay(2, f, pip, pim, q0, barrier)
    e = levi_civita()
    spin = einsum("clsn,ld,s,n->cd", e, t2, psi, t1) + einsum("dlsn,lc,s,n->cd", e, t2, psi, t1)
    return einsum("mabc,a,bd,cd->m", e, psi, T2, spin)


@fused
def phif223(kp, km, pip, pim, *, q0="pwacg", barrier=True):
    """psi -> phi f2, D wave, total spin 3: P3(psi)^{mabcdn} T2_{ab} t2_{cd} t1_n; eq. (44)."""
    phi, f = kp + km, pip + pim
    psi = phi + f
    T2 = decay(2, psi, phi, f, q0, barrier)
    t1 = decay(1, phi, kp, km, q0, barrier)
    t2 = decay(2, f, pip, pim, q0, barrier)
    return einsum("mabcdn,ab,cd,n->m", projector(3, psi), T2, t2, t1)


@fused
def phif243(kp, km, pip, pim, *, q0="pwacg", barrier=True):
    """psi -> phi f2, G wave: T4^{mnls} t1_n t2_{ls}; eq. (45)."""
    phi, f = kp + km, pip + pim
    T4 = decay(4, phi + f, phi, f, q0, barrier)
    t1 = decay(1, phi, kp, km, q0, barrier)
    t2 = decay(2, f, pip, pim, q0, barrier)
    return einsum("mnls,n,ls->m", T4, t1, t2)


@fused
def phif243_of_vertices(psi, r4, phi, r1, f, r2):
    """The tensor part of phif243 from the momentum and relative momentum of each vertex; eq. (45) without barriers.

    t~(4)(psi, r4)^{mnls} t~(1)(phi, r1)_n t~(2)(f, r2)_{ls}
    """
    return einsum("mnls,n,ls->m", orbital(4, psi, r4), orbital(1, phi, r1), orbital(2, f, r2))


@fused
def phif4(kp, km, pip, pim, *, q0="pwacg", barrier=True):
    """psi -> phi f4, D wave, in the natural coupling: t4^{mnls} T2_{nl} t1_s, t4 = t~(4)(f; pip, pim) B_4.

    No published formula for this wave was found; it is the contraction of the tensors of the decay chain that leaves
    the psi's index, as in eq. (41), with the orbital tensor of lowest spin that can reach spin 4. For want of values by
    others it is in no group of waves, `all` included.
    """
    phi, f = kp + km, pip + pim
    T2 = decay(2, phi + f, phi, f, q0, barrier)
    t1 = decay(1, phi, kp, km, q0, barrier)
    t4 = decay(4, f, pip, pim, q0, barrier)
    return einsum("mnls,nl,s->m", t4, T2, t1)


# psi -> b1 pi, b1 -> phi pi: b = phi + pip, with the spectator pim; the waves _2 swap pi+ and pi-


@fused
def u_SS_1(kp, km, pip, pim, *, q0="pwacg", barrier=True):
    """psi -> b1+ pi-, b1 -> phi pi, S and S wave: g~(b)^{mn} t1_n; eq. (47)."""
    phi = kp + km
    t1 = decay(1, phi, kp, km, q0, barrier)
    return einsum("mn,n->m", transverse(phi + pip), t1)


@fused
def u_SD_1(kp, km, pip, pim, *, q0="pwacg", barrier=True):
    """psi -> b1+ pi-, b1 -> phi pi, S and D wave: t~(2)(b; phi, pip)^{mn} B_2 t1_n; eq. (48)."""
    phi = kp + km
    t1 = decay(1, phi, kp, km, q0, barrier)
    tb = decay(2, phi + pip, phi, pip, q0, barrier)
    return einsum("mn,n->m", tb, t1)


@fused
def u_DS_1(kp, km, pip, pim, *, q0="pwacg", barrier=True):
    """psi -> b1+ pi-, b1 -> phi pi, D and S wave: T^{mn} g~(b)_{nl} t1^l, T = t~(2)(psi; b, pim) B_2; eq. (49)."""
    phi = kp + km
    b = phi + pip
    T2 = decay(2, b + pim, b, pim, q0, barrier)
    t1 = decay(1, phi, kp, km, q0, barrier)
    return einsum("mn,nl,l->m", T2, transverse(b), t1)


@fused
def u_DD_1(kp, km, pip, pim, *, q0="pwacg", barrier=True):
    """psi -> b1+ pi-, b1 -> phi pi, D and D wave: T^{mn} t~(2)(b; phi, pip)_{nl} B_2 t1^l, T as in u_DS_1; eq. (50)."""
    phi = kp + km
    b = phi + pip
    T2 = decay(2, b + pim, b, pim, q0, barrier)
    t1 = decay(1, phi, kp, km, q0, barrier)
    tb = decay(2, b, phi, pip, q0, barrier)
    return einsum("mn,nl,l->m", T2, tb, t1)


# psi -> rho' pi, rho' -> phi pi: rho = phi + pim, with the spectator pip


@fused
def u_rho_1(kp, km, pip, pim, *, q0="pwacg", barrier=True):
    """psi -> rho'- pi+, rho' -> phi pi; eq. (46).

    e^m_{abc} psi^a T1^b e^{cdsl} psi_d t_s t1_l,  T1 = t~(1)(psi; rho, pip) B_1,  t = t~(1)(rho; phi, pim) B_1
    """
    phi = kp + km
    rho = phi + pim
    psi = rho + pip
    T1 = decay(1, psi, rho, pip, q0, barrier)
    t = decay(1, rho, phi, pim, q0, barrier)
    t1 = decay(1, phi, kp, km, q0, barrier)
    e = levi_civita()
    return einsum("mabc,a,b,cdsl,d,s,l->m", e, psi, T1, e, psi, t, t1)


def _swapped(wave: Fused, doc: str) -> Fused:
    def other(kp, km, pip, pim, *, q0="pwacg", barrier=True):
        return wave(kp, km, pim, pip, q0=q0, barrier=barrier)

    other.__name__ = other.__qualname__ = wave.__name__.removesuffix("1") + "2"
    other.__doc__ = doc
    swapped: Fused = fused(other)
    return swapped


u_SS_2 = _swapped(u_SS_1, "u_SS_1 with pi+ and pi- exchanged: psi -> b1- pi+; eq. (47).")
u_SD_2 = _swapped(u_SD_1, "u_SD_1 with pi+ and pi- exchanged: psi -> b1- pi+; eq. (48).")
u_DS_2 = _swapped(u_DS_1, "u_DS_1 with pi+ and pi- exchanged: psi -> b1- pi+; eq. (49).")
u_DD_2 = _swapped(u_DD_1, "u_DD_1 with pi+ and pi- exchanged: psi -> b1- pi+; eq. (50).")
u_rho_2 = _swapped(u_rho_1, "u_rho_1 with pi+ and pi- exchanged: psi -> rho'+ pi-; eq. (46).")

psi_phi_f = (phif001, phif021, phif201, phif221, phif222, phif223, phif243)
psi_b1_pi = (u_SS_1, u_SS_2, u_SD_1, u_SD_2, u_DS_1, u_DS_2, u_DD_1, u_DD_2)
psi_rho_pi = (u_rho_1, u_rho_2)
all = (*psi_phi_f, *psi_b1_pi, *psi_rho_pi)
