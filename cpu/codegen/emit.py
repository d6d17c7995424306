"""Writes tapes as straight-line C, at build time: `python cpu/codegen/emit.py HEADER [NAME ...]` from the source tree.

Without names, the tapes of all functions of fastcov/shipped.py that can be; with names, those of these functions.

Each tape becomes the body of a function over one vector of events. Its operations are taken apart into single ones on
single components, as written in fastcov/opcodes.py, and these are put into an order that suits a processor
(schedule.py); so its bits are those of the interpreter. The header is included once for each instruction set and
arithmetic type, by block.h.
"""

import sys
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from schedule import Statement, scheduled

from fastcov.opcodes import OPCODES
from fastcov.tape import ROWS, Tape

REGISTERS = 44  # values live at once; more than the 32 there are, since a spill costs less than a wait
WIDTH = {"scalar": 1, "vector": 4, "matrix": 4}
LATENCY = {"take": 8, "give": 1, "/": 24, "root": 24}  # cycles; 4 for all else


class Lanes:
    """One number of each of a vector of events; arithmetic with it is written down as statements."""

    def __init__(self, body: "Body", name: str):
        self.body, self.name = body, name

    def __add__(self, other: "Lanes") -> "Lanes":
        return self.body.add("{} + {}", self, other)

    def __sub__(self, other: "Lanes") -> "Lanes":
        return self.body.add("{} - {}", self, other)

    def __mul__(self, other: "Lanes") -> "Lanes":
        return self.body.add("{} * {}", self, other)

    def __truediv__(self, other: "Lanes") -> "Lanes":
        return self.body.add("{} / {}", self, other)

    def __neg__(self) -> "Lanes":
        return self.body.add("-{}", self)

    def root(self) -> "Lanes":
        return self.body.add("NAME(root)({})", self)


Vector = tuple[Lanes, Lanes, Lanes, Lanes]


class Body:
    """The statements of one tape, in the tape's order."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self.made: set[str] = set()

    def write(self, text: str, results: tuple[str, ...], operands: tuple[Lanes, ...], latency: int) -> None:
        self.made.update(results)
        read = tuple(x.name for x in operands if x.name in self.made)  # the others are numbers
        self.statements.append(Statement(text, results, read, latency))

    def add(self, expression: str, *operands: Lanes) -> Lanes:
        name = f"r{len(self.statements)}"
        text = f"const NAME(lanes) {name} = {expression.format(*[x.name for x in operands])};"
        latency = next((LATENCY[kind] for kind in ("/", "root") if kind in expression), 4)
        self.write(text, (name,), operands, latency)
        return Lanes(self, name)

    def constant(self, number: str) -> Lanes:
        return self.add(f"(NAME(lanes)){{{{0}}}} + {number}")

    def take(self, n: int, width: int) -> list[Lanes]:
        name = f"r{len(self.statements)}"
        parts = [Lanes(self, f"{name}{m}") for m in "xyzE"[:width]]
        values = "".join(f" const NAME(lanes) {part.name} = {name}[{m}];" for m, part in enumerate(parts))
        text = f"NAME(lanes) {name}[{width}]; LINE(take)(in{n}, {width}, event, {name});{values}"
        self.write(text, tuple(part.name for part in parts), (), LATENCY["take"])
        return parts

    def give(self, row: int, parts: tuple[Lanes, ...]) -> None:
        name = f"r{len(self.statements)}"
        values = ", ".join(part.name for part in parts)
        text = f"const NAME(lanes) {name}[] = {{{values}}}; LINE(give)(out{row}, {len(parts)}, event, {name});"
        self.write(text, (), parts, LATENCY["give"])


SCALAR = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "reciprocal": lambda a: a.body.add("(REAL)1 / {}", a),
    "sqrt": Lanes.root,
    "neg": lambda a: -a,
    "add_constant": lambda a, k: a + k,
    "mul_constant": lambda a, k: a * k,
    "dot": lambda a, b: (a[3] * b[3] - a[2] * b[2]) - (a[0] * b[0] + a[1] * b[1]),
    "component": lambda a, m: a[m],
}
VECTOR = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vneg": lambda a: -a,
    "vscale": lambda s, a: s * a,
    "vscale_constant": lambda a, k: a * k,
    "vadd_scaled": lambda a, s, b: a + s * b,
    "vsub_scaled": lambda a, s, b: a - s * b,
}


def cross(a: Vector, b: Vector, c: Vector) -> Vector:
    xy, xz, xE, yz, yE, zE = (b[i] * c[j] - b[j] * c[i] for i in range(4) for j in range(i + 1, 4))
    x, y, z, E = a
    return (
        (z * yE - y * zE) - E * yz,
        (x * zE - z * xE) + E * xz,
        (y * xE - x * yE) - E * xy,
        (y * xz - x * yz) - z * xy,
    )


def statements(tape: Tape) -> list[Statement]:
    """The operations of a tape as statements, in the tape's order."""
    body = Body()
    rows = [0, *accumulate(ROWS[output.kind] for output in tape.outputs)]
    registers: dict[tuple[str, int], Any] = {}
    for number, *row in tape.code:
        op = OPCODES[number]
        operands: list[Any] = []
        for kind, x in zip(op.operands, row[len(op.result) :], strict=True):
            if kind == "k":
                operands.append(Lanes(body, f"(REAL){float(tape.constants[x]).hex()}"))
            else:
                operands.append(registers[kind, x] if kind in "vs" else x)
        if op.result:
            registers[op.result, row[0]] = _result(body, op.name, operands)
        else:
            part = operands[-1] if op.name != "store_scalar" else operands[-1:]
            body.give(rows[operands[0]] + (operands[1] if op.name == "store_row" else 0), tuple(part))
    return body.statements


