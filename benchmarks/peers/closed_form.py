"""phif243 = t~(4)(psi; R)^{mnls} t~(1)(phi; r1)_n t~(2)(f; r2)_{ls}, worked out by hand.

With R, t, q the projected vectors and u the projection of t on psi, t~(2) = q q - k g~(f), k = q.q/3, and

    t~(4) = R R R R - R.R/7 (6 terms g~ R R) + (R.R)^2/35 (3 terms g~ g~),

every contraction is a dot product. The same function serves all peers; what differs is what a vector is to them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple


class Algebra(NamedTuple):
    """The operations on vectors: a.b, a + b, a - b, s a."""

    dot: Callable[[Any, Any], Any]
    add: Callable[[Any, Any], Any]
    subtract: Callable[[Any, Any], Any]
    scale: Callable[[Any, Any], Any]


CONSTANTS = (1 / 3, 1 / 7, 1 / 35)


def six_vectors(algebra: Algebra, compiled: Callable = lambda function: function) -> Callable:
    """The function of the constants, psi, R, phi, r1, f, r2."""
    dot, add, subtract, scale = algebra

    @compiled
    def projected(p, v):
        return subtract(v, scale(dot(p, v) / dot(p, p), p))

    @compiled
    def phif243(constants, psi, r4, phi, r1, f, r2):
        third, seventh, thirtyfifth = constants
        R, t, q = projected(psi, r4), projected(phi, r1), projected(f, r2)
        u = projected(psi, t)
        RR, Rt, qR, qu, fR, fu = dot(R, R), dot(R, t), dot(q, R), dot(q, u), dot(f, R), dot(f, u)
        pp, ff, pq, pf = dot(psi, psi), dot(f, f), dot(psi, q), dot(psi, f)
        k = third * dot(q, q)
        R_t2_R = qR * qR - k * (RR - fR * fR / ff)
        u_t2_R = qu * qR - k * (Rt - fu * fR / ff)
        trace = k - pq * pq / pp - k * (pf * pf / (pp * ff))  # of t2 with g~(psi)
        A = seventh * RR
        B = thirtyfifth * RR * RR
        along_R, along_u = -(A + A) * Rt, B + B  # one term is t2 applied to along_R R + along_u u
        in_q = along_R * qR + along_u * qu
        in_f = k * (along_R * fR + along_u * fu) / ff
        w = projected(psi, add(scale(in_q, q), scale(in_f, f)))
        in_R = Rt * R_t2_R - A * (u_t2_R + u_t2_R + Rt * trace) - k * along_R
        in_u = B * trace - A * R_t2_R - k * along_u
        return add(w, add(scale(in_R, R), scale(in_u, u)))

    return phif243


def four_momenta(algebra: Algebra, compiled: Callable = lambda function: function) -> Callable:
    """The function of the constants, kp, km, pip, pim."""
    _, add, subtract, _ = algebra
    six = six_vectors(algebra, compiled)

    @compiled
    def phif243(constants, kp, km, pip, pim):
        phi, f = add(kp, km), add(pip, pim)
        return six(constants, add(phi, f), subtract(phi, f), phi, subtract(kp, km), f, subtract(pip, pim))

    return phif243


FORMS = {"six vectors": six_vectors, "four momenta": four_momenta}


def columns_algebra(compiled: Callable = lambda function: function) -> Algebra:
    """A vector is a tuple of its components x, y, z, E."""

    @compiled
    def dot(a, b):
        return a[3] * b[3] - a[0] * b[0] - a[1] * b[1] - a[2] * b[2]

    @compiled
    def add(a, b):
        return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]

    @compiled
    def subtract(a, b):
        return a[0] - b[0], a[1] - b[1], a[2] - b[2], a[3] - b[3]

    @compiled
    def scale(s, a):
        return s * a[0], s * a[1], s * a[2], s * a[3]

    return Algebra(dot, add, subtract, scale)
