"""Derivatives of tapes are tapes: reverse mode (vjp), forward mode (jvp), and the Jacobian of each event.

All are partial derivatives by the components as passed. Inside, the derivative by a 4-vector is carried with its index
raised, so that the rules are the covariant ones: d(a.b) = da.b + a.db, and g~(p) is its own adjoint. Any order is a
derivative of a derivative.
"""

from collections.abc import Sequence

from .assemble import assemble, nodes_of, reachable
from .graph import Graph, Node
from .tape import Input, Output, Tape


def vjp(tape: Tape, wanted: Sequence[bool], summed: Sequence[bool], value: bool = False) -> Tape:
    """The tape that multiplies cotangents with the Jacobian from the left.

    Its inputs are those of `tape` and for each output its cotangent, the rows of a matrix as four vectors; its outputs
    are those of `tape` if `value`, and the gradient by each wanted input, summed over events where `summed`.
    """
    graph, inputs, outputs = nodes_of(tape)
    more = cotangent_inputs(tape)
    cotangents = [graph.input(len(inputs) + n, one.name, one.kind == "vector") for n, one in enumerate(more)]
    seeds = list(zip((node for nodes in outputs for node in nodes), cotangents, strict=True))
    gradients = _pulled_back(graph, seeds, {node for node, want in zip(inputs, wanted, strict=True) if want})
    results = list(zip(tape.outputs, outputs, strict=True)) if value else []
    for node, one, want, total in zip(inputs, tape.inputs, wanted, summed, strict=True):
        if want:
            results.append((Output(one.kind, total or one.shared), [gradients[node]]))
    return assemble((*tape.inputs, *more), results)


def cotangent_inputs(tape: Tape) -> tuple[Input, ...]:
    """The further inputs of the vjp of a tape."""
    found = []
    for n, output in enumerate(tape.outputs):
        kind = "scalar" if output.kind == "scalar" else "vector"
        found += [Input(f"cotangent {n}", kind, output.summed)] * (4 if output.kind == "matrix" else 1)
    return tuple(found)


def jvp(tape: Tape, active: Sequence[bool], value: bool = False) -> Tape:
    """The tape that multiplies the Jacobian with tangents of the active inputs, given as further inputs."""
    graph, inputs, outputs = nodes_of(tape)
    more = [
        Input(f"tangent {one.name}", one.kind, one.shared)
        for one, is_active in zip(tape.inputs, active, strict=True)
        if is_active
    ]
    varied = [node for node, is_active in zip(inputs, active, strict=True) if is_active]
    tangents = {
        node: graph.input(len(inputs) + n, one.name, node.is_vector)
        for n, (node, one) in enumerate(zip(varied, more, strict=True))
    }
    _push_forward(graph, [node for nodes in outputs for node in nodes], tangents)
    results = list(zip(tape.outputs, outputs, strict=True)) if value else []
    for output, nodes in zip(tape.outputs, outputs, strict=True):
        results.append((output, [_tangent(graph, tangents, node) for node in nodes]))
    return assemble((*tape.inputs, *more), results)


def jacobian(tape: Tape) -> Tape:
    """The tape of d output / d input for each output and, within it, each input.

    For a vector by a vector a matrix, row m the derivatives of component m. Raises TypeError for a matrix output.
    """
    graph, inputs, outputs = nodes_of(tape)
    results: list[tuple[Output, list[Node]]] = []
    for output, (node, *rows) in zip(tape.outputs, outputs, strict=True):
        if rows:
            raise TypeError("the Jacobian of a tensor of rank 2 has rank 3; differentiate its components")
        if output.summed:
            raise TypeError("the Jacobian is that of each event; a summed output has none")
        if output.kind == "scalar":
            gradients = _pulled_back(graph, [(node, graph.constant(1))], set(inputs))
            results += [(Output(one.kind), [gradients[x]]) for x, one in zip(inputs, tape.inputs, strict=True)]
            continue
        by_row = [_pulled_back(graph, [(node, graph.unit(m))], set(inputs)) for m in range(4)]
        for x in inputs:
            parts = [gradients[x] for gradients in by_row]
            if x.is_vector:
                results.append((Output("matrix"), parts))
            else:
                results.append((Output("vector"), [graph.pack(*parts)]))
    return assemble(tape.inputs, results)