def _result(body: Body, name: str, operands: list[Any]) -> Any:
    if name in SCALAR:
        return SCALAR[name](*operands)
    if name in VECTOR:
        return tuple(VECTOR[name](*[x[m] if isinstance(x, tuple) else x for x in operands]) for m in range(4))
    match name:
        case "load_vector":
            return tuple(body.take(operands[0], 4))
        case "load_scalar":
            return body.take(operands[0], 1)[0]
        case "constant":
            return body.constant(operands[0].name)
        case "unit":
            return tuple(body.constant(f"(REAL){int(m == operands[0])}") for m in range(4))
        case "vlower":
            x, y, z, energy = operands[0]
            return -x, -y, -z, energy
        case "cross":
            return cross(*operands)
        case "project":
            v, s, p = operands
            along = SCALAR["dot"](p, v) * s
            return tuple(VECTOR["vsub_scaled"](v[m], along, p[m]) for m in range(4))
        case "pack":
            return tuple(operands)
    raise NotImplementedError(f"{name} has no straight-line form")


def header(tapes: list[Tape]) -> str:
    """The C text: what the executor looks a tape up in, and, where LINE is defined, the code of each."""
    lines = ["/* Written by cpu/codegen/emit.py from the tapes of fastcov/shipped.py. */", "#ifndef LINE"]
    lines.append(f"enum {{ STRAIGHT_COUNT = {len(tapes)} }};")
    fingerprints = ", ".join(f'"{tape.fingerprint}"' for tape in tapes)
    lines.append(f"static const char *const STRAIGHT_FINGERPRINTS[] = {{{fingerprints}}};")
    lines.append("#else")
    for n, tape in enumerate(tapes):
        lines += _function(f"LINE(straight_{n})", tape)
    names = ", ".join(f"LINE(straight_{n})" for n in range(len(tapes)))
    lines.append(f"static straight_function *const LINE(straight)[] = {{{names}}};")
    return "\n".join([*lines, "#endif", ""])


def compilable(tape: Tape) -> bool:
    """Whether a tape can be straight-line code: all its outputs are per event."""
    return not any(output.summed for output in tape.outputs)


def _function(name: str, tape: Tape) -> Iterator[str]:
    yield f"static void {name}(const job *j, ptrdiff_t first, ptrdiff_t end) {{"
    for n in sorted({row[2] for row in tape.code if OPCODES[row[0]].operands == "i"}):
        yield f"    const place in{n} = LINE(place)(&j->inputs[{n}], {WIDTH[tape.inputs[n].kind]});"
    rows = [WIDTH[one.kind] for one in tape.outputs for _ in range(ROWS[one.kind])]
    for n, width in enumerate(rows):
        yield f"    const place out{n} = LINE(place)(&j->outputs[{n}], {width});"
    yield "    for (ptrdiff_t event = first; event < end; event += LANES) {"
    for statement in scheduled(statements(tape), REGISTERS):
        yield f"        {statement.text}"
    yield "    }"
    yield "}"


if __name__ == "__main__":
    from fastcov.shipped import functions

    path, *names = sys.argv[1:]
    known = functions()
    tapes = [known[name].tape for name in names or known]
    distinct = {tape.fingerprint: tape for tape in tapes if compilable(tape)}
    Path(path).write_text(header(list(distinct.values())))
