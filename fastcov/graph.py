"""The graph of scalars and 4-vectors that an amplitude becomes, before it is written down as a tape.

Nodes are hash-consed: asking twice for the same operation on the same operands gives the same node, so whatever an
amplitude, or a bundle of amplitudes, has in common is computed once. Simplification happens where a node is made.
Components are contravariant; `dot` is the Lorentz product.

Wherever an order is needed, of the factors of a product or the terms of a sum, it is that of `Node.key`, which depends
on what a node computes and not on what else is in the graph: so an amplitude has the same bits alone and in a bundle.
Nothing here recurses along the graph, which may be as deep as a tape is long.
"""

from collections.abc import Iterable
from fractions import Fraction
from hashlib import blake2b
from typing import Any

Linear = dict["Node", Fraction]

_SIMPLER_IN_DOT = ("vneg", "vscale", "vscale_constant", "unit")
SPELT_HEIGHT = 128  # up to this height over the inputs a node's key spells out its operands' keys


class Node:
    """One operation. `op` is a name of the opcode table, or one of the kinds that exist only in the graph:

    input (index, name)      a 4-vector or scalar given by the caller
    zero_vector ()           all components 0
    transverse (p, v)        v - p (p.v) / p^2
    """

    __slots__ = ("_digest", "args", "graph", "id", "is_vector", "key", "linear", "op")

    def __init__(self, graph: "Graph", op: str, args: tuple[Any, ...], is_vector: bool):
        self.graph, self.op, self.args, self.is_vector = graph, op, args, is_vector
        self.id = len(graph.nodes)
        self._digest: bytes | None = None
        height = max([a.key[0] + 1 for a in args if isinstance(a, Node)], default=0)
        spelt = height <= SPELT_HEIGHT
        self.key: tuple[Any, ...] = (
            height,
            op,
            tuple(a.key if isinstance(a, Node) else a for a in args) if spelt else self.digest(),
        )
        self.linear: Linear = {self: Fraction(1)}

    def digest(self) -> bytes:
        """A hash of what the node computes, the same in every process: its key where spelling that out is too long."""
        if self._digest is None:
            words = [self.op]
            for a in self.args:
                if isinstance(a, Node):
                    words.append(a.digest().hex())
                elif isinstance(a, Fraction):
                    words.append(f"{a.numerator:x}/{a.denominator:x}")  # of any length, which decimals are not
                else:
                    words.append(repr(a))
            self._digest = blake2b(" ".join(words).encode(), digest_size=16).digest()
        return self._digest

    def __repr__(self) -> str:
        words = " ".join(f"%{a.id}" if isinstance(a, Node) else str(a) for a in self.args)
        return f"%{self.id} = {self.op} {words}"


