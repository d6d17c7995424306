"""The CPU executor against plain NumPy, bit for bit: every opcode, layout, instruction set and number of threads."""

import ctypes
import itertools
import math
import mmap
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from tape_numpy import evaluate

from fastcov.cpu import Program, default_threads, instruction_set, instruction_sets
from fastcov.opcodes import BY_NAME, OPCODES
from fastcov.tape import Input, Output, Tape

XYZE = (0, 1, 2, 3)
SIZES = (0, 1, 63, 64, 65, 1000)
CONSTANTS = (Fraction(1, 35), Fraction(-7, 3), Fraction(0), Fraction(-1, 10**400))
TAILS = {"scalar": (), "vector": (4,), "matrix": (4, 4)}


@pytest.fixture(params=instruction_sets())
def each_instruction_set(request):
    before = instruction_set()
    assert instruction_set(request.param) == request.param
    yield
    instruction_set(before)


on_each_instruction_set = pytest.mark.usefixtures("each_instruction_set")


def make_tape(inputs, outputs, code, vectors=8, scalars=8):
    """A tape from words: inputs "vector scalar", outputs "vector matrix+" (+ for a sum), rows such as "vadd 2 0 1"."""
    rows = (line.split() for line in code)
    return Tape(
        tuple(Input(f"in{n}", kind) for n, kind in enumerate(inputs.split())),
        tuple(Output(kind.removesuffix("+"), kind.endswith("+")) for kind in outputs.split()),
        CONSTANTS,
        vectors,
        scalars,
        tuple((BY_NAME[name].number, *map(int, operands)) for name, *operands in rows),
    )


LOADS = [*(f"load_vector {n} {n}" for n in range(3)), *(f"load_scalar {n} {n + 3}" for n in range(4))]


def opcode_tape(name, operands=None):
    """A tape that stores what one operation makes of three vectors and four scalars."""
    op = BY_NAME[name]
    if operands is None:
        operands = "".join(f" {n}" if kind in "vs" else " 1" for n, kind in enumerate(op.operands))
    result = {"v": "vector", "s": "scalar"}[op.result]
    register = "7" if op.result else ""
    code = [*LOADS, f"{name} {register}{operands}", f"store_{result} 0 7"]
    return make_tape("vector vector vector scalar scalar scalar scalar", result, code)


STORES = {
    "store_scalar": make_tape("vector scalar", "scalar", ["load_scalar 1 1", "store_scalar 0 1"]),
    "store_vector": make_tape("vector scalar", "vector", ["load_vector 1 0", "store_vector 0 1"]),
    "store_row": make_tape(
        "vector scalar",
        "matrix",
        ["load_vector 0 0", "load_scalar 0 1", "vscale 1 0 0", "vneg 2 1", "unit 3 2"]
        + [f"store_row 0 {row} {register}" for row, register in ((2, 0), (0, 1), (3, 2), (1, 3))],
    ),
}
OPCODE_TAPES = {
    "load_vector": [opcode_tape("load_vector", f" {n}") for n in range(3)],
    "load_scalar": [opcode_tape("load_scalar", f" {n}") for n in (3, 6)],
    "constant": [opcode_tape("constant", f" {n}") for n in range(len(CONSTANTS))],
    "unit": [opcode_tape("unit", f" {c}") for c in range(4)],
    "add": [opcode_tape("add")],
    "sub": [opcode_tape("sub")],
    "mul": [opcode_tape("mul")],
    "div": [opcode_tape("div")],
    "reciprocal": [opcode_tape("reciprocal")],
    "sqrt": [opcode_tape("sqrt")],
    "neg": [opcode_tape("neg")],
    "add_constant": [opcode_tape("add_constant", f" 0 {n}") for n in range(len(CONSTANTS))],
    "mul_constant": [opcode_tape("mul_constant", f" 0 {n}") for n in range(len(CONSTANTS))],
    "vadd": [opcode_tape("vadd")],
    "vsub": [opcode_tape("vsub")],
    "vneg": [opcode_tape("vneg")],
    "vlower": [opcode_tape("vlower")],
    "vscale": [opcode_tape("vscale")],
    "vscale_constant": [opcode_tape("vscale_constant", f" 0 {n}") for n in range(len(CONSTANTS))],
    "vadd_scaled": [opcode_tape("vadd_scaled")],
    "vsub_scaled": [opcode_tape("vsub_scaled")],
    "dot": [opcode_tape("dot"), opcode_tape("dot", " 1 1")],
    "cross": [opcode_tape("cross")],
    "component": [opcode_tape("component", f" 1 {c}") for c in range(4)],
    "pack": [opcode_tape("pack"), opcode_tape("pack", " 3 3 0 1")],
    "project": [opcode_tape("project")],
    **{name: [tape] for name, tape in STORES.items()},
}

