"""A tape: a short straight-line program on scalars and 4-vectors, the only thing the executors know.

Text form (JSON, version 1):

    {"fastcov_tape": 1,
     "inputs":    [[name, "vector" | "scalar", "event" | "shared"], ...],
     "outputs":   [["scalar" | "vector" | "matrix", "event" | "sum"], ...],
     "constants": ["1/35", ...],                    exact rationals
     "vectors":   7, "scalars": 13,                 how many registers of each kind
     "code":      [[opcode, result, operand, ...], ...]}   a store has no result: [opcode, output, ...]

Registers are reused, so the order of the code matters. Reading a text checks everything an executor relies on: each
register is written before it is read, no operation writes a register that it reads, each index is in range, each output
is stored exactly once and completely.
"""

import hashlib
import json
import re
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

from .opcodes import BY_NAME, OPCODES

VERSION = 1
LIMITS = {"inputs": 1024, "outputs": 1024, "constants": 65536, "registers": 4096, "code": 1 << 20}
CONSTANT_DIGITS = 2048  # of a numerator or denominator
RANKS = {"scalar": 0, "vector": 1, "matrix": 2}
ROWS = {"scalar": 1, "vector": 1, "matrix": 4}
COMPONENTS = {"scalar": 1, "vector": 4, "matrix": 16}
_CONSTANT = re.compile(rf"-?[0-9]{{1,{CONSTANT_DIGITS}}}(/[0-9]{{1,{CONSTANT_DIGITS}}})?")
_SCALAR_STORE, _VECTOR_STORE, _ROW_STORE = (
    BY_NAME[name].number for name in ("store_scalar", "store_vector", "store_row")
)


class Input(NamedTuple):
    name: str
    kind: str  # "vector" or "scalar"
    shared: bool = False  # one value for all events by its nature; an event input may still be passed as shared


class Output(NamedTuple):
    kind: str  # "scalar", "vector" or "matrix"
    summed: bool = False


class Cost(NamedTuple):
    """What one event costs: bytes read and written, floating-point operations, operations by name, registers."""

    bytes: int
    flops: int
    operations: dict[str, int]
    vectors: int
    scalars: int

    def __str__(self) -> str:
        counts = ", ".join(f"{n} {name}" for name, n in sorted(self.operations.items()))
        return (
            f"{self.bytes} bytes and {self.flops} floating-point operations per event\n"
            f"{self.vectors} vector and {self.scalars} scalar registers\n{counts}"
        )


