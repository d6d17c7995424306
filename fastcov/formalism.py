"""The vocabulary of the covariant tensor formalism: what an amplitude is written in.

Every function takes 4-vectors and tensors under trace (inside a function given to `fastcov.fused`), or arrays of
components: then the result is a tensor built on arrays, which `fastcov.dense` evaluates. Equation numbers are those of
Zou and Bugg, Eur. Phys. J. A 16, 537 (hep-ph/0211457). The metric is diag(-1,-1,-1,+1) for (px, py, pz, E), and all
indices are upper unless `lower` made them lower.
"""

import numbers
from fractions import Fraction
from math import factorial, prod
from typing import Any

from . import contract, polynomial
from .components import scalar_polynomial, vector
from .deferred import deferrable, rank_of
from .graph import Graph, Node
from .tensors import (
    Epsilon,
    Factor,
    Metric,
    Projector,
    Scalar,
    Side,
    Tensor,
    Vector,
    graph_of,
    positions,
    rational,
    split_vector,
)

_FERMI = Fraction("0.197321")  # hbar c in GeV fm
Q0 = {"pwacg": _FERMI, "gpupwa": _FERMI / Fraction("0.728656"), "tfpwa": Fraction(1, 3)}
"""Barrier scales q0 in GeV that public analysis codes use: radii of 1 fm, 0.728656 fm, and 3/GeV."""


def metric() -> Tensor:
    """The metric g^{mn} = diag(-1,-1,-1,+1), rank 2."""
    return Tensor(None, {(Metric(None, 0, 1),): polynomial.constant(1)}, (False, False))


def levi_civita() -> Tensor:
    """The Levi-Civita tensor, rank 4, with epsilon_{xyzE} = +1 for lower indices (so epsilon^{xyzE} = -1)."""
    return Tensor(None, {(Epsilon((0, 1, 2, 3), ()),): polynomial.constant(1)}, (False,) * 4)


@deferrable(rank=lambda p: 2)
def transverse(p: Any) -> Tensor:
    """The transverse metric g~(p)^{mn} = g^{mn} - p^m p^n / p^2, rank 2; eq. (2). Domain: p^2 != 0."""
    node = _momentum(p)
    return Tensor(node.graph, {(Metric(node, 0, 1),): polynomial.constant(1)}, (False, False))


@deferrable(rank=lambda L, p: 2 * spin(L))
def projector(L: int, p: Any) -> Any:
    """The spin projector P^(L)(p), rank 2L; eqs. (20-22), for any L. Domain: p^2 != 0.

    Symmetric, traceless and transverse to p in its first L and in its last L indices. In the paper's sign
    P P = (-1)^L P, and contracting first with last indices gives (-1)^L (2L+1); so P^(1) = -g~(p).
    """
    node = _momentum(p)
    L = spin(L)
    if L == 0:
        return _unity(node.graph)
    sides = Side((), tuple(range(L))), Side((), tuple(range(L, 2 * L)))
    if L == 1:
        return Tensor(node.graph, {(Metric(node, 0, 1),): polynomial.constant(-1)}, (False, False))
    return Tensor(node.graph, {(Projector(L, node, *sides),): polynomial.constant(1)}, (False,) * (2 * L))


@deferrable(rank=lambda L, p, r: spin(L))
def orbital(L: int, p: Any, r: Any) -> Any:
    """The orbital tensor t~^(L)(p, r) = (-1)^L P^(L)(p) r...r, rank L; eqs. (10-12, 23), for any L.

    t~^(L) = sum_k c_k (r~^2)^k (sum over ways of putting g~(p) on k disjoint pairs of indices and r~ on the others),
    c_0 = 1, c_k = -c_{k-1} / (2L+1-2k), with r~ = g~(p) r. For a decay a -> b c: p = p_a, r = p_b - p_c. Symmetric,
    traceless, transverse to p. Domain: p^2 != 0.
    """
    node, relative = _momentum(p), _node(r, "r")
    L = spin(L)
    graph = graph_of(p, r)
    if L == 0:
        return _unity(graph)
    weight, projected = graph.transverse(node, relative)
    coefficient, projected = split_vector(projected)
    factor = polynomial.power(polynomial.scale(coefficient, weight), L)
    if L == 1:
        term: Factor = Vector(projected, 0)
    else:
        factor = polynomial.scale(factor, (-1) ** L)
        term = Projector(L, node, Side((projected,) * L, ()), Side((), tuple(range(L)))).ordered()
    return Tensor(graph, {(term,): factor} if factor else {}, (False,) * L)