MIXED = make_tape(
    "vector vector scalar",
    "scalar vector matrix scalar+ vector+ matrix+",
    [
        "load_vector 0 0",
        "load_vector 1 1",
        "load_scalar 0 2",
        "dot 1 0 1",
        "reciprocal 2 1",
        "mul 3 2 0",
        "vsub_scaled 2 0 3 1",
        "cross 3 0 1 2",
        "dot 4 3 3",
        "mul 6 4 4",
        "sqrt 5 6",
        "store_scalar 0 5",
        "store_scalar 3 5",
        "store_vector 1 2",
        "store_vector 4 2",
        *(f"store_row {out} {row} {row}" for out in (2, 5) for row in range(4)),
    ],
)
EVENT_OUTPUTS = 3


def random_inputs(tape, shape, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(*shape, *TAILS[one.kind])).astype(dtype) for one in tape.inputs]


def run(tape, shape, inputs, dtype=np.float64, compute="d", threads=1, program=None, steps=(1, 1), shift=0):
    """Run a tape into guarded arrays that hold NaN first."""
    guards = [Guarded(() if out.summed else shape, TAILS[out.kind], dtype, steps, shift) for out in tape.outputs]
    outputs = [guard.view for guard in guards]
    (program or Program(tape)).run(shape, inputs, XYZE, outputs, XYZE, compute, threads)
    for guard in guards:
        guard.check()
    return outputs


class Guarded:
    """An array of NaN in memory of a known pattern, `shift` bytes off, with steps along its first and last axis."""

    def __init__(self, events, tail, dtype, steps=(1, 1), shift=0):
        shape, index = [*events, *tail], [slice(None)] * len((*events, *tail))
        for axis, step, there in ((0, steps[0], events), (-1, steps[1], tail)):
            if there:
                shape[axis] *= abs(step)
                index[axis] = slice(None, None, step)
        size = math.prod(shape) * np.dtype(dtype).itemsize
        self.memory = np.full(size + 128, 0xA5, np.uint8)
        self.pattern = self.memory[: np.dtype(dtype).itemsize].copy().view(dtype)
        self.view = self.memory[64 + shift : 64 + shift + size].view(dtype).reshape(shape)[(*index, ...)]
        self.view[...] = np.nan

    def check(self):
        kept = self.view.copy()
        self.view[...] = self.pattern
        assert (self.memory == 0xA5).all()
        self.view[...] = kept


def same(a, b):
    """Equal bits, but for the payload of a NaN."""
    a, b = np.asarray(a), np.asarray(b)
    return (
        a.shape == b.shape
        and a.dtype == b.dtype
        and np.array_equal(a, b, equal_nan=True)
        and np.array_equal(np.signbit(a[~np.isnan(a)]), np.signbit(b[~np.isnan(b)]))
    )


def test_every_opcode_has_a_tape_that_uses_it():
    assert set(OPCODE_TAPES) == set(BY_NAME)
    for name, tapes in OPCODE_TAPES.items():
        for tape in tapes:
            assert BY_NAME[name].number in [row[0] for row in tape.code]


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-310, -1e-310, 1e308, 1e-42, 1.0, -3.0])