class _Cotangents:
    """What has been pulled back to each node: a scalar, or for a vector the weights of vectors and of components."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.scalars: dict[Node, Node] = {}
        self.vectors: dict[Node, dict[Node, Node]] = {}
        self.components: dict[Node, list[Node]] = {}

    def add_scalar(self, node: Node, value: Node) -> None:
        old = self.scalars.get(node)
        self.scalars[node] = value if old is None else self.graph.add(old, value)

    def add_vector(self, node: Node, weight: Node, vector: Node) -> None:
        weights = self.vectors.setdefault(node, {})
        old = weights.get(vector)
        weights[vector] = weight if old is None else self.graph.add(old, weight)

    def add_component(self, node: Node, index: int, value: Node) -> None:
        zero = self.graph.constant(0)
        parts = self.components.setdefault(node, [zero] * 4)
        parts[index] = self.graph.add(parts[index], value)

    def of(self, node: Node) -> Node | None:
        """The derivative by a node, a vector's with upper index; None if the results do not depend on it."""
        graph = self.graph
        if not node.is_vector:
            return self.scalars.get(node)
        if node not in self.vectors and node not in self.components:
            return None
        total = graph.zero_vector()
        for vector, weight in sorted(self.vectors.get(node, {}).items(), key=lambda item: item[0].key):
            total = graph.vadd(total, graph.vscale(weight, vector))
        if node in self.components:
            total = graph.vadd(total, graph.vlower(graph.pack(*self.components[node])))
        return total


def _pulled_back(graph: Graph, seeds: Sequence[tuple[Node, Node]], wanted: set[Node]) -> dict[Node, Node]:
    """The gradient by each wanted input, its components as passed."""
    active = set(wanted)
    nodes = reachable([node for node, _ in seeds])
    for node in nodes:
        if any(a in active for a in node.args if isinstance(a, Node)):
            active.add(node)
    found = _Cotangents(graph)
    for node, seed in seeds:
        if node.is_vector:
            found.add_vector(node, graph.constant(1), graph.vlower(seed))
        else:
            found.add_scalar(node, seed)
    for node in reversed(nodes):
        if node in active and node not in wanted and (cotangent := found.of(node)) is not None:
            _pull(graph, node, cotangent, found, active)
    result = {}
    for node in wanted:
        gradient = found.of(node)
        if gradient is None:
            gradient = graph.zero_vector() if node.is_vector else graph.constant(0)
        result[node] = graph.vlower(gradient) if node.is_vector else gradient
    return result


def _pull(graph: Graph, node: Node, c: Node, found: _Cotangents, active: set[Node]) -> None:
    """Pass the cotangent c of a node on to its operands."""
    one = graph.constant(1)

    def scalar(operand: Node, value: Node) -> None:
        if operand in active:
            found.add_scalar(operand, value)

    def vector(operand: Node, weight: Node, direction: Node) -> None:
        if operand in active:
            found.add_vector(operand, weight, direction)

    match node.op, node.args:
        case "add", (a, b):
            scalar(a, c)
            scalar(b, c)
        case "sub", (a, b):
            scalar(a, c)
            scalar(b, graph.neg(c))
        case "mul", (a, b):
            scalar(a, graph.mul(c, b))
            scalar(b, graph.mul(c, a))
        case "div", (a, b):
            part = graph.div(c, b)
            scalar(a, part)
            scalar(b, graph.neg(graph.mul(part, node)))
        case "reciprocal", (a,):
            scalar(a, graph.neg(graph.mul(c, graph.mul(node, node))))
        case "sqrt", (a,):
            scalar(a, graph.div(c, graph.scaled(node, 2)))
        case "neg", (a,):
            scalar(a, graph.neg(c))
        case "add_constant", (a, _):
            scalar(a, c)
        case "mul_constant", (a, k):
            scalar(a, graph.scaled(c, k))
        case "vadd", (a, b):
            vector(a, one, c)
            vector(b, one, c)
        case "vsub", (a, b):
            vector(a, one, c)
            vector(b, graph.constant(-1), c)
        case "vneg", (a,):
            vector(a, graph.constant(-1), c)
        case "vlower", (a,):
            vector(a, one, graph.vlower(c))
        case "vscale", (s, v):
            scalar(s, graph.dot(c, v))
            vector(v, s, c)
        case "vscale_constant", (v, k):
            vector(v, graph.constant(k), c)
        case "vadd_scaled", (a, s, b):
            vector(a, one, c)
            scalar(s, graph.dot(c, b))
            vector(b, s, c)
        case "vsub_scaled", (a, s, b):
            vector(a, one, c)
            scalar(s, graph.neg(graph.dot(c, b)))
            vector(b, graph.neg(s), c)
        case "dot", (a, b):
            if a is b:
                vector(a, graph.scaled(c, 2), a)
            else:
                vector(a, c, b)
                vector(b, c, a)
        case "transverse", (p, v):
            factor, along = graph.transverse(p, c)
            vector(v, graph.constant(factor), along)
            vector(p, graph.scaled(graph.neg(_along(graph, p, v)), factor), along)
            vector(p, graph.neg(_along(graph, p, c)), node)
        case "cross", (u, v, w):
            for operand, others, sign in ((u, (v, w), -1), (v, (u, w), 1), (w, (u, v), -1)):
                parity, direction = graph.cross(c, *others)
                vector(operand, graph.constant(sign * parity), direction)
        case "component", (v, m):
            if v in active:
                found.add_component(v, m, c)
        case "pack", parts:
            lowered = graph.vlower(c)
            for m, part in enumerate(parts):
                scalar(part, graph.component(lowered, m))
        case op, _:
            raise AssertionError(f"no reverse rule for {op}")


