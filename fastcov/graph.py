"""The graph of scalars and 4-vectors that an amplitude becomes, before it is written down as a tape.

Nodes are hash-consed: asking twice for the same operation on the same operands gives the same node, so whatever an
amplitude, or a bundle of amplitudes, has in common is computed once. Simplification happens where a node is made.
Components are contravariant; `dot` is the Lorentz product.
"""

from collections.abc import Iterable
from fractions import Fraction

Linear = dict["Node", Fraction]


class Node:
    """One operation. `op` is a name of the opcode table, or one of the kinds that exist only in the graph:

    input (index, name)      a 4-vector or scalar given by the caller
    zero_vector ()           all components 0
    transverse (p, v)        v - p (p.v) / p^2
    """

    __slots__ = ("args", "graph", "id", "is_vector", "linear", "op")

    def __init__(self, graph: "Graph", op: str, args: tuple, is_vector: bool):
        self.graph, self.op, self.args, self.is_vector = graph, op, args, is_vector
        self.id = len(graph.nodes)
        self.linear: Linear = {self: Fraction(1)}

    def __repr__(self) -> str:
        words = " ".join(f"%{a.id}" if isinstance(a, Node) else str(a) for a in self.args)
        return f"%{self.id} = {self.op} {words}"


class Graph:
    """Makes nodes. Every method returns a node of this graph."""

    def __init__(self) -> None:
        self.nodes: dict[tuple, Node] = {}
        self._combinations: dict[frozenset, Node] = {}

    def _node(self, op: str, *args, vector: bool = False) -> Node:
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
        return self._node("add", *sorted((a, b), key=_id))

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
        return self._node("mul", *sorted((a, b), key=_id))

    def scaled(self, a: Node, value: Fraction) -> Node:
        """a times a constant."""
        if a.op == "constant":
            return self.constant(a.args[0] * value)
        if value == 0:
            return self.constant(0)
        if value == 1:
            return a
        if value == -1:
            return self.neg(a)
        if a.op == "neg":
            return self.scaled(a.args[0], -value)
        if a.op == "mul_constant":
            return self.scaled(a.args[0], a.args[1] * value)
        return self._node("mul_constant", a, value)

    def neg(self, a: Node) -> Node:
        if a.op == "constant":
            return self.constant(-a.args[0])
        if a.op == "neg":
            return a.args[0]
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
            return a.args[0]
        if a.op == "neg":
            return self.neg(self.reciprocal(a.args[0]))
        return self._node("reciprocal", a)

    def power(self, a: Node, exponent: int) -> Node:
        """a to an integer power by repeated squaring."""
        if exponent < 0:
            return self.power(self.reciprocal(a), -exponent)
        if exponent == 0:
            return self.constant(1)
        half = self.power(a, exponent // 2) if exponent > 1 else None
        square = self.mul(half, half) if half else None
        if square is None:
            return a
        return self.mul(square, a) if exponent % 2 else square

    def sqrt(self, a: Node) -> Node:
        return self._node("sqrt", a)

    def dot(self, a: Node, b: Node) -> Node:
        """a.b, with what is known to vanish or to factor taken out."""
        a, b = sorted((a, b), key=_id)
        if a.op == "zero_vector" or b.op == "zero_vector" or orthogonal(a, b) or orthogonal(b, a):
            return self.constant(0)
        if a.op == "vlower" and b.op == "vlower":
            return self.dot(a.args[0], b.args[0])
        for x, y in ((a, b), (b, a)):
            if x.op == "vneg":
                return self.neg(self.dot(x.args[0], y))
            if x.op == "vscale":
                return self.mul(x.args[0], self.dot(x.args[1], y))
            if x.op == "vscale_constant":
                return self.scaled(self.dot(x.args[0], y), x.args[1])
            if x.op == "unit":
                part = self.component(y, x.args[0])
                return part if x.args[0] == 3 else self.neg(part)
        return self._node("dot", a, b)

    def component(self, a: Node, index: int) -> Node:
        if a.op == "zero_vector":
            return self.constant(0)
        if a.op == "unit":
            return self.constant(int(a.args[0] == index))
        if a.op == "pack":
            return a.args[index]
        if a.op == "vlower":
            part = self.component(a.args[0], index)
            return part if index == 3 else self.neg(part)
        return self._node("component", a, index)

    # Vectors

    def zero_vector(self) -> Node:
        return self._node("zero_vector", vector=True)

    def unit(self, index: int) -> Node:
        return self._node("unit", index, vector=True)

    def pack(self, *parts: Node) -> Node:
        if all(part.op == "component" and part.args[1] == n for n, part in enumerate(parts)):
            whole = parts[0].args[0]
            if all(part.args[0] is whole for part in parts):
                return whole
        return self._node("pack", *parts, vector=True)

    def vadd(self, a: Node, b: Node) -> Node:
        if a.op == "zero_vector":
            return b
        if b.op == "zero_vector":
            return a
        if b.op == "vneg":
            return self.vsub(a, b.args[0])
        if a.op == "vneg":
            return self.vsub(b, a.args[0])
        a, b = sorted((a, b), key=_id)
        return self._linear_node("vadd", (a, b), _combine((a.linear, 1), (b.linear, 1)))

    def vsub(self, a: Node, b: Node) -> Node:
        if b.op == "zero_vector":
            return a
        if a.op == "zero_vector":
            return self.vneg(b)
        if b.op == "vneg":
            return self.vadd(a, b.args[0])
        return self._linear_node("vsub", (a, b), _combine((a.linear, 1), (b.linear, -1)))

    def vneg(self, a: Node) -> Node:
        if a.op == "zero_vector":
            return a
        if a.op == "vneg":
            return a.args[0]
        if a.op == "vsub":
            return self.vsub(a.args[1], a.args[0])
        return self._linear_node("vneg", (a,), _combine((a.linear, -1)))

    def vscaled(self, a: Node, value: Fraction) -> Node:
        """A vector times a constant."""
        if value == 0:
            return self.zero_vector()
        if value == 1 or a.op == "zero_vector":
            return a
        if value == -1:
            return self.vneg(a)
        if a.op == "vneg":
            return self.vscaled(a.args[0], -value)
        if a.op == "vscale_constant":
            return self.vscaled(a.args[0], a.args[1] * value)
        return self._linear_node("vscale_constant", (a, value), _combine((a.linear, value)))

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
            return a.args[0]
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
        factor = best[min(best, key=_id)]
        shortest = self.combination({leaf: weight / factor for leaf, weight in best.items()})
        return factor, self._node("transverse", p, shortest, vector=True)

    def combination(self, linear: Linear) -> Node:
        """The vector with these coefficients; a node that has them already, if there is one."""
        total = self._combinations.get(frozenset(linear.items()))
        if total is not None:
            return total
        total = self.zero_vector()
        for leaf in sorted(linear, key=_id):
            total = self.vadd(total, self.vscaled(leaf, linear[leaf]))
        return total

    def vsub_scaled(self, a: Node, s: Node, b: Node) -> Node:
        """a - s b"""
        if s.op == "constant":
            return self.vsub(a, self.vscaled(b, s.args[0]))
        return self._node("vsub_scaled", a, s, b, vector=True)

    def zeros(self) -> Node:
        return self._node("pack", *[self.constant(0)] * 4, vector=True)

    def copy(self, node: Node, args: list) -> Node:
        """A node of another graph, on these operands; what is known to simplify here does."""
        if node.op == "add_constant":
            return self.add(args[0], self.constant(args[1]))
        if node.op == "input":
            return self.input(*args, node.is_vector)
        if node.op == "cross":
            return self._node("cross", *args, vector=True)
        method = {"mul_constant": "scaled", "vscale_constant": "vscaled"}.get(node.op, node.op)
        return getattr(self, method)(*args)

    def _linear_node(self, op: str, args: tuple, linear: Linear) -> Node:
        if not linear:
            return self.zero_vector()
        if len(linear) == 1:
            ((leaf, weight),) = linear.items()
            if weight == 1:
                return leaf
        key = frozenset(linear.items())
        node = self._combinations.get(key)
        if node is None:
            node = self._combinations[key] = self._node(op, *args, vector=True)
            node.linear = linear
        return node


def orthogonal(v: Node, p: Node) -> bool:
    """Whether v.p = 0 by the way v was made."""
    return (v.op == "transverse" and v.args[0] is p) or (v.op == "cross" and p in v.args)


def sort_sign(items: Iterable[Node]) -> tuple[int, tuple[Node, ...]]:
    """Items in the order of their ids, and the sign of the permutation that puts them there."""
    items = list(items)
    sign = 1
    for end in range(len(items) - 1, 0, -1):
        for k in range(end):
            if items[k].id > items[k + 1].id:
                items[k], items[k + 1] = items[k + 1], items[k]
                sign = -sign
    return sign, tuple(items)


def _id(node: Node) -> int:
    return node.id


def _combine(*parts: tuple[Linear, Fraction | int]) -> Linear:
    total: Linear = {}
    for linear, weight in parts:
        for leaf, value in linear.items():
            total[leaf] = total.get(leaf, Fraction(0)) + weight * value
    return {leaf: value for leaf, value in total.items() if value}


def _shape(linear: Linear) -> tuple:
    """An order among combinations of equal length: simple weights first, then early leaves."""
    weights = sorted(abs(w) for w in linear.values())
    return weights[-1] != weights[0] if weights else False, sorted(leaf.id for leaf in linear)
