"""The straight-line code of the shipped tapes against the interpreter: the same bits, in every layout."""

import numpy as np
import pytest

from fastcov import cpu, fused, phasespace, shipped, waves

FUNCTIONS = shipped.functions()
AXES = (0, 1, 2, 3)
EVENTS = 77  # whole vectors of every instruction set, and events left over


@pytest.fixture(autouse=True)
def _restored_instruction_set():
    before = cpu.instruction_set()
    yield
    cpu.instruction_set(before)


def values(tape, events=EVENTS, dtype="f8"):
    momenta = phasespace.psi2s_kkpipi(events, seed=5)
    rng = np.random.default_rng(7)
    count = len(tape.inputs)
    made = [momenta[n % 4] + 0.01 * rng.normal(size=(events, 4)) * (n >= 4) for n in range(count)]
    return [one.astype(dtype) for one in made]


def run(program, inputs, dtype, compute, shape=(EVENTS,), axes=AXES, output_axes=AXES):
    width = max(output_axes) + 1
    outputs = [np.full((*shape, width), np.nan, dtype) for _ in program.tape.outputs]
    program.run(shape, inputs, axes, outputs, output_axes, compute, 2)
    return outputs


def assert_same(tape, inputs, dtype="f8", compute="d", **keywords):
    straight, interpreted = cpu.Program(tape), cpu.Program(tape, interpret=True)
    assert straight.compiled
    assert not interpreted.compiled
    for a, b in zip(
        run(straight, inputs, dtype, compute, **keywords),
        run(interpreted, inputs, dtype, compute, **keywords),
        strict=True,
    ):
        assert np.isfinite(b).any()
        np.testing.assert_array_equal(a.view(f"u{a.itemsize}"), b.view(f"u{b.itemsize}"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bits_of_the_interpreter(name):
    tape = FUNCTIONS[name].tape
    for instruction_set in cpu.instruction_sets():
        cpu.instruction_set(instruction_set)
        for dtype, compute in (("f8", "d"), ("f4", "d"), ("f4", "f"), ("f8", "f")):
            assert_same(tape, values(tape, dtype=dtype), dtype, compute)


def columns(p):
    return tuple(np.ascontiguousarray(p[:, m]) for m in range(4))


LAYOUTS = {
    "columns": lambda p: columns(p),
    "strided": lambda p: np.repeat(p, 3, axis=0)[::3],
    "reversed": lambda p: np.ascontiguousarray(p[::-1])[::-1],
    "fortran": np.asfortranarray,
    "shared": lambda p: p[3],
    "shared, with a zero of either sign": lambda p: np.array([-0.0, 0.0, 0.3, 1.1], p.dtype),
    "shared columns": lambda p: tuple(np.broadcast_to(p[3, m], EVENTS) for m in range(4)),
    "wide rows": lambda p: np.hstack([p, p])[:, :4],
    "unaligned": lambda p: np.frombuffer(b"x" + p.tobytes(), "u1")[1:].view(p.dtype).reshape(p.shape),
    "float64": lambda p: p.astype("f8"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_layouts(layout, dtype):
    tape = waves.phif243.tape
    kp, km, pip, pim = values(tape, dtype=dtype)
    other = LAYOUTS[layout]
    for inputs in ([kp, other(km), pip, pim], [other(kp), other(km), other(pip), pim]):
        assert_same(tape, inputs, dtype)


@pytest.mark.parametrize("output_axes", [(0, 1, -1, -1), (1, 0, -1, -1), (-1, -1, -1, 0), (1, 2, 3, 0)])
def test_chosen_components(output_axes):
    tape = waves.phif201.tape
    assert_same(tape, values(tape), output_axes=output_axes)


def test_order_of_components():
    tape = waves.phif201.tape
    assert_same(tape, [np.roll(p, 1, axis=1) for p in values(tape)], axes=(1, 2, 3, 0))


def test_several_dimensions():
    tape = waves.phif021.tape
    kp, km, pip, pim = values(tape)
    inputs = [kp.reshape(7, 11, 4), km.reshape(7, 11, 4)[:, :1], pip[:11], pim.reshape(7, 11, 4)]
    assert_same(tape, inputs, shape=(7, 11))


@pytest.mark.parametrize("events", [0, 1, 7, 8, 9, 15, 16, 17, 1024, 1025])
def test_event_counts(events):
    tape = waves.phif001.tape
    for a, b in zip(
        run(cpu.Program(tape), values(tape, events), "f8", "d", shape=(events,)),
        run(cpu.Program(tape, interpret=True), values(tape, events), "f8", "d", shape=(events,)),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_found_by_what_is_computed_not_by_name():
    def same(a, b, c, d):
        return waves.phif001(a, b, c, d)

    assert cpu.Program(fused(same).tape).compiled
    assert not cpu.Program(fused(lambda a, b: a + b).tape).compiled
