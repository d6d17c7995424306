"""From nodes to a tape: lowering, the order of the operations, and registers."""

import math
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from .graph import Graph, Node, is_ordinary
from .opcodes import BY_NAME, OPCODES
from .tape import CONSTANT_DIGITS, LIMITS, Input, Output, Tape

_LONGEST_CONSTANT = 10**CONSTANT_DIGITS
_SLOW = ("reciprocal", "div", "sqrt")
_STORES = {"scalar": "store_scalar", "vector": "store_vector", "matrix": "store_row"}


def assemble(inputs: tuple[Input, ...], outputs: list[tuple[Output, list[Node]]]) -> Tape:
    """The tape that computes the outputs: for each its nodes, one for a scalar or vector, four rows for a matrix."""
    results = [node for _, nodes in outputs for node in nodes]
    lowered = lower(results)
    plan = _fused({lowered[node] for node in results})
    stores: dict[Node, list[tuple[int, ...]]] = {}
    for n, (output, nodes) in enumerate(outputs):
        for row, node in enumerate(nodes):
            place = (n, row) if output.kind == "matrix" else (n,)
            stores.setdefault(lowered[node], []).append((BY_NAME[_STORES[output.kind]].number, *place))
    order = _ordered(plan, list(stores))
    return _allocate(inputs, tuple(output for output, _ in outputs), plan, order, stores)


def lower(results: list[Node]) -> dict[Node, Node]:
    """Results in a new graph without `transverse` and `zero_vector`: every node there is an operation of a tape.

    -(s v) becomes (-s) v, where s v is needed nowhere else: the same bits, and less to compute.
    """
    graph = Graph()
    new: dict[Node, Node] = {}
    nodes = reachable(results)
    uses = _uses(nodes, results)
    for node in nodes:
        args = [new[a] if isinstance(a, Node) else a for a in node.args]
        match node.op:
            case "transverse":
                p, v = args
                along = graph.mul(graph.dot(p, v), graph.reciprocal(graph.dot(p, p)))
                new[node] = graph.vsub_scaled(v, along, p)
            case "vneg" if _absorbs(node.args[0], uses):
                s, v = args[0].args
                negative = graph.neg(s) if s.op in ("neg", "mul_constant") else graph.recorded("neg", [s], False)
                new[node] = graph.recorded("vscale", [negative, v], True)
            case "zero_vector":
                new[node] = graph.zeros()
            case "mul_constant" | "vscale_constant" if abs(node.args[1]) < 1 and not is_ordinary(node.args[1]):
                new[node] = args[0]
                for part in _ordinary_parts(node.args[1]):
                    new[node] = graph.recorded(node.op, [new[node], part], node.is_vector)
            case _:
                new[node] = graph.copied(node, args)
    return new


def _ordinary_parts(value: Fraction) -> list[Fraction]:
    """A very small constant as powers of two and what is left: float64 may have its multiples where it has not itself.

    One that is very large is an error (`_printable`).
    """
    parts = []
    while not is_ordinary(value):
        parts.append(Fraction(1, 2**900))
        value /= parts[-1]
    return [*parts, value]


def nodes_of(tape: Tape) -> tuple[Graph, list[Node], list[list[Node]]]:
    """A tape as a graph again: the graph, the node of each input, and the nodes of each output."""
    graph = Graph(flatten=False)
    inputs = [graph.input(n, one.name, one.kind == "vector") for n, one in enumerate(tape.inputs)]
    return graph, inputs, replayed(tape, graph, inputs)


def replayed(tape: Tape, graph: Graph, inputs: list[Node]) -> list[list[Node]]:
    """The nodes of each output of a tape, run on these inputs.

    The operations stay those of the tape, so that assembling them again gives the same bits; only projections are
    recognised, for the sake of their derivative.
    """
    results: list[dict[int, Node]] = [{} for _ in tape.outputs]
    registers: dict[str, dict[int, Node]] = {"v": {}, "s": {}}
    for number, *row in tape.code:
        op = OPCODES[number]
        operands: list[Any] = []
        for kind, x in zip(op.operands, row[len(op.result) :], strict=True):
            operands.append(registers[kind][x] if kind in registers else tape.constants[x] if kind == "k" else x)
        if op.name == "project":
            v, s, p = operands
            along = graph.recorded("mul", [graph.recorded("dot", [p, v], False), s], False)
            registers["v"][row[0]] = graph.recorded("vsub_scaled", [v, along, p], True)
        elif not op.result:
            results[operands[0]][operands[1] if op.name == "store_row" else 0] = operands[-1]
        elif op.name in ("load_vector", "load_scalar"):
            registers[op.result][row[0]] = inputs[operands[0]]
        else:
            registers[op.result][row[0]] = graph.recorded(op.name, operands, op.result == "v")
    return [[rows[n] for n in sorted(rows)] for rows in results]


def reachable(results: list[Node]) -> list[Node]:
    """Everything the results need, operands before operations."""
    found = set(results)
    waiting = list(found)
    while waiting:
        for a in waiting.pop().args:
            if isinstance(a, Node) and a not in found:
                found.add(a)
                waiting.append(a)
    return sorted(found, key=lambda node: node.id)


Plan = dict[Node, tuple[str, tuple[Any, ...]]]