class Tape:
    """A checked program; immutable, equal to another when the texts are equal.

    Raises ValueError, saying what is wrong, for a program that no executor may run.
    """

    def __init__(
        self,
        inputs: tuple[Input, ...],
        outputs: tuple[Output, ...],
        constants: tuple[Fraction, ...],
        vectors: int,
        scalars: int,
        code: tuple[tuple[int, ...], ...],
    ):
        self.inputs, self.outputs, self.constants = inputs, outputs, constants
        self.vectors, self.scalars, self.code = vectors, scalars, code
        self._check()
        self.text = self._text([i.name for i in inputs])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the program; the names of its inputs do not enter."""
        return hashlib.sha256(self._text([""] * len(self.inputs)).encode()).hexdigest()

    def _text(self, names: list[str]) -> str:
        data = {
            "fastcov_tape": VERSION,
            "inputs": [
                [name, i.kind, "shared" if i.shared else "event"] for name, i in zip(names, self.inputs, strict=True)
            ],
            "outputs": [[o.kind, "sum" if o.summed else "event"] for o in self.outputs],
            "constants": [str(c) for c in self.constants],
            "vectors": self.vectors,
            "scalars": self.scalars,
            "code": self.code,
        }
        return json.dumps(data, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> "Tape":
        """Read and check a tape.

        Raises ValueError for anything that is not a complete, runnable program of this version.
        """
        try:
            data = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"not a tape: {error}") from None
        if not isinstance(data, dict) or "fastcov_tape" not in data:
            raise ValueError("not a tape: no 'fastcov_tape' version in it")
        if type(data["fastcov_tape"]) is not int or data["fastcov_tape"] != VERSION:
            raise ValueError(f"tape of format version {data['fastcov_tape']!r}; this fastcov reads version {VERSION}")
        try:
            inputs = tuple(Input(name, kind, _flag(share, "event", "shared")) for name, kind, share in data["inputs"])
            outputs = tuple(Output(kind, _flag(total, "event", "sum")) for kind, total in data["outputs"])
            constants = tuple(_constant(c) for c in data["constants"])
            code = tuple(tuple(row) for row in data["code"])
            return cls(inputs, outputs, constants, data["vectors"], data["scalars"], code)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a tape: {type(error).__name__}: {error}") from None

    def _check(self) -> None:
        for name in ("inputs", "outputs", "constants", "code"):
            if len(getattr(self, name)) > LIMITS[name]:
                raise ValueError(f"tape: more than {LIMITS[name]} {name}")
        for name in ("vectors", "scalars"):
            count = getattr(self, name)
            if type(count) is not int or not 0 <= count <= LIMITS["registers"]:
                raise ValueError(f"tape: {name} = {count!r}, not a number from 0 to {LIMITS['registers']}")
        for constant in self.constants:
            try:
                float(constant)
            except OverflowError:
                raise ValueError(f"tape: constant {constant!s:.80} is out of the range of float64") from None
        for one in self.inputs:
            if not isinstance(one.name, str) or one.kind not in ("vector", "scalar"):
                raise ValueError(f"tape: {one} is no input")
        for out in self.outputs:
            if out.kind not in ROWS:
                raise ValueError(f"tape: {out} is no output")
        written = {"v": bytearray(self.vectors), "s": bytearray(self.scalars)}
        stored: set[tuple[int, int]] = set()
        for line, row in enumerate(self.code):
            try:
                self._check_row(row, written, stored)
            except ValueError as error:
                raise ValueError(f"tape: operation {line}, {list(row)}: {error}") from None
        wanted = {(o, r) for o, out in enumerate(self.outputs) for r in range(ROWS[out.kind])}
        if missing := wanted - stored:
            raise ValueError(f"tape: output {min(missing)[0]} is not completely stored")

    def _check_row(self, row: tuple[int, ...], written: dict[str, bytearray], stored: set[tuple[int, int]]) -> None:
        if not row or any(type(x) is not int for x in row):
            raise ValueError("not a row of integers")
        if not 0 <= row[0] < len(OPCODES):
            raise ValueError("unknown opcode")
        op = OPCODES[row[0]]
        operands = row[1 + len(op.result) :]
        if len(row) != 1 + len(op.result) + len(op.operands):
            raise ValueError(f"{op.name} takes {len(op.operands)} operands")
        limits = {"k": len(self.constants), "i": len(self.inputs), "o": len(self.outputs), "c": 4}
        for kind, x in zip(op.operands, operands, strict=True):
            if kind in written:
                if not 0 <= x < len(written[kind]) or not written[kind][x]:
                    raise ValueError(f"register {kind}{x} is read before it is written")
                if kind == op.result and x == row[1]:
                    raise ValueError(f"register {kind}{x} is read and written")
            elif not 0 <= x < limits[kind]:
                raise ValueError(f"operand {kind}{x} is out of range")
        if op.name in ("load_vector", "load_scalar") and self.inputs[operands[0]].kind != op.name[5:]:
            raise ValueError(f"input {operands[0]} is no {op.name[5:]}")
        if op.result:
            if not 0 <= row[1] < len(written[op.result]):
                raise ValueError(f"register {op.result}{row[1]} is out of range")
            written[op.result][row[1]] = 1
            return
        kinds = {_SCALAR_STORE: "scalar", _VECTOR_STORE: "vector", _ROW_STORE: "matrix"}
        if self.outputs[operands[0]].kind != kinds[op.number]:
            raise ValueError(f"output {operands[0]} is no {kinds[op.number]}")
        place = (operands[0], operands[1] if op.number == _ROW_STORE else 0)
        if place in stored:
            raise ValueError(f"output {operands[0]} is stored twice")
        stored.add(place)

    def cost(self, itemsize: int = 8) -> Cost:
        """Bytes (for inputs and outputs of `itemsize` bytes a number) and operations per event.

        An input counts once, and only if it is loaded at all.
        """
        operations: dict[str, int] = {}
        loaded: set[int] = set()
        for row in self.code:
            op = OPCODES[row[0]]
            operations[op.name] = operations.get(op.name, 0) + 1
            if op.operands == "i":
                loaded.add(row[2])
        numbers = sum(COMPONENTS[i.kind] for n, i in enumerate(self.inputs) if n in loaded and not i.shared)
        numbers += sum(COMPONENTS[o.kind] for o in self.outputs if not o.summed)
        flops = sum(BY_NAME[name].flops * n for name, n in operations.items())
        return Cost(numbers * itemsize, flops, operations, self.vectors, self.scalars)

    def __str__(self) -> str:
        """The program, one operation a line."""
        lines = [f"input {n}: {i.name}, {i.kind}{' shared' * i.shared}" for n, i in enumerate(self.inputs)]
        lines += [f"output {n}: {o.kind}{' summed' * o.summed}" for n, o in enumerate(self.outputs)]
        for row in self.code:
            op = OPCODES[row[0]]
            result = f"{op.result}{row[1]} = " if op.result else ""
            names = [
                str(self.constants[x]) if kind == "k" else f"{kind}{x}"
                for kind, x in zip(op.operands, row[1 + len(op.result) :], strict=True)
            ]
            lines.append(f"{result}{op.name} {' '.join(names)}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Tape: {len(self.inputs)} inputs, {len(self.outputs)} outputs, {len(self.code)} operations>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tape) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> tuple[Any, ...]:
        return Tape.from_text, (self.text,)


def _flag(word: str, off: str, on: str) -> bool:
    if word not in (off, on):
        raise ValueError(f"tape: {word!r} is neither {off!r} nor {on!r}")
    return word == on


def _constant(text: str) -> Fraction:
    if not isinstance(text, str) or not _CONSTANT.fullmatch(text):
        raise ValueError(f"tape: constant {text!r:.80} is no text such as '-1/35'")
    try:
        return Fraction(text)
    except ZeroDivisionError:
        raise ValueError(f"tape: constant {text:.80} has no value") from None
