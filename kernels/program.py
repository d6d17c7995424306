"""What the kernel runs: a tape lowered for one layout of its arrays, and the splitting of tapes that are too large.

Nothing here needs Triton or a GPU.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..opcodes import BY_NAME, OPCODES
from ..tape import Tape

# Operations of the kernel beyond those of a tape, for the layouts of memory; the stores come last.
MEMORY = {
    name: len(OPCODES) + number
    for number, name in enumerate(
        (
            "load_packed",  # pointer: the vector, four adjacent numbers, 16-byte aligned
            "load_unit",  # pointer: one number per event, adjacent
            "load_strided",  # pointer, stride
            "load_shared",  # pointer: one number for all events
            "load_value",  # value: one number for all events, passed by value
            "store_packed",  # vector, pointer, numbers per event, offset: four adjacent numbers, 16-byte aligned
            "store_pair",  # scalar, scalar, pointer: two adjacent numbers per event, aligned to their size
            "store_unit",  # scalar, pointer
            "store_strided",  # scalar, pointer, stride
            "sum",  # scalar, pointer, row: the block's sum, to a row of block sums
        )
    )
}


class Layout(NamedTuple):
    """How one input or output lies in memory.

    kind: "packed": all four components (of a vector output also two), or all rows of a matrix, lie side by side, event
        after event, from a 16-byte aligned address; "unit", "strided", "shared": a pointer for each component, in the
        order x, y, z, E and row by row, with the events adjacent, apart by a stride for each pointer, or all the same;
        "value": a scalar passed by value; "sum": an output summed over the events.
    dtype: "fp32" or "fp64", the type of the array.
    axes: where x, y, z, E stand in the last axis or axes; -1 for a component that an output does not keep.
    """

    kind: str
    dtype: str
    axes: tuple[int, ...] = (0, 1, 2, 3)


class Program(NamedTuple):
    """Rows of an operation and four operands; each that has a result appends it to the values.

    constants: the bits of each as a signed integer, of 32 or 64 bits like the arithmetic; as numbers, a zero could lose
    its sign and a float64 its last digits on the way to the kernel.
    pointers: the element type of each and whether it is 16-byte aligned. strides, values: how many. sums: rows of block
    sums; their pointer is the last one.
    """

    rows: tuple[tuple[int, int, int, int, int], ...]
    constants: tuple[int, ...]
    pointers: tuple[tuple[str, bool], ...]
    strides: int
    values: int
    sums: int


class _Lowering:
    def __init__(self, tape: Tape, layouts: Sequence[Layout]):
        self.inputs, self.outputs = layouts[: len(tape.inputs)], layouts[len(tape.inputs) :]
        self.rows: list[tuple[int, int, int, int, int]] = []
        self.pointers: list[tuple[str, bool]] = []
        self.strides = self.values = self.sums = self.results = 0
        self.input_place = [self.place(i.kind, layout) for i, layout in zip(tape.inputs, self.inputs, strict=True)]
        self.output_place = [self.place(o.kind, layout) for o, layout in zip(tape.outputs, self.outputs, strict=True)]
        if self.sums:
            self.pointers.append(("fp64", False))

    def place(self, kind: str, layout: Layout) -> tuple[int, int]:
        """The first pointer and stride of an operand, or which value it is, or the first row of its sums."""
        if layout.kind == "value":
            self.values += 1
            return self.values - 1, 0
        kept = 1 if kind == "scalar" else sum(axis >= 0 for axis in layout.axes)
        count = kept * kept if kind == "matrix" else kept
        if layout.kind == "sum":
            self.sums += count
            return self.sums - count, 0
        place = len(self.pointers), self.strides
        self.pointers += [(layout.dtype, layout.kind == "packed")] * (1 if layout.kind == "packed" else count)
        self.strides += count if layout.kind == "strided" else 0
        return place

    def emit(self, number: int, *operands: int) -> int:
        self.rows.append((number, *operands, *(0,) * (4 - len(operands))))  # type: ignore[arg-type]
        self.results += 1
        return self.results - 1

    def emit_store(self, name: str, *operands: int) -> None:
        self.emit(MEMORY[name], *operands)
        self.results -= 1

    def load(self, layout: Layout, pointer: int, stride: int) -> int:
        return self.emit(MEMORY["load_" + layout.kind], pointer, stride if layout.kind == "strided" else 0)

    def load_vector(self, number: int) -> int:
        layout, (pointer, stride) = self.inputs[number], self.input_place[number]
        if layout.kind == "packed":
            vector = self.emit(MEMORY["load_packed"], pointer)
            return self.arrange(vector, layout.axes)
        parts = [self.load(layout, pointer + c, stride + c) for c in range(4)]
        return self.emit(BY_NAME["pack"].number, *parts)

    def arrange(self, vector: int, axes: Sequence[int]) -> int:
        """The vector whose component c is component axes[c]."""
        if tuple(axes) == (0, 1, 2, 3):
            return vector
        return self.emit(BY_NAME["pack"].number, *[self.component(vector, axis) for axis in axes])

    def component(self, vector: int, c: int) -> int:
        return self.emit(BY_NAME["component"].number, vector, c)

    def store_scalar(self, output: int, scalar: int, offset: int = 0) -> None:
        layout, (first, stride) = self.outputs[output], self.output_place[output]
        if layout.kind == "sum":
            self.emit_store("sum", scalar, len(self.pointers) - 1, first + offset)
        elif layout.kind == "strided":
            self.emit_store("store_strided", scalar, first + offset, stride + offset)
        else:
            self.emit_store("store_unit", scalar, first + offset)

    def store_vector(self, output: int, vector: int, row: int | None = None) -> None:
        layout, (pointer, _) = self.outputs[output], self.output_place[output]
        kept = sorted((axis, c) for c, axis in enumerate(layout.axes) if axis >= 0)
        if row is not None and layout.axes[row] < 0:
            return
        if layout.kind == "packed" and len(kept) == 4:
            vector = self.arrange(vector, [c for _, c in kept])
            size, offset = (4, 0) if row is None else (16, 4 * layout.axes[row])
            self.emit_store("store_packed", vector, pointer, size, offset)
        elif layout.kind == "packed":
            first, second = (self.component(vector, c) for _, c in kept)
            self.emit_store("store_pair", first, second, pointer)
        else:
            above = 0 if row is None else len(kept) * self.rank(layout, row)
            for _, c in kept:
                self.store_scalar(output, self.component(vector, c), above + self.rank(layout, c))

    @staticmethod
    def rank(layout: Layout, c: int) -> int:
        """Which of an output's pointers, or rows of sums, is that of component c."""
        return layout.axes[c] if layout.kind == "sum" else sum(axis >= 0 for axis in layout.axes[:c])