@deferrable(rank=lambda t: rank_of(t))
def lower(t: Any) -> Any:
    """The tensor with all its indices lowered. Raises ValueError if one is lower already."""
    if isinstance(t, Scalar):
        return t
    _tensor(t, "t")
    if any(t.lower):
        raise ValueError(f"lower: the indices of t are {positions(t)}, not all upper")
    return Tensor(t.graph, t.terms, (True,) * t.rank)


@deferrable(rank=lambda a, b: 0)
def dot(a: Any, b: Any) -> Scalar:
    """The Lorentz product a.b = a_E b_E - a_x b_x - a_y b_y - a_z b_z of two 4-vectors."""
    u, v = _node(a, "a"), _node(b, "b")
    graph = graph_of(a, b)
    return Scalar(graph.dot(u, v))


@deferrable(rank=lambda x: 0)
def sqrt(x: Any) -> Scalar:
    """The square root of a scalar; NaN where it is negative."""
    if not isinstance(x, Scalar):
        raise TypeError(f"sqrt: x must be a traced scalar, not {type(x).__name__}")
    return Scalar(x.node.graph.sqrt(x.node))


def einsum(spec: str, *tensors: Any, metric: str | None = "lorentz") -> Any:
    """Contract tensors: `einsum("ijkl,j,kl->i", T4, t1, t2)`.

    The output is explicit, one letter is one index, events are implicit. A repeated index is contracted with the metric
    (of one upper and one lower index: summed plainly), so the result does not depend on where indices sit. Free indices
    keep their position. With `metric=None` components are summed as they stand, as numpy.einsum would.

    Rank 0 gives a scalar. Raises ValueError, naming the operand, for a spec that does not fit: an index more than
    twice, repeated and in the output, in the output only, in neither; a rank that differs from the number of indices.
    """
    if not isinstance(spec, str):
        raise TypeError(f"einsum: spec must be a text such as 'ij,j->i', not {type(spec).__name__}")
    if metric not in ("lorentz", None):
        raise ValueError(f"einsum: metric must be 'lorentz' or None, not {metric!r}")
    return _einsum(spec, *tensors, plain=metric is None)


@deferrable(rank=lambda spec, *tensors, plain: len(contract.parse(spec, [rank_of(t) for t in tensors])[1]))
def _einsum(spec: str, *tensors: Any, plain: bool) -> Any:
    operands = [_rank_zero(t) if isinstance(t, (Scalar, numbers.Real)) else t for t in tensors]
    for n, operand in enumerate(operands):
        if not isinstance(operand, Tensor):
            raise TypeError(f"einsum: operand {n} must be a tensor or a 4-vector, not {type(operand).__name__}")
    result = contract.einsum(spec, operands, plain)
    if result.rank:
        return result
    value = scalar_polynomial(result)
    if result.graph is None:
        return value.get(polynomial.ONE, Fraction(0))
    return Scalar(polynomial.to_node(result.graph, value))


def scale_qftpp(L: int) -> Fraction:
    """The factor between the orbital tensors of this package and those of qft++: t~^(L) = factor * K^(L).

    2^L L! / (2L-1)!!, exact: 2, 8/3, 16/5, 128/35 for L = 1, 2, 3, 4.
    """
    L = spin(L)
    return Fraction(2**L * factorial(L), prod(range(1, 2 * L, 2)))


@deferrable(rank=lambda a, b, c: 0)
def breakup2(a: Any, b: Any, c: Any) -> Scalar:
    """The break-up momentum squared of a decay a -> b c of 4-vectors; eq. (13).

    Q^2 = (s_a + s_b - s_c)^2 / (4 s_a) - s_b with s = p.p. Where a is b + c it is computed as -b~^2 with b~ = g~(a) b,
    which is the same and loses nothing near threshold. Negative below threshold. Domain: s_a != 0.
    """
    parent, first, second = _node(a, "a"), _node(b, "b"), _node(c, "c")
    graph = graph_of(a, b, c)
    if graph.vadd(first, second) is parent:
        weight, node = graph.transverse(parent, first)
        return Scalar(graph.scaled(graph.dot(node, node), -(weight**2)))
    sa, sb, sc = (Scalar(graph.dot(p, p)) for p in (parent, first, second))
    q2: Scalar = (sa + sb - sc) ** 2 / (4 * sa) - sb
    return q2