def _fused(results: set[Node]) -> Plan:
    """Each node's operation: a + s b, a - s b and a - s (p.a) p are one, where their parts are needed nowhere else."""
    nodes = reachable(list(results))
    uses = _uses(nodes, results)
    plan: Plan = {node: (node.op, node.args) for node in nodes}
    for node in nodes:
        if node.op not in ("vadd", "vsub"):
            continue
        a, b = node.args
        if node.op == "vadd" and not _absorbs(b, uses) and _absorbs(a, uses):
            a, b = b, a
        if _absorbs(b, uses):
            op, (s, v) = node.op, b.args
            del plan[b]
            if s.op == "neg" and uses[s] == 1:
                op = "vsub" if op == "vadd" else "vadd"
                del plan[s]
                s = s.args[0]
            plan[node] = op + "_scaled", (a, s, v)
    for node in nodes:
        if node in plan and plan[node][0] == "vsub_scaled":
            v, along, p = plan[node][1]
            for product, s in (along.args, along.args[::-1]) if along.op == "mul" and uses[along] == 1 else ():
                if product.op == "dot" and uses[product] == 1 and set(product.args) == {p, v}:
                    plan[node] = "project", (v, s, p)
                    del plan[along], plan[product]
                    break
    return plan


def _uses(nodes: list[Node], results: Iterable[Node]) -> Counter[Node]:
    return Counter(results) + Counter(a for node in nodes for a in node.args if isinstance(a, Node))


def _absorbs(node: Node, uses: Counter[Node]) -> bool:
    return node.op == "vscale" and uses[node] == 1


def _ordered(plan: Plan, results: list[Node]) -> list[Node]:
    """Depth first, at each node the operand first that needs most registers.

    Before that a division: it takes as long as several other operations, which a processor does meanwhile.
    """
    need: dict[Node, int] = {}
    for node in sorted(plan, key=lambda n: n.id):
        operands = sorted((need[a] for a in _operands(plan, node)), reverse=True)
        need[node] = max([4 if node.is_vector else 1] + [x + 4 * n for n, x in enumerate(operands)])
    order: list[Node] = []
    done: set[Node] = set()
    for result in results:
        stack = [(result, False)]
        while stack:
            node, ready = stack.pop()
            if node in done:
                continue
            if ready:
                done.add(node)
                order.append(node)
                continue
            stack.append((node, True))
            first = sorted(_operands(plan, node), key=lambda a: (a.op in _SLOW, need[a], -a.id))
            stack.extend((a, False) for a in first)
    return order


def _operands(plan: Plan, node: Node) -> list[Node]:
    return [a for a in dict.fromkeys(plan[node][1]) if isinstance(a, Node)]


def _allocate(
    inputs: tuple[Input, ...],
    outputs: tuple[Output, ...],
    plan: Plan,
    order: list[Node],
    stores: dict[Node, list[tuple[int, ...]]],
) -> Tape:
    """Registers by liveness: a register is free again once its last reader has run.

    A result never takes the register of one of its own operands, so that executors may assume they do not overlap.
    """
    last = {a: n for n, node in enumerate(order) for a in _operands(plan, node)}
    constants: dict[Any, Any] = {}
    free: dict[bool, list[int]] = {True: [], False: []}
    used = {True: 0, False: 0}
    register: dict[Node, int] = {}
    code: list[tuple[int, ...]] = []
    for n, node in enumerate(order):
        op, args = plan[node]
        if op == "input":
            op, args = ("load_vector" if node.is_vector else "load_scalar"), args[:1]
        kinds = BY_NAME[op].operands
        operands = []
        for kind, a in zip(kinds, args, strict=True):
            if kind in "vs":
                operands.append(register[a])
            elif kind == "k":
                operands.append(constants.setdefault(_printable(a), len(constants)))
            else:
                operands.append(a)
        pool = free[node.is_vector]
        if pool:
            register[node] = pool.pop()
        else:
            register[node] = used[node.is_vector]
            used[node.is_vector] += 1
        code.append((BY_NAME[op].number, register[node], *operands))
        for store in stores.get(node, ()):
            code.append((*store, register[node]))
        for a in _operands(plan, node):
            if last[a] == n:
                free[a.is_vector].append(register[a])
        if node not in last:
            free[node.is_vector].append(register[node])
    for is_vector, name in ((True, "vectors"), (False, "scalars")):
        if used[is_vector] > LIMITS["registers"]:
            raise ValueError(
                f"the tape would keep {used[is_vector]} {name} at once, more than the {LIMITS['registers']} registers "
                "that an executor has; a reverse derivative keeps most of what the amplitude computes"
            )
    return Tape(inputs, outputs, tuple(constants), used[True], used[False], tuple(code))


def _printable(constant: Fraction) -> Fraction:
    """A constant as a tape's text may hold it: one that loops have made very long is rounded to float64 here already.

    Raises ValueError where float64 has no such number.
    """
    if max(abs(constant.numerator), constant.denominator) < _LONGEST_CONSTANT:
        return constant
    try:
        return Fraction(float(constant))
    except OverflowError:
        digits = round(math.log10(abs(constant.numerator)) - math.log10(constant.denominator))
        raise ValueError(
            f"a constant of about {'-' * (constant < 0)}1e{digits} is out of the range of float64"
        ) from None