class Graph:
    """Makes nodes. Every method returns a node of this graph.

    flatten: whether sums of 4-vectors are taken apart into what they are sums of, and added up in one order. It lets
    equal momenta be recognised however they were added up; in derivatives the partial sums are worth keeping.
    """

    def __init__(self, flatten: bool = True) -> None:
        self.nodes: dict[tuple[Any, ...], Node] = {}
        self.flatten = flatten

    def _node(self, op: str, *args: Any, vector: bool = False) -> Node:
        key = (op, *args)
        node = self.nodes.get(key)
        if node is None:
            node = self.nodes[key] = Node(self, op, args, vector)
        return node

    def input(self, index: int, name: str, vector: bool) -> Node:
        return self._node("input", index, name, vector=vector)

    # Scalars

    def constant(self, value: Fraction | int) -> Node:
        return self._node("constant", Fraction(value))

    def add(self, a: Node, b: Node) -> Node:
        if a.op == "constant":
            a, b = b, a
        if b.op == "constant":
            value = b.args[0]
            if a.op == "constant":
                return self.constant(a.args[0] + value)
            return self._node("add_constant", a, value) if value else a
        if b.op == "neg":
            return self.sub(a, b.args[0])
        if a.op == "neg":
            return self.sub(b, a.args[0])
        return self._node("add", *sorted((a, b), key=_key))

    def sub(self, a: Node, b: Node) -> Node:
        if a is b and a.op == "constant":
            return self.constant(0)
        if b.op == "constant" or b.op == "neg":
            return self.add(a, self.neg(b))
        if a.op == "constant":
            return self.add(self.neg(b), a) if a.args[0] else self.neg(b)
        return self._node("sub", a, b)

    def mul(self, a: Node, b: Node) -> Node:
        if a.op == "constant":
            a, b = b, a
        if b.op == "constant":
            return self.scaled(a, b.args[0])
        if a.op == "neg":
            return self.neg(self.mul(a.args[0], b))
        if b.op == "neg":
            return self.neg(self.mul(a, b.args[0]))
        return self._node("mul", *sorted((a, b), key=_key))

    def scaled(self, a: Node, value: Fraction | int) -> Node:
        """a times a constant."""
        while True:
            if a.op == "constant":
                return self.constant(a.args[0] * value)
            if value == 0:
                return self.constant(0)
            if value == 1:
                return a
            if value == -1:
                return self.neg(a)
            if a.op == "neg":
                a, value = a.args[0], -value
            elif a.op == "mul_constant" and is_ordinary(a.args[1] * value):
                a, value = a.args[0], a.args[1] * value
            else:
                return self._node("mul_constant", a, value)

    def neg(self, a: Node) -> Node:
        if a.op == "constant":
            return self.constant(-a.args[0])
        if a.op == "neg":
            return _operand(a, 0)
        if a.op == "mul_constant":
            return self._node("mul_constant", a.args[0], -a.args[1])
        if a.op == "sub":
            return self.sub(a.args[1], a.args[0])
        return self._node("neg", a)

    def div(self, a: Node, b: Node) -> Node:
        if b.op == "constant" and b.args[0]:
            return self.scaled(a, 1 / b.args[0])
        if a.op == "constant":
            return self.scaled(self.reciprocal(b), a.args[0])
        return self._node("div", a, b)

    def reciprocal(self, a: Node) -> Node:
        if a.op == "constant" and a.args[0]:
            return self.constant(1 / a.args[0])
        if a.op == "reciprocal":
            return _operand(a, 0)
        if a.op == "neg":
            return self.neg(self.reciprocal(a.args[0]))
        return self._node("reciprocal", a)

    def power(self, a: Node, exponent: int) -> Node:
        """a to an integer power by repeated squaring."""
        if exponent < 0:
            return self.power(self.reciprocal(a), -exponent)
        if exponent == 0:
            return self.constant(1)
        result = a
        for bit in f"{exponent:b}"[1:]:
            result = self.mul(result, result)
            if bit == "1":
                result = self.mul(result, a)
        return result

    def sqrt(self, a: Node) -> Node:
        return self._node("sqrt", a)

    def dot(self, a: Node, b: Node) -> Node:
        """a.b, with what is known to vanish or to factor taken out."""
        multiples: list[Node] = []
        while True:
            a, b = sorted((a, b), key=_key)
            if a.op == "zero_vector" or b.op == "zero_vector" or orthogonal(a, b) or orthogonal(b, a):
                product = self.constant(0)
                break
            if a.op == "vlower" and b.op == "vlower":
                a, b = a.args[0], b.args[0]
                continue
            if a.op not in _SIMPLER_IN_DOT:
                a, b = b, a
            if a.op == "unit":
                part = self.component(b, a.args[0])
                product = part if a.args[0] == 3 else self.neg(part)
                break
            if a.op not in _SIMPLER_IN_DOT:
                product = self._node("dot", b, a)
                break
            multiples.append(a)
            a = a.args[1] if a.op == "vscale" else a.args[0]
        for multiple in reversed(multiples):
            match multiple.op:
                case "vneg":
                    product = self.neg(product)
                case "vscale":
                    product = self.mul(multiple.args[0], product)
                case "vscale_constant":
                    product = self.scaled(product, multiple.args[1])
        return product

    def component(self, a: Node, index: int) -> Node:
        if a.op == "zero_vector":
            return self.constant(0)
        if a.op == "unit":
            return self.constant(int(a.args[0] == index))
        if a.op == "pack":
            return _operand(a, index)
        if a.op == "vlower":
            part = self.component(a.args[0], index)
            return part if index == 3 else self.neg(part)
        return self._node("component", a, index)

    # Vectors

    def zero_vector(self) -> Node:
        return self._linear("zero_vector", (), {})

    def unit(self, index: int) -> Node:
        return self._node("unit", index, vector=True)

    def pack(self, *parts: Node) -> Node:
        if all(part.op == "component" and part.args[1] == n for n, part in enumerate(parts)):
            whole = _operand(parts[0], 0)
            if all(part.args[0] is whole for part in parts):
                return whole
        return self._node("pack", *parts, vector=True)

    def vadd(self, a: Node, b: Node) -> Node:
        return self.combination(_combine((a.linear, 1), (b.linear, 1)))

    def vsum(self, vectors: Iterable[Node]) -> Node:
        return self.combination(_combine(*((vector.linear, 1) for vector in vectors)))

    def vsub(self, a: Node, b: Node) -> Node:
        return self.combination(_combine((a.linear, 1), (b.linear, -1)))

    def vneg(self, a: Node) -> Node:
        return self.combination(_combine((a.linear, -1)))

    def vscaled(self, a: Node, value: Fraction | int) -> Node:
        """A vector times a constant."""
        return self.combination(_combine((a.linear, value)))

    def combination(self, linear: Linear) -> Node:
        """The vector that is this linear combination of vectors which are none themselves.

        However it came about, it is added up in one order, that of the vectors' keys.
        """
        sizes = {abs(weight) for weight in linear.values()}
        if len(linear) > 1 and len(sizes) == 1 and sizes != {1}:
            (size,) = sizes
            base = self.combination({leaf: weight / size for leaf, weight in linear.items()})
            return self._linear("vscale_constant", (base, size), linear)
        total = self.zero_vector()
        done: Linear = {}
        for leaf in sorted(linear, key=_key):
            weight = done[leaf] = linear[leaf]
            if total.op == "zero_vector":
                total = self._multiple(leaf, weight)
            else:
                op = "vadd" if weight > 0 else "vsub"
                total = self._linear(op, (total, self._multiple(leaf, abs(weight))), done)
        return total

    def _multiple(self, leaf: Node, weight: Fraction) -> Node:
        if weight == 1:
            return leaf
        op, args = ("vneg", (leaf,)) if weight == -1 else ("vscale_constant", (leaf, weight))
        return self._linear(op, args, {leaf: weight})

    def _linear(self, op: str, args: tuple[Any, ...], linear: Linear) -> Node:
        node = self._node(op, *args, vector=True)
        if node in node.linear and (self.flatten or len(linear) < 2):  # it is new
            node.linear = dict(linear)
        return node

    def vscale(self, s: Node, a: Node) -> Node:
        if s.op == "constant":
            return self.vscaled(a, s.args[0])
        if a.op == "zero_vector":
            return a
        if s.op == "neg":
            return self.vneg(self.vscale(s.args[0], a))
        if a.op == "vneg":
            return self.vneg(self.vscale(s, a.args[0]))
        return self._node("vscale", s, a, vector=True)

    def vlower(self, a: Node) -> Node:
        """The components with the three of space negated: a with its index lowered, or its parity image."""
        if a.op == "zero_vector":
            return a
        if a.op == "vlower":
            return _operand(a, 0)
        if a.op == "unit":
            return a if a.args[0] == 3 else self.vneg(a)
        if a.op == "vneg":
            return self.vneg(self.vlower(a.args[0]))
        return self._node("vlower", a, vector=True)

    def cross(self, a: Node, b: Node, c: Node) -> tuple[int, Node]:
        """epsilon^m_{nrs} a^n b^r c^s as (sign, node), the operands sorted."""
        if len({a, b, c}) < 3:
            return 0, self.zero_vector()
        sign, ordered = sort_sign((a, b, c))
        return sign, self._node("cross", *ordered, vector=True)

    def transverse(self, p: Node, v: Node) -> tuple[Fraction, Node]:
        """g~(p) v as (factor, node).

        v is only known up to a multiple of p, so the shortest of the equal combinations is projected: at a decay
        p -> b c the vectors b, c and b - c all give one node, up to the factor.
        """
        if v.op == "zero_vector" or orthogonal(v, p):
            return Fraction(1), v
        best = v.linear
        for leaf, weight in p.linear.items():
            if leaf in v.linear:
                other = _combine((v.linear, 1), (p.linear, -v.linear[leaf] / weight))
                if (len(other), *_shape(other)) < (len(best), *_shape(best)):
                    best = other
        if not best:
            return Fraction(1), self.zero_vector()
        factor = best[min(best, key=_key)]
        shortest = self.combination({leaf: weight / factor for leaf, weight in best.items()})
        return factor, self._node("transverse", p, shortest, vector=True)

    def vsub_scaled(self, a: Node, s: Node, b: Node) -> Node:
        """a - s b"""
        if s.op == "constant":
            return self.vsub(a, self.vscaled(b, s.args[0]))
        return self._node("vsub_scaled", a, s, b, vector=True)

    def zeros(self) -> Node:
        return self._node("pack", *[self.constant(0)] * 4, vector=True)

    def copied(self, node: Node, args: list[Any]) -> Node:
        """The operation of a node of another graph on these operands, just as it is."""
        return self._node(node.op, *args, vector=node.is_vector)

    def recorded(self, op: str, args: list[Any], is_vector: bool) -> Node:
        """An operation just as it is, operands in order, except that a projection written out is recognised.

        Two changes of sign are none, so that those of derivatives of derivatives do not pile up.
        """
        if op in ("neg", "vneg", "vlower") and args[0].op == op:
            return _operand(args[0], 0)
        if op in ("add", "mul", "dot", "vadd"):
            args = sorted(args, key=_key)
        if op == "vsub_scaled":
            v, along, p = args
            if along is self.mul(self.dot(p, v), self.reciprocal(self.dot(p, p))):
                return self._node("transverse", p, v, vector=True)
        return self._node(op, *args, vector=is_vector)


