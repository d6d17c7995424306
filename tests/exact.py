"""Waves of one event in exact rational arithmetic, with all first derivatives and condition numbers.

A float64 is an integer times a power of two, so the four momenta become integers over one common power of two. With
D = p.p, R = D r - p (p.r) and G = D g - p p, all integers, the transverse r~ = R / D and g~ = G / D give

    t~1 = R / D
    t~2 = (3 R R - s G) / (3 D^2)                            s = r.R
    t~4 = (35 R R R R - 5 s (6 terms G R R) + s^2 (3 terms G G)) / (35 D^4)

and a wave is four integer numerators over one integer denominator. Derivatives are forward mode: each number carries
its 16 partial derivatives by the components of kp, km, pip, pim, in this order.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np

_METRIC = np.diag(np.array([-1, -1, -1, 1], dtype=object))
_PAIRS_ONCE = ("ijkl", "ikjl", "iljk", "jkil", "jlik", "klij")
_PAIRS_TWICE = ("ijkl", "ikjl", "iljk")


class Exact(NamedTuple):
    """A wave's four upper components and their derivatives by the 16 input components, as fractions."""

    value: list[Fraction]
    derivative: list[list[Fraction]]
    inputs: list[Fraction]

    def condition(self) -> Fraction:
        """The largest over the four components f of sum over inputs x of |x df/dx|."""
        return max(sum(abs(x * d) for x, d in zip(self.inputs, row, strict=True)) for row in self.derivative)


def phif243(kp, km, pip, pim) -> Exact:
    """t~4(psi; phi, f)^{mnls} t~1(phi; kp, km)_n t~2(f; pip, pim)_{ls}, phi = kp + km, f = pip + pim, psi = phi + f."""
    (kp, km, pip, pim), scale, inputs = _integers(kp, km, pip, pim)
    phi, f = kp + km, pip + pim
    t4, d4 = _orbital4(phi + f, phi - f)
    t1, d1 = _orbital1(phi, kp - km)
    t2, d2 = _orbital2(f, pip - pim)
    return _quotient(_einsum("mnls,n,ls->m", t4, t1.lower(), t2.lower()), d4 * d1 * d2, 7, scale, inputs)


def phif201(kp, km, pip, pim) -> Exact:
    """t~2(f; pip, pim)^{mn} t~1(phi; kp, km)_n, phi = kp + km, f = pip + pim."""
    (kp, km, pip, pim), scale, inputs = _integers(kp, km, pip, pim)
    t1, d1 = _orbital1(kp + km, kp - km)
    t2, d2 = _orbital2(pip + pim, pip - pim)
    return _quotient(_einsum("mn,n->m", t2, t1.lower()), d1 * d2, 3, scale, inputs)


class _Dual:
    """A tensor of Python integers and its 16 partial derivatives, these on a last axis of their own."""

    def __init__(self, value, partial):
        self.value, self.partial = np.asarray(value, dtype=object), np.asarray(partial, dtype=object)

    def __add__(self, other):
        return _Dual(self.value + other.value, self.partial + other.partial)

    def __sub__(self, other):
        return _Dual(self.value - other.value, self.partial - other.partial)

    def __mul__(self, other):
        """Times an integer, or times a dual of rank 0."""
        if isinstance(other, int):
            return _Dual(self.value * other, self.partial * other)
        return _Dual(
            self.value * other.value, self.partial * other.value + np.multiply.outer(self.value, other.partial)
        )

    def lower(self):
        """All indices lowered."""
        signs = np.diag(_METRIC)
        for _ in range(self.value.ndim - 1):
            signs = np.multiply.outer(signs, np.diag(_METRIC))
        return _Dual(self.value * signs, self.partial * signs[..., None])


def _einsum(spec, *duals):
    """numpy.einsum with the product rule; the letter z is the axis of the derivatives."""
    inputs, output = spec.split("->")
    terms = inputs.split(",")
    values = [d.value for d in duals]
    partial = 0
    for n, dual in enumerate(duals):
        with_z = [*terms[:n], terms[n] + "z", *terms[n + 1 :]]
        operands = [*values[:n], dual.partial, *values[n + 1 :]]
        partial = partial + np.einsum(f"{','.join(with_z)}->{output}z", *operands)
    return _Dual(np.einsum(spec, *values), partial)


def _transverse(p, r):
    """D, R and G of the module's formulas."""
    d = _einsum("m,m->", p, p.lower())
    vector = r * d - p * _einsum("m,m->", p, r.lower())
    metric = _Dual(_METRIC * d.value, np.multiply.outer(_METRIC, d.partial)) - _einsum("m,n->mn", p, p)
    return d, vector, metric


def _orbital1(p, r):
    """Numerator and denominator of t~1."""
    d, vector, _ = _transverse(p, r)
    return vector, d


def _orbital2(p, r):
    """Numerator and denominator of t~2."""
    d, vector, metric = _transverse(p, r)
    square = _einsum("m,m->", r, vector.lower())
    return _einsum("m,n->mn", vector, vector) * 3 - metric * square, d * d * 3


def _orbital4(p, r):
    """Numerator and denominator of t~4."""
    d, vector, metric = _transverse(p, r)
    square = _einsum("m,m->", r, vector.lower())
    pair = _einsum("m,n->mn", vector, vector)
    once, twice = _einsum("ij,kl->ijkl", metric, pair), _einsum("ij,kl->ijkl", metric, metric)
    total = _einsum("ij,kl->ijkl", pair, pair) * 35
    for order in _PAIRS_ONCE:
        total = total - _gathered(once, order) * square * 5
    for order in _PAIRS_TWICE:
        total = total + _gathered(twice, order) * square * square
    return total, d * d * d * d * 35


def _gathered(dual, order):
    """The tensor whose component ijkl is component `order` of the given one."""
    return _Dual(np.einsum(f"{order}->ijkl", dual.value), np.einsum(f"{order}z->ijklz", dual.partial))


def _integers(*momenta):
    """The momenta as integer duals in units of 1/scale, the scale, and the inputs as fractions."""
    inputs = [Fraction(x) for p in momenta for x in np.asarray(p).tolist()]
    scale = max(x.denominator for x in inputs)
    values = [int(x * scale) for x in inputs]
    identity = np.eye(len(inputs), dtype=int).astype(object)
    duals = [_Dual(values[n : n + 4], identity[n : n + 4]) for n in range(0, len(inputs), 4)]
    return duals, scale, inputs


def _quotient(numerator, denominator, degree, scale, inputs):
    """A wave that is homogeneous of a degree in the momenta, in the units of the inputs."""
    q, dq = denominator.value[()], denominator.partial
    value = [Fraction(n, q * scale**degree) for n in numerator.value]
    derivative = [
        [Fraction(d, q * q * scale ** (degree - 1)) for d in dn * q - n * dq]
        for n, dn in zip(numerator.value, numerator.partial, strict=True)
    ]
    return Exact(value, derivative, inputs)
