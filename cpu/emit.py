"""Writes tapes as straight-line C, at build time: `python cpu/emit.py HEADER [NAME ...]` from the source tree.

Without names, the tapes of all functions of fastcov/shipped.py that can be; with names, those of these functions.

Each tape becomes the body of a function over one vector of events, operation by operation in the tape's order, so its
bits are those of the interpreter. The header is included once for each instruction set and arithmetic type, by block.h.
"""

import sys
from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fastcov.opcodes import OPCODES
from fastcov.tape import ROWS, Tape

SCALAR = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "reciprocal": "(REAL)1 / {0}",
    "sqrt": "NAME(root)({0})",
    "neg": "-{0}",
    "add_constant": "{0} + {1}",
    "mul_constant": "{0} * {1}",
    "dot": "({0}E * {1}E - {0}z * {1}z) - ({0}x * {1}x + {0}y * {1}y)",
}
VECTOR = {
    "vadd": "{0}{m} + {1}{m}",
    "vsub": "{0}{m} - {1}{m}",
    "vneg": "-{0}{m}",
    "vscale": "{0} * {1}{m}",
    "vscale_constant": "{0}{m} * {1}",
    "vadd_scaled": "{0}{m} + {1} * {2}{m}",
    "vsub_scaled": "{0}{m} - {1} * {2}{m}",
}
COMPONENTS = "xyzE"
WIDTH = {"scalar": 1, "vector": 4, "matrix": 4}
CROSS = (
    ("x", "({0}z * {r}yE - {0}y * {r}zE) - {0}E * {r}yz"),
    ("y", "({0}x * {r}zE - {0}z * {r}xE) + {0}E * {r}xz"),
    ("z", "({0}y * {r}xE - {0}x * {r}yE) - {0}E * {r}xy"),
    ("E", "({0}y * {r}xz - {0}x * {r}yz) - {0}z * {r}xy"),
)


def header(tapes: list[Tape]) -> str:
    """The C text: what the executor looks a tape up in, and, where LINE is defined, the code of each."""
    lines = ["/* Written by cpu/emit.py from the tapes of fastcov/shipped.py. */", "#ifndef LINE"]
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
        one = tape.inputs[n]
        yield f"    const int in{n} = LINE(layout)(&j->inputs[{n}], {WIDTH[one.kind]});"
    rows = [WIDTH[one.kind] for one in tape.outputs for _ in range(ROWS[one.kind])]
    for n, width in enumerate(rows):
        yield f"    const int out{n} = LINE(layout)(&j->outputs[{n}], {width});"
    yield "    for (ptrdiff_t event = first; event < end; event += LANES) {"
    for line in _operations(tape):
        yield f"        {line}"
    yield "    }"
    yield "}"


def _operations(tape: Tape) -> Iterator[str]:
    rows = [0, *accumulate(ROWS[output.kind] for output in tape.outputs)]
    names: dict[tuple[str, int], str] = {}
    for line, (number, *row) in enumerate(tape.code):
        op = OPCODES[number]
        operands = [
            names[kind, x] if kind in "vs" else _constant(tape.constants[x]) if kind == "k" else x
            for kind, x in zip(op.operands, row[len(op.result) :], strict=True)
        ]
        r = f"r{line}"
        if op.result:
            names[op.result, row[0]] = r
        yield from _operation(op.name, r, operands, rows)


def _operation(name: str, r: str, operands: list[Any], rows: list[int]) -> Iterator[str]:
    if name in SCALAR:
        yield f"const NAME(lanes) {r} = {SCALAR[name].format(*operands)};"
    elif name in VECTOR:
        for m in COMPONENTS:
            yield f"const NAME(lanes) {r}{m} = {VECTOR[name].format(*operands, m=m)};"
    elif name == "load_vector":
        yield from _take(r, operands[0], 4)
        for place, m in enumerate(COMPONENTS):
            yield f"const NAME(lanes) {r}{m} = {r}[{place}];"
    elif name == "load_scalar":
        yield from _take(f"{r}_", operands[0], 1)
        yield f"const NAME(lanes) {r} = {r}_[0];"
    elif name == "constant":
        yield f"const NAME(lanes) {r} = (NAME(lanes)){{0}} + {operands[0]};"
    elif name == "unit":
        for place, m in enumerate(COMPONENTS):
            yield f"const NAME(lanes) {r}{m} = (NAME(lanes)){{0}} + (REAL){int(place == operands[0])};"
    elif name == "vlower":
        for m in COMPONENTS:
            yield f"const NAME(lanes) {r}{m} = {'' if m == 'E' else '-'}{operands[0]}{m};"
    elif name == "cross":
        a, b, c = operands
        for i, first in enumerate(COMPONENTS):
            for second in COMPONENTS[i + 1 :]:
                yield f"const NAME(lanes) {r}{first}{second} = {b}{first} * {c}{second} - {b}{second} * {c}{first};"
        for m, expression in CROSS:
            yield f"const NAME(lanes) {r}{m} = {expression.format(a, r=r)};"
    elif name == "component":
        yield f"const NAME(lanes) {r} = {operands[0]}{COMPONENTS[operands[1]]};"
    elif name == "pack":
        for m, part in zip(COMPONENTS, operands, strict=True):
            yield f"const NAME(lanes) {r}{m} = {part};"
    elif name == "store_scalar":
        yield from _give(r, rows[operands[0]], [operands[1]])
    elif name in ("store_vector", "store_row"):
        row = rows[operands[0]] + (operands[1] if name == "store_row" else 0)
        yield from _give(r, row, [f"{operands[-1]}{m}" for m in COMPONENTS])
    else:
        raise NotImplementedError(f"{name} has no straight-line form")


def _take(name: str, n: int, width: int) -> Iterator[str]:
    yield f"NAME(lanes) {name}[{width}];"
    yield f"LINE(take)(&j->inputs[{n}], in{n}, {width}, event, {name});"


def _give(name: str, row: int, parts: list[str]) -> Iterator[str]:
    yield f"const NAME(lanes) {name}[] = {{{', '.join(parts)}}};"
    yield f"LINE(give)(&j->outputs[{row}], out{row}, {len(parts)}, event, {name});"


def _constant(value: Fraction) -> str:
    return f"(REAL){float(value).hex()}"


if __name__ == "__main__":
    from fastcov.shipped import functions

    path, *names = sys.argv[1:]
    known = functions()
    tapes = [known[name].tape for name in names or known]
    distinct = {tape.fingerprint: tape for tape in tapes if compilable(tape)}
    Path(path).write_text(header(list(distinct.values())))
