"""No byte beside an array is read or written: arrays lie between pages that may not be touched.

An access outside ends the process. The values are compared with those of the same arrays elsewhere.
"""

import ctypes
import math
import mmap
import os
import signal

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import fastcov as fc
from fastcov import cpu, waves
from fastcov.phasespace import psi2s_kkpipi

LIBC = ctypes.CDLL(None, use_errno=True)
XYZE = (0, 1, 2, 3)
TAILS = {"scalar": (), "vector": (4,), "matrix": (4, 4)}
SIZES = (1, 3, 8, 9, 17, 65)

pytestmark = pytest.mark.skipif(not hasattr(LIBC, "mprotect"), reason="no mprotect on this system")


def fenced(size, end, gap=0):
    """`size` bytes that touch a forbidden page at one side, or lie `gap` bytes off, and are near one at the other."""
    pages = -(-(size + gap) // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, pages + 2 * mmap.PAGESIZE)
    whole = np.frombuffer(memory, np.uint8)
    for fence in (0, mmap.PAGESIZE + pages):
        address = ctypes.c_void_p(whole.ctypes.data + fence)
        assert LIBC.mprotect(address, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    first = mmap.PAGESIZE + (pages - size - gap if end else gap)
    return whole[first : first + size]


def placed(shape, steps, dtype, end, gap):
    """An array with these strides, in elements, in just as much fenced memory as it reaches over."""
    itemsize = np.dtype(dtype).itemsize
    reach = [(n - 1) * step for n, step in zip(shape, steps, strict=True)]
    below = -sum(r for r in reach if r < 0)
    memory = fenced((below + sum(r for r in reach if r > 0) + 1) * itemsize, end, gap).view(dtype)
    return as_strided(memory[below:], shape, [step * itemsize for step in steps])


def packed(shape):
    return [math.prod(shape[n + 1 :]) for n in range(len(shape))]


def apart(shape):
    """Twice as far from event to event as need be."""
    first, *rest = packed(shape)
    return [2 * first, *rest]


def loose(shape):
    return [2 * step for step in packed(shape)]


def backwards(shape):
    first, *rest = packed(shape)
    return [-first, *rest]


def components_first(shape):
    return [1, *(shape[0] * step for step in packed(shape[1:]))]


LAYOUTS = {f.__name__: f for f in (packed, apart, loose, backwards, components_first)}


def mixed(p, q, x: fc.Scalar):
    return fc.dot(p, q) * x, p * x + q, fc.einsum("i,j->ij", p, q)


TAPES = {
    "interpreted": (fc.fused(mixed).tape, True),
    "straight wave": (waves.phif021.tape, False),
    "straight gradient": (waves.phif021.vjp.tape, False),
}


def values(tape, events, dtype):
    momenta = psi2s_kkpipi(events, seed=events)
    made = [momenta[n % 4] if one.kind == "vector" else momenta[0][:, 3] for n, one in enumerate(tape.inputs)]
    return [value.astype(dtype) for value in made]


@pytest.fixture(params=cpu.instruction_sets())
def instruction_set(request):
    before = cpu.instruction_set()
    cpu.instruction_set(request.param)
    yield
    cpu.instruction_set(before)


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize(("dtype", "compute"), [("f8", "d"), ("f4", "d"), ("f4", "f"), ("f8", "f")])
@pytest.mark.parametrize("layout", [*LAYOUTS, "columns", "shared", "shared columns"])
@pytest.mark.parametrize("kind", TAPES)
def test_nothing_beside_an_array_is_touched(kind, layout, dtype, compute):
    tape, interpret = TAPES[kind]
    program = cpu.Program(tape, interpret=interpret)
    assert program.compiled == (not interpret)
    steps = LAYOUTS.get(layout, packed)

    def copied(value, end, gap):
        if "shared" in layout:
            value = value[0]
        if "columns" in layout and value.shape[-1:] == (4,):
            return tuple(copied_array(value[..., m], packed, end, gap) for m in range(4))
        return copied_array(value, packed if "shared" in layout else steps, end, gap)

    def copied_array(value, steps, end, gap):
        array = placed(value.shape, steps(value.shape), dtype, end, gap)
        array[...] = value
        return array

    for events in SIZES:
        given = values(tape, events, dtype)
        full = [np.broadcast_to(v[:1], v.shape) for v in given] if "shared" in layout else given
        shapes = [(events, *TAILS[output.kind]) for output in tape.outputs]
        wanted = [np.full(shape, np.nan, dtype) for shape in shapes]
        program.run((events,), full, XYZE, wanted, XYZE, compute)
        for end, gap in ((True, 0), (False, 0), (True, 3), (False, 5)):
            inputs = [copied(value, end, gap) for value in given]
            outputs = [placed(shape, steps(shape), dtype, end, gap) for shape in shapes]
            program.run((events,), inputs, XYZE, outputs, XYZE, compute)
            assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(outputs, wanted, strict=True))


def test_a_fence_ends_the_process():
    """What the tests above rest on."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        as_strided(fenced(16, True), (17,), (1,)).sum()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