def _along(graph: Graph, p: Node, v: Node) -> Node:
    """(p.v) / p^2, as the projection computes it."""
    return graph.mul(graph.dot(p, v), graph.reciprocal(graph.dot(p, p)))


def _push_forward(graph: Graph, results: Sequence[Node], tangents: dict[Node, Node]) -> None:
    """Add the tangent of every node that depends on those that have one."""
    for node in reachable(list(results)):
        if node not in tangents and any(a in tangents for a in node.args if isinstance(a, Node)):
            tangents[node] = _pushed(graph, node, tangents)


def _tangent(graph: Graph, tangents: dict[Node, Node], node: Node) -> Node:
    zero = graph.zero_vector() if node.is_vector else graph.constant(0)
    return tangents.get(node, zero)


def _pushed(graph: Graph, node: Node, tangents: dict[Node, Node]) -> Node:
    """The tangent of a node from those of its operands."""

    def d(operand: Node) -> Node:
        return _tangent(graph, tangents, operand)

    match node.op, node.args:
        case "add", (a, b):
            return graph.add(d(a), d(b))
        case "sub", (a, b):
            return graph.sub(d(a), d(b))
        case "mul", (a, b):
            return graph.add(graph.mul(d(a), b), graph.mul(a, d(b)))
        case "div", (a, b):
            return graph.div(graph.sub(d(a), graph.mul(node, d(b))), b)
        case "reciprocal", (a,):
            return graph.neg(graph.mul(d(a), graph.mul(node, node)))
        case "sqrt", (a,):
            return graph.div(d(a), graph.scaled(node, 2))
        case "neg", (a,):
            return graph.neg(d(a))
        case "add_constant", (a, _):
            return d(a)
        case "mul_constant", (a, k):
            return graph.scaled(d(a), k)
        case "vadd", (a, b):
            return graph.vadd(d(a), d(b))
        case "vsub", (a, b):
            return graph.vsub(d(a), d(b))
        case "vneg", (a,):
            return graph.vneg(d(a))
        case "vlower", (a,):
            return graph.vlower(d(a))
        case "vscale", (s, v):
            return graph.vadd(graph.vscale(d(s), v), graph.vscale(s, d(v)))
        case "vscale_constant", (v, k):
            return graph.vscaled(d(v), k)
        case "vadd_scaled", (a, s, b):
            return graph.vadd(d(a), graph.vadd(graph.vscale(d(s), b), graph.vscale(s, d(b))))
        case "vsub_scaled", (a, s, b):
            return graph.vsub(d(a), graph.vadd(graph.vscale(d(s), b), graph.vscale(s, d(b))))
        case "dot", (a, b):
            if a is b:
                return graph.scaled(graph.dot(a, d(a)), 2)
            return graph.add(graph.dot(d(a), b), graph.dot(a, d(b)))
        case "transverse", (p, v):
            (f, dv), (g, dp) = graph.transverse(p, d(v)), graph.transverse(p, d(p))
            turned = graph.vadd(
                graph.vscale(graph.scaled(_along(graph, p, v), g), dp),
                graph.vscale(graph.mul(graph.dot(d(p), node), graph.reciprocal(graph.dot(p, p))), p),
            )
            return graph.vsub(graph.vscaled(dv, f), turned)
        case "cross", (u, v, w):
            total = graph.zero_vector()
            for operands in ((d(u), v, w), (u, d(v), w), (u, v, d(w))):
                sign, part = graph.cross(*operands)
                total = graph.vadd(total, graph.vscaled(part, sign))
            return total
        case "component", (v, m):
            return graph.component(d(v), m)
        case "pack", parts:
            return graph.pack(*[d(part) for part in parts])
    raise AssertionError(f"no forward rule for {node.op}")