def is_ordinary(value: Fraction) -> bool:
    """Whether float64 has the constant, in its full precision."""
    return abs(value.numerator.bit_length() - value.denominator.bit_length()) < 1000


def orthogonal(v: Node, p: Node) -> bool:
    """Whether v.p = 0 by the way v was made."""
    return (v.op == "transverse" and v.args[0] is p) or (v.op == "cross" and p in v.args)


def sort_sign(items: Iterable[Node]) -> tuple[int, tuple[Node, ...]]:
    """Items in the order of their keys, and the sign of the permutation that puts them there."""
    items = list(items)
    sign = 1
    for end in range(len(items) - 1, 0, -1):
        for k in range(end):
            if items[k].key > items[k + 1].key:
                items[k], items[k + 1] = items[k + 1], items[k]
                sign = -sign
    return sign, tuple(items)


def _operand(node: Node, index: int) -> Node:
    operand: Node = node.args[index]
    return operand


def _key(node: Node) -> tuple[Any, ...]:
    return node.key


def _combine(*parts: tuple[Linear, Fraction | int]) -> Linear:
    total: Linear = {}
    for linear, weight in parts:
        for leaf, value in linear.items():
            total[leaf] = total.get(leaf, Fraction(0)) + weight * value
    return {leaf: value for leaf, value in total.items() if value}


def _shape(linear: Linear) -> tuple[Any, ...]:
    """An order among combinations of equal length: simple weights first, then early leaves."""
    weights = sorted(abs(w) for w in linear.values())
    return weights[-1] != weights[0] if weights else False, sorted(leaf.key for leaf in linear)