@deferrable(rank=lambda L, q2, q0: 0)
def barrier(L: int, q2: Any, q0: Any) -> Scalar:
    """The Blatt-Weisskopf barrier factor B_L of a decay, not normalised; eqs. (14-17), for any L.

    B_L = sqrt(c_L / sum_k a_k Q^2(L-k) q0^2k), B_L = q0^-L at Q = q0: B_1 = sqrt(2 / (Q^2 + q0^2)),
    B_2 = sqrt(13 / (Q^4 + 3 Q^2 q0^2 + 9 q0^4)), ... The polynomial is (x/q0)^(2L+2) times the squared modulus of the
    spherical Hankel function h_L at x = Q/q0, so a_k = (2k)! (L+k)! / (4^k k!^2 (L-k)!) and c_L is its sum.

    q2: the break-up momentum squared, `breakup2(a, b, c)`; q0: hbar c / radius, in the same unit, a positive number,
    the name of a preset of `Q0`, or a scalar. NaN where the polynomial is negative, below threshold.
    Raises ValueError for a q0 that is not positive or not known.
    """
    L = spin(L)
    if not isinstance(q2, Scalar):
        raise TypeError(f"barrier: q2 must be a traced scalar, not {type(q2).__name__}")
    if not isinstance(q0, Scalar):
        q0 = scale_of_barrier(q0)
    weights = barrier_weights(L)
    total: Any = 1
    for k in range(1, L + 1):  # Horner in Q^2
        total = total * q2 + weights[k] * q0 ** (2 * k)
    return sqrt(sum(weights) / total) if L else Scalar(q2.node.graph.constant(1))


def barrier_weights(L: int) -> list[int]:
    """a_0 ... a_L of the barrier polynomial sum_k a_k Q^2(L-k) q0^2k."""
    return [factorial(2 * k) * factorial(L + k) // (4**k * factorial(k) ** 2 * factorial(L - k)) for k in range(L + 1)]


def scale_of_barrier(q0: Any) -> Fraction:
    """A barrier scale given as a number or by the name of a preset. Raises ValueError unless it is positive."""
    if isinstance(q0, str):
        if q0 not in Q0:
            raise ValueError(f"q0 must be a positive number or one of {', '.join(map(repr, Q0))}, not {q0!r}")
        return Q0[q0]
    number = rational(q0)
    if number is None:
        raise TypeError(f"q0 must be a number, a preset or a scalar, not {type(q0).__name__}")
    if number <= 0:
        raise ValueError(f"q0 must be positive, not {q0!r}")
    return number


def spin(L: int) -> int:
    """L as an int. Raises ValueError unless it is a non-negative integer."""
    if isinstance(L, bool) or not isinstance(L, numbers.Integral) or L < 0:
        raise ValueError(f"L must be a non-negative integer, not {L!r}")
    return int(L)


def _tensor(t: object, name: str) -> None:
    if not isinstance(t, Tensor):
        raise TypeError(f"{name} must be a tensor or a 4-vector, not {type(t).__name__}")


def _node(v: Any, name: str) -> Node:
    _tensor(v, name)
    if v.rank != 1 or v.graph is None:
        raise ValueError(f"{name} must be a 4-vector, not a tensor of rank {v.rank}")
    plain = v.plain_vector()
    return vector(v.graph, Tensor(v.graph, v.terms, (False,))) if plain is None else plain


def _momentum(p: Any) -> Node:
    """The node of p up to a constant factor, on which g~(p) does not depend."""
    coefficient, node = split_vector(_node(p, "p"))
    return node if set(coefficient) == {polynomial.ONE} else _node(p, "p")


def _unity(graph: Graph) -> Scalar:
    return Scalar(graph.constant(1))


def _rank_zero(s: Any) -> Tensor:
    if isinstance(s, Scalar):
        return Tensor(s.node.graph, {(): polynomial.from_node(s.node)}, ())
    number = rational(s)
    return Tensor(None, {(): polynomial.constant(number)} if number else {}, ())