@on_each_instruction_set
@pytest.mark.parametrize("compute", ["d", "f"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", BY_NAME)
def test_opcode(name, dtype, compute):
    for tape in OPCODE_TAPES[name]:
        for n in SIZES:
            inputs = random_inputs(tape, (n,), dtype)
            rng = np.random.default_rng(n)
            with np.errstate(over="ignore"):
                special = SPECIAL.astype(dtype)
            for x in inputs:
                chosen = rng.random(x.shape) < 0.1
                x[chosen] = rng.choice(special, chosen.sum())
            with np.errstate(over="ignore"):
                want = evaluate(tape, inputs, {"d": np.float64, "f": np.float32}[compute])[0].astype(dtype)
            [got] = run(tape, (n,), inputs, dtype, compute)
            assert same(got, want), (str(tape), n)


@on_each_instruction_set
@pytest.mark.parametrize("compute", ["d", "f"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", SIZES)
def test_outputs_per_event_of_each_kind(n, dtype, compute):
    inputs = random_inputs(MIXED, (n,), dtype)
    want = evaluate(MIXED, inputs, {"d": np.float64, "f": np.float32}[compute])
    got = run(MIXED, (n,), inputs, dtype, compute)
    for a, b in itertools.islice(zip(got, want, strict=True), EVENT_OUTPUTS):
        assert same(a, b.astype(dtype))


def columns(a):
    return tuple(np.ascontiguousarray(a[..., m]) for m in range(4))


def strided(a):
    wide = np.full((3 * a.shape[0], *a.shape[1:-1], 2 * a.shape[-1]), np.nan, a.dtype)
    view = wide[::3, ..., ::2]
    view[...] = a
    return view


def misaligned(by):
    def move(a):
        memory = np.zeros(a.nbytes + by, np.uint8)
        view = memory[by:].view(a.dtype).reshape(a.shape)
        view[...] = a
        assert view.ctypes.data % 8 == (memory.ctypes.data + by) % 8
        return view

    return move


def read_only(a):
    a = a.copy()
    a.flags.writeable = False
    return a


LAYOUTS = {
    "packed": np.ascontiguousarray,
    "events apart": lambda a: np.repeat(a, 2, axis=0)[::2],
    "rows wider than a vector": lambda a: np.concatenate([a, a], axis=-1)[..., :4],
    "strided": strided,
    "reversed events": lambda a: a[::-1].copy()[::-1],
    "reversed components": lambda a: a[..., ::-1].copy()[..., ::-1],
    "Fortran order": np.asfortranarray,
    "components first": lambda a: np.moveaxis(np.ascontiguousarray(np.moveaxis(a, -1, 0)), 0, -1),
    "read-only": read_only,
    "columns": columns,
    "strided columns": lambda a: tuple(a[..., m] for m in range(4)),
    **{f"misaligned by {by}": misaligned(by) for by in range(1, 8)},
}


@on_each_instruction_set
@pytest.mark.parametrize("shape", [(1,), (64,), (131,), (5, 27), (3, 1, 44)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_input_layout(layout, dtype, shape):
    a, b, s = random_inputs(MIXED, shape, dtype)
    want = evaluate(MIXED, [a, b, s])
    got = run(MIXED, shape, [LAYOUTS[layout](a), LAYOUTS[layout](b), s], dtype)
    for x, y in itertools.islice(zip(got, want, strict=True), EVENT_OUTPUTS):
        assert same(x, y.astype(dtype))


@on_each_instruction_set
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("steps", [(1, 1), (2, 1), (3, 2), (-1, 1), (1, -1), (-2, -3)])
@pytest.mark.parametrize("shift", [0, 1, 2, 3, 4, 5, 6, 7])
def test_output_layout(shift, steps, dtype):
    for shape in ((131,), (3, 40)):
        inputs = random_inputs(MIXED, shape, dtype)
        want = run(MIXED, shape, inputs, dtype)
        got = run(MIXED, shape, inputs, dtype, steps=steps, shift=shift)
        for x, y in zip(got, want, strict=True):
            assert same(x, y)


@on_each_instruction_set
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_nothing_is_touched_past_the_end(dtype):
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "mprotect"):
        pytest.skip("no mprotect on this system")
    usable = 4 * mmap.PAGESIZE

    def at_the_end(shape):
        size = math.prod(shape) * np.dtype(dtype).itemsize
        memory = mmap.mmap(-1, usable + mmap.PAGESIZE)
        whole = np.frombuffer(memory, np.uint8)
        fence = ctypes.c_void_p(whole.ctypes.data + usable)
        assert libc.mprotect(fence, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
        return whole[usable - size : usable].view(dtype).reshape(shape)

    for n in (1, 3, 5, 15, 17, 63, 65):
        a, b, s = random_inputs(MIXED, (n,), dtype)
        want = run(MIXED, (n,), [a, b, s], dtype)
        inputs = [at_the_end(x.shape) for x in (a, b, s)]
        for x, y in zip(inputs, (a, b, s), strict=True):
            x[...] = y
        outputs = [at_the_end((n,)), at_the_end((n, 4)), at_the_end((n, 4, 4)), *want[EVENT_OUTPUTS:]]
        Program(MIXED).run((n,), inputs, XYZE, outputs, XYZE)
        for x, y in itertools.islice(zip(outputs, want, strict=True), EVENT_OUTPUTS):
            assert same(x, y)


@on_each_instruction_set
@pytest.mark.parametrize("axes", list(itertools.permutations(range(4))))
def test_axes(axes):
    n = 70
    a, b, s = random_inputs(MIXED, (n,))
    want = evaluate(MIXED, [a, b, s])
    permuted = np.empty_like(a)
    permuted[:, axes] = a
    column_tuple = [None] * 4
    for m in range(4):
        column_tuple[axes[m]] = b[:, m].copy()
    outputs = [np.full((*((n,) * (not o.summed)), *TAILS[o.kind]), np.nan) for o in MIXED.outputs]
    Program(MIXED).run((n,), [permuted, tuple(column_tuple), s], axes, outputs, axes)
    assert same(outputs[1][:, axes], want[1])
    assert same(outputs[2][:, axes][:, :, axes], want[2])
    plain = run(MIXED, (n,), [a, b, s])
    assert same(outputs[4][list(axes)], plain[4])
    assert same(outputs[5][np.ix_(axes, axes)], plain[5])


@on_each_instruction_set
@pytest.mark.parametrize("axes", [(0, 1, -1, -1), (-1, -1, -1, 0), (2, -1, 0, 1), (1, -1, 0, -1)])
def test_components_left_out(axes):
    n = 70
    inputs = random_inputs(MIXED, (n,))
    want = run(MIXED, (n,), inputs)
    kept = [m for m in range(4) if axes[m] >= 0]
    places = [axes[m] for m in kept]
    tails = {kind: (len(kept),) * len(tail) for kind, tail in TAILS.items()}
    outputs = [np.full((*((n,) * (not o.summed)), *tails[o.kind]), np.nan) for o in MIXED.outputs]
    Program(MIXED).run((n,), inputs, XYZE, outputs, axes)
    assert same(outputs[0], want[0])
    assert same(outputs[1][:, places], want[1][:, kept])
    assert same(outputs[2][:, places][:, :, places], want[2][:, kept][:, :, kept])
    assert same(outputs[4][places], want[4][kept])
    assert same(outputs[5][np.ix_(places, places)], want[5][np.ix_(kept, kept)])


BROADCASTS = [
    ((5, 7, 3), (5, 7, 3), (7, 3), (3,)),
    ((5, 7, 3), (5, 1, 3), (1, 7, 1), (5, 7, 1)),
    ((5, 7, 3), (), (5, 7, 3), ()),
    ((2, 3, 4, 5), (4, 5), (2, 3, 1, 1), (3, 1, 5)),
    ((1, 1, 1), (1,), (), (1, 1)),
    ((130, 2), (2,), (130, 1), (130, 2)),
    ((2, 130), (130,), (2, 1), ()),
    ((), (), (), ()),
    ((3, 0, 2), (2,), (0, 2), (3, 1, 1)),
    ((1,) * 40 + (6,), (6,), (1, 6), ()),
]


@on_each_instruction_set
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("shape", "a", "b", "s"), BROADCASTS)
def test_broadcast(shape, a, b, s, dtype):
    rng = np.random.default_rng(1)
    inputs = [rng.normal(size=(*leading, *tail)).astype(dtype) for leading, tail in ((a, (4,)), (b, (4,)), (s, ()))]
    want = evaluate(MIXED, inputs)
    for b_input in (inputs[1], tuple(inputs[1][..., m] for m in range(4))):
        got = run(MIXED, shape, [inputs[0], b_input, inputs[2]], dtype)
        for x, y in itertools.islice(zip(got, want, strict=True), EVENT_OUTPUTS):
            assert same(x, np.broadcast_to(y, x.shape).astype(dtype))


@on_each_instruction_set
def test_broadcast_by_stride_zero():
    a, b, s = random_inputs(MIXED, (100,))
    a[:] = a[3]
    s[:] = s[5]
    want = run(MIXED, (100,), [a, b, s])
    got = run(MIXED, (100,), [np.broadcast_to(a[3], (100, 4)), b, np.broadcast_to(s[5], 100)])
    got_number = run(MIXED, (100,), [a[3], b, float(s[5])])
    for x, y, z in zip(got, want, got_number, strict=True):
        assert same(x, y)
        assert same(z, y)


@on_each_instruction_set
def test_any_split_of_the_batch_gives_the_same_events():
    n = 2 * 1024 + 77
    inputs = random_inputs(MIXED, (n,))
    whole = run(MIXED, (n,), inputs)
    for cuts in ((1,), (63, 64, 65), (1000, 1024, 2000), tuple(range(100, 200))):
        parts = [run(MIXED, (b - a,), [x[a:b] for x in inputs]) for a, b in itertools.pairwise((0, *cuts, n))]
        for out in range(EVENT_OUTPUTS):
            assert same(np.concatenate([part[out] for part in parts]), whole[out])


@on_each_instruction_set
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_number_of_threads(dtype):
    n = 100_003
    inputs = random_inputs(MIXED, (n,), dtype)
    want = run(MIXED, (n,), inputs, dtype)
    for threads in (2, 3):
        for x, y in zip(run(MIXED, (n,), inputs, dtype, threads=threads), want, strict=True):
            assert same(x, y)


@on_each_instruction_set
def test_instruction_sets_give_equal_bits():
    n = 5000
    inputs = random_inputs(MIXED, (n,))
    got = run(MIXED, (n,), inputs)
    instruction_set("baseline")
    for x, y in zip(run(MIXED, (n,), inputs), got, strict=True):
        assert same(x, y)


@on_each_instruction_set
@pytest.mark.parametrize("n", [*SIZES, 1023, 1024, 1025, 3 * 1024, 7 * 1024 + 5])
def test_sums(n):
    inputs = random_inputs(MIXED, (n,))
    events = evaluate(MIXED, inputs)
    sums = run(MIXED, (n,), inputs)[EVENT_OUTPUTS:]
    for total, terms in zip(sums, events[EVENT_OUTPUTS:], strict=True):
        for index in np.ndindex(total.shape):
            column = [float(x) for x in terms[(slice(None), *index)]]
            bound = (80 + math.log2(n + 1)) * 2.0**-53 * math.fsum(map(abs, column))
            assert abs(total[index] - math.fsum(column)) <= bound
    if n == 0:
        assert not any(total.any() for total in sums)


@on_each_instruction_set
def test_sums_do_not_depend_on_layout_or_threads():
    shape = (301, 333)
    a, b, s = random_inputs(MIXED, shape)
    want = run(MIXED, shape, [a, b, s])[EVENT_OUTPUTS:]
    for threads, layout in itertools.product((1, 2, 3), ("packed", "strided", "columns", "Fortran order")):
        inputs = [LAYOUTS[layout](a), LAYOUTS[layout](b), np.asfortranarray(s)]
        for x, y in zip(run(MIXED, shape, inputs, threads=threads)[EVENT_OUTPUTS:], want, strict=True):
            assert same(x, y)
    flat = [a.reshape(-1, 4), b.reshape(-1, 4), s.reshape(-1)]
    for x, y in zip(run(MIXED, (301 * 333,), flat)[EVENT_OUTPUTS:], want, strict=True):
        assert same(x, y)


@on_each_instruction_set
def test_sums_of_float32_are_float64():
    tape = make_tape("scalar", "scalar+", ["load_scalar 0 0", "store_scalar 0 0"])
    ones = np.ones(2**25, np.float32)
    total = np.zeros(())
    Program(tape).run(ones.shape, [ones], XYZE, [total], XYZE, "f")
    assert total == 2**25 + 0.0
    tenths = np.full(10**6, 0.1, np.float32)
    Program(tape).run(tenths.shape, [tenths], XYZE, [total], XYZE, "f")
    assert abs(total - math.fsum([float(tenths[0])] * 10**6)) <= 1e-9


@on_each_instruction_set
def test_a_nan_stays_in_its_event():
    n = 200
    inputs = random_inputs(MIXED, (n,))
    clean = run(MIXED, (n,), inputs)
    for event in (0, 63, 64, 199):
        dirty = [x.copy() for x in inputs]
        dirty[0][event] = np.nan
        got = run(MIXED, (n,), dirty)
        others = np.arange(n) != event
        for x, y in itertools.islice(zip(got, clean, strict=True), EVENT_OUTPUTS):
            assert np.isnan(x[event]).any()
            assert same(x[others], y[others])


@on_each_instruction_set
def test_each_array_may_have_its_own_dtype():
    a, b, s = random_inputs(MIXED, (90,))
    a, b = a.astype(np.float32), tuple(b[:, m].astype(np.float32 if m % 2 else np.float64) for m in range(4))
    want = evaluate(MIXED, [a, np.stack(b, axis=-1), s])
    got = run(MIXED, (90,), [a, b, s])
    for x, y in itertools.islice(zip(got, want, strict=True), EVENT_OUTPUTS):
        assert same(x, y)


@on_each_instruction_set
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", SIZES)
def test_call(n, dtype):
    program = Program(MIXED)
    a, b, s = random_inputs(MIXED, (n,), dtype)
    cases = [(a, b, s), (a[::-1], b, 0.25), (a, np.array([1, 2, 3, 7], dtype), s), (a, b, np.array(0.5, dtype))]
    for inputs in cases:
        got = program.call(inputs)
        full = [np.broadcast_to(x, (n, *TAILS[i.kind])) for x, i in zip(inputs, MIXED.inputs, strict=True)]
        for x, y in zip(got, run(MIXED, (n,), full, dtype), strict=True):
            assert same(x, y)
            assert x.flags.c_contiguous


def test_call_leaves_the_unusual_alone():
    program = Program(MIXED)
    a, b, s = random_inputs(MIXED, (5,))
    for inputs in (
        (a, b),
        (a, b, 1),
        (a, b, s.astype(np.float32)),
        (a, b[:4], s),
        (a, b.tolist(), s),
        (a, columns(b), s),
        (a, b.astype(int), s),
        (a, b.astype(">f8"), s),
        (a, b[:, :3], s),
        (a, b[None], s),
        (a[0], b[0], 1.0),
        (a, b, s[:, None]),
        (np.ma.masked_array(a), b, s),
    ):
        assert program.call(inputs) is None


def test_call_takes_one_number_for_what_is_shared():
    inputs = *MIXED.inputs[:2], Input("s", "scalar", shared=True)
    program = Program(Tape(inputs, MIXED.outputs, MIXED.constants, MIXED.vectors, MIXED.scalars, MIXED.code))
    a, b, s = random_inputs(MIXED, (5,))
    assert program.call((a, b, s)) is None
    for x, y in zip(program.call((a, b, 0.5)), Program(MIXED).call((a, b, 0.5)), strict=True):
        assert same(x, y)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_call_takes_what_dlpack_exports(dtype):
    torch = pytest.importorskip("torch")
    program = Program(MIXED)
    arrays = tuple(random_inputs(MIXED, (5,), dtype))
    wanted = program.call(arrays)
    a, b, s = (torch.from_numpy(x) for x in arrays)
    wide = torch.stack((s, s), -1)[:, 0]
    for inputs in ((a, b, s), (a.flip(0).flip(0), torch.stack((b, b), -1)[..., 1], wide), (a.requires_grad_(), b, s)):
        for x, y in zip(program.call(inputs), wanted, strict=True):
            assert type(x) is np.ndarray
            assert same(x, y)
    for x, y in zip(program.call((a, b[1], 0.25)), program.call((arrays[0], arrays[1][1], 0.25)), strict=True):
        assert same(x, y)


def test_call_leaves_what_dlpack_cannot_export():
    torch = pytest.importorskip("torch")
    program = Program(MIXED)
    arrays = random_inputs(MIXED, (5,))
    a, b, s = (torch.from_numpy(x) for x in arrays)
    for inputs in (
        (arrays[0], b, s),
        (a, arrays[1], s),
        (a, b, s.float()),
        (a, b[:4], s),
        (a, b[None], s),
        (a, b[:, :3], s),
        (a, b.long(), s),
        (a.bfloat16(), b.bfloat16(), s.bfloat16()),
        (a, b.to("meta"), s),
        (a, b.to_sparse(), s),
        (a, torch._efficientzerotensor((5, 4), dtype=torch.float64), s),
        (a, torch._to_functional_tensor(b), s),
        (a[:0], b[:0], s[:0]),
    ):
        assert program.call(inputs) is None

    class Table:
        __dlpack_c_exchange_api__ = None

    assert program.call((a, Table(), s)) is None


def bad_runs():
    a, b, s = random_inputs(MIXED, (6,))
    outs = [np.zeros((*((6,) * (not o.summed)), *TAILS[o.kind])) for o in MIXED.outputs]
    locked = np.zeros((6, 4))
    locked.flags.writeable = False

    def outputs(n, value):
        return [*outs[:n], value, *outs[n + 1 :]]

    shape = (6,)
    return {
        "no array": (TypeError, "in1", (shape, [a, b.tolist(), s], XYZE, outs, XYZE)),
        "integers": (TypeError, "in1", (shape, [a, b.astype(int), s], XYZE, outs, XYZE)),
        "other byte order": (TypeError, "in1", (shape, [a, b.astype(">f8"), s], XYZE, outs, XYZE)),
        "half": (TypeError, "in1", (shape, [a, b.astype("f2"), s], XYZE, outs, XYZE)),
        "dates": (TypeError, "in1", (shape, [a, b.astype("M8[s]"), s], XYZE, outs, XYZE)),
        "three components": (ValueError, "in1", (shape, [a, b[:, :3], s], XYZE, outs, XYZE)),
        "no axis": (ValueError, "in1", (shape, [a, b[0, 0], s], XYZE, outs, XYZE)),
        "three columns": (ValueError, "in1", (shape, [a, columns(b)[:3], s], XYZE, outs, XYZE)),
        "short": (ValueError, "in1", (shape, [a, b[:5], s], XYZE, outs, XYZE)),
        "short column": (ValueError, "in1", (shape, [a, (*columns(b)[:3], s[:5]), s], XYZE, outs, XYZE)),
        "empty": (ValueError, "in1", (shape, [a, b[:0], s], XYZE, outs, XYZE)),
        "more dimensions": (ValueError, "in1", (shape, [a, b[None], s], XYZE, outs, XYZE)),
        "scalar as column": (ValueError, "in2", (shape, [a, b, s[:, None]], XYZE, outs, XYZE)),
        "tuple for a scalar": (TypeError, "in2", (shape, [a, b, columns(b)], XYZE, outs, XYZE)),
        "inputs missing": (ValueError, "3 inputs", (shape, [a, b], XYZE, outs, XYZE)),
        "outputs missing": (ValueError, "6 outputs", (shape, [a, b, s], XYZE, outs[:5], XYZE)),
        "output read-only": (TypeError, "output 1", (shape, [a, b, s], XYZE, outputs(1, locked), XYZE)),
        "output short": (ValueError, "output 1", (shape, [a, b, s], XYZE, outputs(1, np.zeros((5, 4))), XYZE)),
        "output broadcast": (ValueError, "output 1", (shape, [a, b, s], XYZE, outputs(1, np.zeros((1, 4))), XYZE)),
        "output flat": (ValueError, "output 1", (shape, [a, b, s], XYZE, outputs(1, np.zeros(24)), XYZE)),
        "output 0-d": (ValueError, "output 2", (shape, [a, b, s], XYZE, outputs(2, np.zeros(())), XYZE)),
        "output narrow": (ValueError, "output 2", (shape, [a, b, s], XYZE, outputs(2, np.zeros((6, 4, 3))), XYZE)),
        "output integers": (TypeError, "output 1", (shape, [a, b, s], XYZE, outputs(1, np.zeros((6, 4), int)), XYZE)),
        "sum per event": (ValueError, "output 4", (shape, [a, b, s], XYZE, outputs(4, np.zeros((6, 4))), XYZE)),
        "sum narrow": (ValueError, "output 4", (shape, [a, b, s], XYZE, outputs(4, np.zeros(3)), XYZE)),
        "axes repeated": (ValueError, "input axes", (shape, [a, b, s], (0, 1, 2, 2), outs, XYZE)),
        "axes short": (ValueError, "input axes", (shape, [a, b, s], (0, 1, 2), outs, XYZE)),
        "axes beyond": (ValueError, "output axes", (shape, [a, b, s], XYZE, outs, (0, 1, 2, 4))),
        "output axes repeated": (ValueError, "output axes", (shape, [a, b, s], XYZE, outs, (0, 1, 1, 2))),
        "no axes": (ValueError, "output axes", (shape, [a, b, s], XYZE, outs, (-1, -1, -1, -1))),
        "other compute": (ValueError, "compute", (shape, [a, b, s], XYZE, outs, XYZE, "g")),
        "no threads": (ValueError, "threads", (shape, [a, b, s], XYZE, outs, XYZE, "d", 0)),
        "negative shape": (ValueError, "shape", ((-6,), [a, b, s], XYZE, outs, XYZE)),
        "too many events": (ValueError, "shape", ((2**40, 2**40), [a[0], b[0], 1.0], XYZE, outs, XYZE)),
    }


@pytest.mark.parametrize("case", bad_runs())
def test_bad_run(case):
    error, words, arguments = bad_runs()[case]
    with pytest.raises(error, match=words):
        Program(MIXED).run(*arguments)


class Forged:
    """What an unchecked tape could look like."""

    def __init__(self, **changes):
        names = ("inputs", "outputs", "constants", "vectors", "scalars", "code")
        self.__dict__.update({name: getattr(MIXED, name) for name in names}, **changes)


@pytest.mark.parametrize(
    "row",
    [
        (),
        (len(OPCODES),),
        (-1, 0),
        (BY_NAME["add"].number, 0, 1),
        (BY_NAME["add"].number, 0, 1, 8),
        (BY_NAME["add"].number, 8, 1, 1),
        (BY_NAME["add"].number, -1, 1, 1),
        (BY_NAME["vadd"].number, 0, 1, 8),
        (BY_NAME["vadd"].number, 1 << 29, 1, 1),
        (BY_NAME["load_vector"].number, 0, 3),
        (BY_NAME["load_vector"].number, 0, 2),
        (BY_NAME["load_scalar"].number, 0, 0),
        (BY_NAME["constant"].number, 0, len(CONSTANTS)),
        (BY_NAME["mul_constant"].number, 0, 1, -1),
        (BY_NAME["unit"].number, 0, 4),
        (BY_NAME["component"].number, 0, 1, 4),
        (BY_NAME["store_scalar"].number, 6, 0),
        (BY_NAME["store_scalar"].number, 1, 0),
        (BY_NAME["store_vector"].number, 0, 0),
        (BY_NAME["store_row"].number, 1, 0, 0),
        (BY_NAME["store_row"].number, 2, 4, 0),
    ],
)
def test_program_checks_the_tape_again(row):
    with pytest.raises(ValueError, match="tape"):
        Program(Forged(code=(row,)))


@pytest.mark.parametrize("registers", [{"vectors": 1 << 29}, {"scalars": 1 << 29}, {"vectors": -1}, {"scalars": -1}])
def test_program_checks_the_number_of_registers(registers):
    with pytest.raises(ValueError, match="registers"):
        Program(Forged(**registers))


def test_program_of_nothing():
    empty = Program(make_tape("", "", []))
    empty.run((10,), [], XYZE, [], XYZE)


def test_pickle():
    program = pickle.loads(pickle.dumps(Program(MIXED)))
    assert program.tape == MIXED
    inputs = random_inputs(MIXED, (10,))
    for x, y in zip(run(MIXED, (10,), inputs, program=program), run(MIXED, (10,), inputs), strict=True):
        assert same(x, y)


def test_two_python_threads_at_once():
    n = 30_000
    program = Program(MIXED)
    batches = [random_inputs(MIXED, (n,), seed=seed) for seed in range(2)]
    want = [run(MIXED, (n,), batch) for batch in batches]
    results = [[], []]
    start = threading.Barrier(2)

    def work(k):
        start.wait()
        for _ in range(10):
            results[k].append(run(MIXED, (n,), batches[k], threads=2, program=program))

    workers = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for k in range(2):
        assert len(results[k]) == 10
        for got in results[k]:
            assert all(same(x, y) for x, y in zip(got, want[k], strict=True))


def in_a_new_process(code, seconds=60, **environment):
    """Run code in a fresh interpreter, away from the source tree, with this file's folder to import from."""
    folder = str(Path(__file__).parent)
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {folder!r})\n{code}"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_fork_after_use():
    n = 100_000
    inputs = random_inputs(MIXED, (n,))
    want = run(MIXED, (n,), inputs, threads=2)
    child = os.fork()
    if child == 0:
        got = run(MIXED, (n,), inputs, threads=2)
        os._exit(0 if all(same(x, y) for x, y in zip(got, want, strict=True)) else 1)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.01)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the child hangs")
    assert os.waitstatus_to_exitcode(status) == 0


def test_interrupt():
    """In processor time and from within the call: a busy machine may take long to start it and to get through it."""
    code = """
import os, signal, threading, time
import numpy as np
from fastcov.cpu import Program
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has its background jobs ignore it
from fastcov.opcodes import BY_NAME
from fastcov.tape import Input, Output, Tape
row = lambda name, *x: (BY_NAME[name].number, *x)
code = [row("load_scalar", 0, 0), *(row("sqrt", (n + 1) % 2, n % 2) for n in range(200)), row("store_scalar", 0, 0)]
program = Program(Tape((Input("x", "scalar"),), (Output("scalar"),), (), 0, 2, tuple(code)))
first = np.zeros(1)
results = np.lib.stride_tricks.as_strided(first, (10**10,), (0,))
def interrupt():
    global start
    while not first[0]:
        time.sleep(0.001)
    start = time.process_time()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    program.run((10**10,), [2.0], (0, 1, 2, 3), [results], (0, 1, 2, 3))
except KeyboardInterrupt:
    print(time.process_time() - start)
"""
    result = in_a_new_process(code, seconds=300)
    assert result.returncode == 0, result.stderr
    assert float(result.stdout) < 5


def test_instruction_set_names():
    assert instruction_sets()[0] == "baseline"
    with pytest.raises(ValueError, match="'v9' is not one of baseline"):
        instruction_set("v9")
    for name in instruction_sets():
        result = in_a_new_process("import fastcov.cpu as c; print(c.instruction_set())", FASTCOV_ISA=name)
        assert result.stdout.strip() == name
    result = in_a_new_process("import fastcov.cpu", FASTCOV_ISA="v9")
    assert result.returncode != 0
    assert "FASTCOV_ISA" in result.stderr
    assert "v9" in result.stderr


def test_default_threads(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    most = default_threads()
    assert 1 <= most <= os.cpu_count()
    for text, want in (("1", 1), ("1,2", 1), ("1000", most), ("", most), ("many", most), ("0", most)):
        monkeypatch.setenv("OMP_NUM_THREADS", text)
        assert default_threads() == want


def test_import_is_light():
    code = "import numpy; before = set(sys.modules); import fastcov.cpu; print(*sorted(set(sys.modules) - before))"
    loaded = in_a_new_process(code).stdout.split()
    assert "fastcov.cpu._executor" in loaded
    assert not {"torch", "triton", "jax", "fastcov.kernels"} & set(loaded)
