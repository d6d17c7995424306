"""Polynomials with rational coefficients in scalar nodes: the coefficients of tensor terms.

A monomial is a tuple of (node, power), sorted by node, powers of either sign; a polynomial maps monomials to
coefficients. Dot products stay apart here, so that terms can cancel and common factors be found; `to_node` writes the
result down with few multiplications.
"""

from collections import Counter
from fractions import Fraction
from math import gcd
from typing import Any

from .graph import Graph, Node

Monomial = tuple[tuple[Node, int], ...]
Polynomial = dict[Monomial, Fraction]

ONE: Monomial = ()
LARGEST = 256  # bits of a coefficient's numerator and denominator; beyond, it stays in its node as well
LONGEST = 64  # factors; what a loop makes longer is taken for one atom, as nothing will cancel in it


def constant(value: Fraction | int) -> Polynomial:
    return {ONE: Fraction(value)} if value else {}


def from_node(node: Node) -> Polynomial:
    """The polynomial of a node: one monomial, its products and constant factors taken apart, unless too many."""
    coefficient, powers = _split(node)
    return {_monomial(powers): coefficient} if coefficient else {}


def _split(node: Node) -> tuple[Fraction, dict[Node, int]]:
    coefficient = Fraction(1)
    powers: dict[Node, int] = {}
    waiting = [node]
    for _ in range(LONGEST):
        if not waiting:
            if _is_short(coefficient) or not powers:
                return coefficient, powers
            break
        factor = waiting.pop()
        match factor.op:
            case "constant":
                coefficient *= factor.args[0]
            case "neg":
                coefficient = -coefficient
                waiting.append(factor.args[0])
            case "mul_constant":
                coefficient *= factor.args[1]
                waiting.append(factor.args[0])
            case "mul":
                waiting.extend(factor.args)
            case "reciprocal":
                powers[factor.args[0]] = powers.get(factor.args[0], 0) - 1
            case _:
                powers[factor] = powers.get(factor, 0) + 1
    return Fraction(1), {node: 1}


def _is_short(coefficient: Fraction) -> bool:
    return max(coefficient.numerator.bit_length(), coefficient.denominator.bit_length()) <= LARGEST


def _merged(a: dict[Node, int], b: dict[Node, int]) -> dict[Node, int]:
    total = dict(a)
    for node, power in b.items():
        total[node] = total.get(node, 0) + power
    return total


def _monomial(powers: dict[Node, int]) -> Monomial:
    return tuple(sorted(((n, p) for n, p in powers.items() if p), key=lambda item: item[0].key))


def times(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    return _monomial(_merged(dict(a), dict(b)))


def add_to(total: Polynomial, other: Polynomial, weight: Fraction | int = 1) -> None:
    """total += weight * other, in place."""
    for monomial, value in other.items():
        new = total.get(monomial, 0) + weight * value
        if new:
            total[monomial] = Fraction(new)
        else:
            total.pop(monomial, None)


def multiply(a: Polynomial, b: Polynomial) -> Polynomial:
    total: Polynomial = {}
    for m, c in a.items():
        for n, d in b.items():
            add_to(total, {times(m, n): c * d})
    return total


def scale(a: Polynomial, value: Fraction | int) -> Polynomial:
    return {m: c * value for m, c in a.items()} if value else {}


def shortened(graph: Graph | None, a: Polynomial) -> Polynomial:
    """The same value, in one atom if it has become long."""
    factors = sum(abs(power) for monomial in a for _, power in monomial)
    if graph is None or not factors or (factors <= LONGEST and all(map(_is_short, a.values()))):
        return a
    return {((to_node(graph, a), 1),): Fraction(1)}


def power(a: Polynomial, exponent: int) -> Polynomial:
    total = constant(1)
    for _ in range(exponent):
        total = multiply(total, a)
    return total


def content(polynomials: list[Polynomial]) -> tuple[Fraction, Monomial]:
    """The largest factor, coefficient and monomial, that divides every term of every (non-zero) polynomial.

    Its sign makes the first term of the first polynomial positive.
    """
    terms = [term for polynomial in polynomials for term in polynomial.items()]
    numerator, denominator = 0, 1
    for _, value in terms:
        numerator = gcd(numerator, value.numerator)
        denominator = denominator * value.denominator // gcd(denominator, value.denominator)
    first = min(polynomials[0], key=_order)
    sign = -1 if polynomials[0][first] < 0 else 1
    common = dict(terms[0][0])
    for monomial, _ in terms[1:]:
        powers = dict(monomial)
        common = {
            n: min(p, powers[n]) if p > 0 else max(p, powers[n]) for n, p in common.items() if p * powers.get(n, 0) > 0
        }
    return Fraction(sign * numerator, denominator), _monomial(common)


def divided(a: Polynomial, value: Fraction, monomial: Monomial) -> Polynomial:
    inverse = tuple((n, -p) for n, p in monomial)
    return {times(m, inverse): c / value for m, c in a.items()}


def to_node(graph: Graph, a: Polynomial) -> Node:
    """The value of a polynomial, factored greedily: P = x Q + R by the atom x that most terms share."""
    done: list[Node] = []
    waiting: list[Polynomial | tuple[Fraction, Monomial] | None] = [a]  # to be valued, to be multiplied with, to add up
    while waiting:
        one = waiting.pop()
        if one is None:
            last = done.pop()
            done.append(graph.add(done.pop(), last))
        elif isinstance(one, tuple):
            value, common = one
            done.append(graph.scaled(_times_monomial(graph, done.pop(), common), value))
        elif not one or one == {ONE: 1}:
            done.append(graph.constant(len(one)))
        else:
            value, common = content([one])
            first, *others = _parts(divided(one, value, common))
            waiting.append((value, common))
            for other in reversed(others):
                waiting += (None, other)
            waiting.append(first)
    return done[0]


def _times_monomial(graph: Graph, node: Node, monomial: Monomial) -> Node:
    product = graph.constant(1)
    for atom, power in monomial:
        product = graph.mul(product, graph.power(atom, power))
    return graph.mul(product, node)


def _parts(a: Polynomial) -> list[Polynomial]:
    """A polynomial without common factor as the sum of parts that have one."""
    counts = Counter((n, p > 0) for monomial in a for n, p in monomial)
    if not counts:
        return [a]
    (atom, positive), count = min(counts.items(), key=lambda item: (-item[1], item[0][0].key, item[0][1]))
    if count == 1:
        return [{m: c} for m, c in sorted(a.items(), key=_item_order)]
    inside = {m: c for m, c in a.items() if any(n is atom and (p > 0) == positive for n, p in m)}
    return [inside, {m: c for m, c in a.items() if m not in inside}]


def _order(monomial: Monomial) -> tuple[Any, ...]:
    return tuple((n.key, p) for n, p in monomial)


def _item_order(item: tuple[Monomial, Fraction]) -> tuple[Any, ...]:
    return _order(item[0])