def lower(tape: Tape, layouts: Sequence[Layout], compute: str) -> Program:
    """The kernel's program for arrays of these layouts, one for each input and then one for each output.

    compute: "f" or "d", the type of the arithmetic, to which the constants are rounded by way of float64.
    """
    low = _Lowering(tape, layouts)
    registers: dict[tuple[str, int], int] = {}
    for number, *operands in tape.code:
        op = OPCODES[number]
        places = operands[len(op.result) :]
        if op.name == "load_vector":
            value = low.load_vector(places[0])
        elif op.name == "load_scalar":
            value = low.load(low.inputs[places[0]], *low.input_place[places[0]])
        elif op.name == "store_scalar":
            low.store_scalar(places[0], registers["s", places[1]])
        elif op.name == "store_vector":
            low.store_vector(places[0], registers["v", places[1]])
        elif op.name == "store_row":
            low.store_vector(places[0], registers["v", places[2]], row=places[1])
        else:
            kinds = zip(op.operands, places, strict=True)
            value = low.emit(number, *[registers[kind, x] if kind in "vs" else x for kind, x in kinds])
        if op.result:
            registers[op.result, operands[0]] = value
    with np.errstate(over="ignore"):
        rounded = np.array([float(c) for c in tape.constants]).astype(compute)
    constants = rounded.view(f"i{rounded.itemsize}").tolist()
    return Program(tuple(low.rows), tuple(constants), tuple(low.pointers), low.strides, low.values, low.sums)


def live_numbers(tape: Tape) -> int:
    """The most numbers that are alive at once when the tape runs in its own order; constants do not count."""
    size = {"v": 4, "s": 1}
    live: set[tuple[str, int]] = set()
    most = 0
    for number, *operands in reversed(tape.code):
        op = OPCODES[number]
        if op.result:
            live.discard((op.result, operands[0]))
        kinds = zip(op.operands, operands[len(op.result) :], strict=True)
        live.update((kind, x) for kind, x in kinds if kind in size)
        most = max(most, sum(size[kind] for kind, _ in live))
    return most


def restrict(tape: Tape, outputs: Sequence[int]) -> Tape:
    """The tape that computes only these outputs, in this order, from the same inputs, with the same operations."""
    position = {output: place for place, output in enumerate(outputs)}
    needed: set[tuple[str, int]] = set()
    code = []
    for row in reversed(tape.code):
        op = OPCODES[row[0]]
        operands = row[1 + len(op.result) :]
        if op.result:
            if (op.result, row[1]) not in needed:
                continue
            needed.discard((op.result, row[1]))
        elif operands[0] not in position:
            continue
        needed.update((kind, x) for kind, x in zip(op.operands, operands, strict=True) if kind in "vs")
        code.append(row if op.result else (row[0], position[row[1]], *row[2:]))
    chosen = tuple(tape.outputs[output] for output in outputs)
    return Tape(tape.inputs, chosen, tape.constants, tape.vectors, tape.scalars, tuple(reversed(code)))


def split(tape: Tape, limit: int) -> tuple[tuple[Tape, tuple[int, ...]], ...]:
    """The launches that a tape takes when a kernel can hold `limit` numbers per event: tapes and the outputs of each.

    A tape with at most `limit` numbers alive at once (`live_numbers`) is one launch. Others are cut by outputs, a part
    being the tape restricted to what its outputs need. In their order, each output joins the part before it while that
    stays within the limit, and opens a new part otherwise. Outputs that exceed the limit even alone share one part, the
    last: they spill in any case, and cutting would only compute more. What several parts need is computed in each by
    the same operations, so the results do not depend on the cut.
    """
    every = tuple(range(len(tape.outputs)))
    if live_numbers(tape) <= limit:
        return ((tape, every),)
    parts: list[tuple[Tape, tuple[int, ...]]] = []
    large = tuple(output for output in every if live_numbers(restrict(tape, (output,))) > limit)
    for output in every:
        if output in large:
            continue
        joined = (*parts[-1][1], output) if parts else (output,)
        part = restrict(tape, joined)
        if live_numbers(part) <= limit:
            parts[-1:] = [(part, joined)]
        else:
            parts.append((restrict(tape, (output,)), (output,)))
    if large:
        parts.append((restrict(tape, large), large))
    return tuple(parts)
