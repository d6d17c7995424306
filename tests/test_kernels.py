"""The Triton executor in Triton's interpreter against plain NumPy, bit for bit: every opcode, layout and type.

Triton must be told before it is imported: TRITON_INTERPRET=1 pytest test_kernels.py
"""

import itertools
import mmap
import os
import threading

import numpy as np
import pytest
from tape_numpy import evaluate
from test_cpu import EVENT_OUTPUTS, MIXED, OPCODE_TAPES, make_tape

from fastcov.cpu import Program
from fastcov.opcodes import OPCODES

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs TRITON_INTERPRET=1", allow_module_level=True)

from fastcov import kernels  # noqa: E402
from fastcov.kernels import launcher  # noqa: E402
from fastcov.kernels.program import live_numbers, restrict, split  # noqa: E402
from fastcov.kernels.report import shipped_tapes  # noqa: E402

XYZE = (0, 1, 2, 3)
BLOCK = 128
SIZES = (0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 300)
TAILS = {"scalar": (), "vector": (4,), "matrix": (4, 4)}
COMPUTE = {"d": np.float64, "f": np.float32}
VECTORS = make_tape(
    "vector vector",
    "vector scalar",
    ["load_vector 0 0", "load_vector 1 1", "dot 0 0 1", "vadd_scaled 2 0 0 1", "store_vector 0 2", "store_scalar 1 0"],
)


def random_arrays(tape, shape, dtype=np.float64, seed=0):
    """Inputs with signed zeros, subnormals, infinities and NaN among them."""
    rng = np.random.default_rng(seed)
    arrays = []
    for one in tape.inputs:
        values = rng.normal(size=shape + TAILS[one.kind]).astype(dtype)
        special = np.array([0, -0.0, np.finfo(dtype).smallest_subnormal, np.inf, -np.inf, np.nan], dtype)
        if values.size > 20:
            values.flat[rng.choice(values.size, values.size // 8, replace=False)] = np.resize(special, values.size // 8)
        arrays.append(values)
    return arrays


def tensor(x):
    return torch.from_numpy(x) if isinstance(x, np.ndarray) else x


def execute(tape, shape, inputs, compute="d", storage=np.float64, input_axes=None, output_axes=None, outputs=None):
    """The outputs as arrays, which hold NaN before."""
    if outputs is None:
        outputs = []
        for n, out in enumerate(tape.outputs):
            kept = 4 if output_axes is None else sum(axis >= 0 for axis in output_axes[n])
            tail = (kept,) * len(TAILS[out.kind])
            outputs.append(np.full((() if out.summed else shape) + tail, np.nan, storage))
    kernels.run(
        tape,
        shape,
        inputs,
        input_axes or [XYZE] * len(tape.inputs),
        [tensor(x) for x in outputs],
        output_axes or [XYZE] * len(tape.outputs),
        compute,
        interpret=True,
    )
    return outputs


def assert_same_bits(got, wanted):
    """Equal, zeros by their sign; NaN equals NaN of any sign and payload, which differ among machines."""
    assert got.shape == wanted.shape
    nan = np.isnan(wanted)
    assert np.array_equal(np.isnan(got), nan)
    assert np.array_equal(np.where(nan, 0, got), np.where(nan, 0, wanted))
    assert np.array_equal(np.signbit(got) & ~nan, np.signbit(wanted) & ~nan)


def assert_agrees(tape, arrays, outputs, compute):
    wanted = evaluate(tape, arrays, COMPUTE[compute])
    for out, got, exact in zip(tape.outputs, outputs, wanted, strict=True):
        if not out.summed:
            with np.errstate(over="ignore"):
                assert_same_bits(got, exact.astype(got.dtype))


def test_the_interpreter_is_available():
    available, why = kernels.available(interpret=True)
    assert available
    assert "interpreter" in why
    assert kernels.available() == (False, "torch finds no CUDA device") or torch.cuda.is_available()


@pytest.mark.parametrize("storage", [np.float64, np.float32])
@pytest.mark.parametrize("compute", ["d", "f"])
@pytest.mark.parametrize("name", [op.name for op in OPCODES])
def test_every_opcode(name, compute, storage):
    for tape in OPCODE_TAPES[name]:
        arrays = random_arrays(tape, (BLOCK + 1,), storage)
        outputs = execute(tape, (BLOCK + 1,), [tensor(x) for x in arrays], compute, storage)
        assert_agrees(tape, arrays, outputs, compute)


@pytest.mark.parametrize(("storage", "compute"), [("float64", "d"), ("float32", "d"), ("float32", "f")])
@pytest.mark.parametrize(("name", "tape"), shipped_tapes())
def test_shipped_tapes_give_the_bits_of_the_cpu(name, tape, storage, compute):
    n = 5
    arrays = [np.random.default_rng(0).uniform(0.1, 1, (n, *TAILS[one.kind])).astype(storage) for one in tape.inputs]
    for one, x in zip(tape.inputs, arrays, strict=True):
        if one.kind == "vector":
            x[:, 3] += 2
    outputs = execute(tape, (n,), [tensor(x) for x in arrays], compute, storage)
    on_cpu = [np.empty_like(x) for x in outputs]
    Program(tape).run((n,), arrays, XYZE, on_cpu, XYZE, compute)
    for got, wanted in zip(outputs, on_cpu, strict=True):
        assert_same_bits(got, wanted)


def test_an_unknown_opcode_does_not_run():
    tape = OPCODE_TAPES["add"][0]
    layouts = tuple(("unit" if one.kind == "scalar" else "packed", torch.float64, XYZE) for one in tape.inputs)
    planned = launcher._planned(tape, (*layouts, ("unit", torch.float64, ())), "d")
    with pytest.raises(Exception, match="lacks an opcode"):
        launcher.tape_kernel[1, 1, 1](0, (), (), (), **{**planned.constexprs, "OP": (99,)})


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("compute", ["d", "f"])
def test_sizes_and_sums(n, compute):
    arrays = [np.random.default_rng(n).uniform(1, 2, x.shape) for x in random_arrays(MIXED, (n,))]
    outputs = execute(MIXED, (n,), [tensor(x) for x in arrays], compute)
    assert_agrees(MIXED, arrays, outputs, compute)
    for out, exact in zip(
        outputs[EVENT_OUTPUTS:], evaluate(MIXED, arrays, COMPUTE[compute])[EVENT_OUTPUTS:], strict=True
    ):
        terms = exact.astype(np.float64)
        bound = 4 * np.finfo(float).eps * np.log2(n + 2) * np.abs(terms).sum(axis=0)
        assert np.all(np.abs(out - terms.sum(axis=0)) <= bound)


def test_sums_of_many_blocks_are_added_up_in_groups():
    terms = torch.from_numpy(np.random.default_rng(1).normal(size=(3, 2 * launcher.SUM_GROUP + 7)))
    totals = launcher._added_up(terms, launcher.INTERPRETER).numpy()
    assert np.allclose(totals, terms.numpy().sum(axis=1), rtol=1e-12, atol=1e-12)
    assert np.array_equal(totals, launcher._added_up(terms.clone(), launcher.INTERPRETER).numpy())


@pytest.mark.parametrize("storage", [np.float64, np.float32])
@pytest.mark.parametrize("order", [XYZE, (1, 2, 3, 0), (3, 1, 0, 2)])
def test_order_of_components(order, storage):
    arrays = random_arrays(MIXED, (BLOCK + 1,), storage)
    moved = [np.empty_like(x) for x in arrays[:2]]
    for x, y in zip(moved, arrays[:2], strict=True):
        x[:, order] = y
    outputs = execute(
        MIXED, (BLOCK + 1,), [tensor(x) for x in (*moved, arrays[2])], "d", storage, [order] * 3, [order] * 6
    )
    plain = execute(MIXED, (BLOCK + 1,), [tensor(x) for x in arrays], "d", storage)
    for n, (got, wanted) in enumerate(zip(outputs, plain, strict=True)):
        if MIXED.outputs[n].kind == "matrix":
            got = got[..., order, :]
        assert_same_bits(got if MIXED.outputs[n].kind == "scalar" else got[..., order], wanted)


@pytest.mark.parametrize("storage", [np.float64, np.float32])
@pytest.mark.parametrize("axes", [(0, -1, -1, 1), (2, 1, 0, -1), (-1, -1, 0, -1), (0, 1, -1, -1), (-1, -1, 1, 0)])
def test_chosen_components(axes, storage):
    arrays = random_arrays(MIXED, (BLOCK + 1,), storage)
    inputs = [tensor(x) for x in arrays]
    outputs = execute(MIXED, (BLOCK + 1,), inputs, "d", storage, output_axes=[axes] * 6)
    kept = [axes.index(place) for place in range(max(axes) + 1)]
    for got, wanted in zip(outputs, execute(MIXED, (BLOCK + 1,), inputs, "d", storage), strict=True):
        for axis in range(1 if wanted.ndim and wanted.shape[0] == BLOCK + 1 else 0, wanted.ndim):
            wanted = wanted.take(kept, axis=axis)
        assert_same_bits(got, wanted)


def strided(x):
    wide = np.full((2 * x.shape[0], *x.shape[1:], 3), 7, x.dtype)
    wide[::2, ..., 1] = x
    return torch.from_numpy(wide)[::2, ..., 1]


def offset(x):
    """Contiguous, but not where 16 bytes can be read at once."""
    room = np.empty(x.size + 1, x.dtype)
    room[1:] = x.ravel()
    return torch.from_numpy(room)[1:].view(x.shape)


def columns(x):
    return tuple(torch.from_numpy(np.ascontiguousarray(x[..., c])) for c in range(4))


def unequal_columns(x):
    return tuple(strided(x[..., c]) if c % 2 else torch.from_numpy(x[..., c].copy()) for c in range(4))


def columns_of_two_types(x):
    wide = columns(x)
    return (wide[0].double(), *wide[1:])


LAYOUTS = (torch.from_numpy, strided, offset, columns, unequal_columns, columns_of_two_types)


@pytest.mark.parametrize("storage", [np.float64, np.float32])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_inputs(layout, storage):
    arrays = random_arrays(VECTORS, (BLOCK + 1,), storage)
    outputs = execute(VECTORS, (BLOCK + 1,), [layout(arrays[0]), torch.from_numpy(arrays[1])], "d", storage)
    assert_agrees(VECTORS, arrays, outputs, "d")


@pytest.mark.parametrize("storage", [np.float64, np.float32])
def test_strided_and_misaligned_outputs(storage):
    arrays = random_arrays(MIXED, (BLOCK + 1,), storage)
    inputs = [tensor(x) for x in arrays]
    for make in (strided, offset):
        outputs = [
            make(np.full((BLOCK + 1, *TAILS[out.kind]), np.nan, storage))
            if not out.summed
            else torch.zeros(TAILS[out.kind])
            for out in MIXED.outputs
        ]
        execute(MIXED, (BLOCK + 1,), inputs, "d", outputs=outputs)
        assert_agrees(MIXED, arrays, [x.numpy() for x in outputs], "d")


P0, Q0, S0 = np.array([0.1, -0.2, 0.3, 1.7]), np.array([1.7, 0.3, -0.2, 0.1]), 0.7


@pytest.mark.parametrize(
    "shared",
    [{0: P0}, {1: Q0}, {2: S0}, {2: np.array([S0])}, {2: torch.tensor(S0, dtype=torch.float64)}, {0: P0, 1: Q0, 2: S0}],
)
def test_operands_shared_by_all_events(shared):
    n = BLOCK + 1
    given = dict(enumerate(random_arrays(MIXED, (n,)))) | shared
    outputs = execute(MIXED, (n,), [tensor(x) for x in given.values()])
    tails = [TAILS[one.kind] for one in MIXED.inputs]
    spread = [np.broadcast_to(x, (n, *tail)) for x, tail in zip(given.values(), tails, strict=True)]
    assert_agrees(MIXED, spread, outputs, "d")


def test_several_leading_axes():
    shape = (3, 5, 9)
    p, q, s = random_arrays(MIXED, shape)
    whole = execute(MIXED, shape, [tensor(x) for x in (p, q, s)])
    assert_agrees(MIXED, [p, q, s], whole, "d")
    middle, last = q[:, :1], s[0, 0]
    outputs = execute(MIXED, shape, [tensor(p), tensor(middle), tensor(last)])
    arrays = [p, np.broadcast_to(middle, p.shape), np.broadcast_to(last, shape)]
    assert_agrees(MIXED, arrays, outputs, "d")


def test_outputs_with_axes_that_are_no_single_one():
    shape = (3, 5)
    arrays = random_arrays(VECTORS, shape)
    outputs = [torch.full((3, 7, 4), torch.nan)[:, :5], torch.full((5, 3), torch.nan).T]
    execute(VECTORS, shape, [tensor(x) for x in arrays], outputs=outputs)
    assert_agrees(VECTORS, arrays, [x.numpy() for x in outputs], "d")


def test_event_stride():
    assert launcher.event_stride((3, 5), (20, 4)) == 4
    assert launcher.event_stride((3, 1, 5), (20, 77, 4)) == 4
    assert launcher.event_stride((3, 5), (0, 0)) == 0
    assert launcher.event_stride((3, 5), (0, 4)) is None
    assert launcher.event_stride((3, 5), (4, 0)) is None
    assert launcher.event_stride((3, 5), (28, 4)) is None
    assert launcher.event_stride((), ()) == 1


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")
def test_read_only_inputs():
    n = BLOCK + 1
    room = mmap.mmap(-1, 8 * mmap.PAGESIZE, prot=mmap.PROT_READ)
    zeros = torch.frombuffer(room, dtype=torch.float64, count=4 * n).view(n, 4)
    q = random_arrays(VECTORS, (n,))[1]
    assert_agrees(VECTORS, [np.zeros((n, 4)), q], execute(VECTORS, (n,), [zeros, tensor(q)]), "d")


def test_batches_and_threads_do_not_change_a_bit():
    arrays = random_arrays(VECTORS, (300,))
    whole = execute(VECTORS, (300,), [tensor(x) for x in arrays])
    results = {}

    def part(start, stop):
        results[start] = execute(VECTORS, (stop - start,), [tensor(x[start:stop]) for x in arrays])

    cuts = (0, 1, 131, 300)
    threads = [threading.Thread(target=part, args=pair) for pair in itertools.pairwise(cuts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n, wanted in enumerate(whole):
        assert_same_bits(np.concatenate([results[start][n] for start in cuts[:-1]]), wanted)


MANY = make_tape(
    "vector vector scalar",
    "scalar vector scalar+ matrix",
    [
        "load_vector 0 0",
        "load_vector 1 1",
        "load_scalar 0 2",
        "dot 1 0 1",
        "mul 2 1 0",
        "store_scalar 0 2",
        "vsub_scaled 2 0 1 1",
        "store_vector 1 2",
        "sqrt 3 1",
        "store_scalar 2 3",
        *(f"store_row 3 {row} {row % 3}" for row in range(4)),
    ],
)


def test_live_numbers():
    code = ["load_scalar 0 0", "load_scalar 1 1", "add 2 0 1", "store_scalar 0 2"]
    assert live_numbers(make_tape("scalar scalar", "scalar", code)) == 2
    assert live_numbers(MANY) == 13


def test_restrict_keeps_what_an_output_needs():
    def names(*outputs):
        return [OPCODES[row[0]].name for row in restrict(MANY, outputs).code]

    assert restrict(MANY, range(4)) == MANY
    assert restrict(MANY, (1,)).inputs == MANY.inputs
    assert names(1) == ["load_vector", "load_vector", "dot", "vsub_scaled", "store_vector"]
    assert names(2, 0).count("store_scalar") == 2


ALONE = [9, 9, 8, 12]  # numbers alive for each output of MANY


def test_split_by_its_rule():
    assert [live_numbers(restrict(MANY, (output,))) for output in range(4)] == ALONE
    assert split(MANY, 13) == ((MANY, (0, 1, 2, 3)),)
    assert [outputs for _, outputs in split(MANY, 10)] == [(0, 1, 2), (3,)]
    assert [outputs for _, outputs in split(MANY, 9)] == [(0,), (1, 2), (3,)]
    assert [outputs for _, outputs in split(MANY, 8)] == [(2,), (0, 1, 3)]
    assert [outputs for _, outputs in split(MANY, 1)] == [(0, 1, 2, 3)]
    for limit in range(1, 13):
        parts = split(MANY, limit)
        assert sorted(output for _, outputs in parts for output in outputs) == [0, 1, 2, 3]
        for tape, outputs in parts:
            assert live_numbers(tape) <= limit or all(ALONE[output] > limit for output in outputs)


@pytest.mark.parametrize("limit", [8, 10])
def test_a_split_tape_gives_the_same_bits(limit, monkeypatch):
    arrays = random_arrays(MANY, (BLOCK + 1,))
    whole = execute(MANY, (BLOCK + 1,), [tensor(x) for x in arrays])
    monkeypatch.setattr(launcher, "LIMITS", {"d": limit})
    launcher._parts.cache_clear()
    assert len(launcher._parts(MANY, "d")) > 1
    for got, wanted in zip(execute(MANY, (BLOCK + 1,), [tensor(x) for x in arrays]), whole, strict=True):
        assert_same_bits(got, wanted)
    launcher._parts.cache_clear()


def test_a_device_is_refused_in_this_process():
    arrays = [tensor(x) for x in random_arrays(VECTORS, (1,))]
    outputs = [torch.zeros(1, 4), torch.zeros(1)]
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET=1 is set"):
        kernels.run(VECTORS, (1,), arrays, [XYZE] * 2, outputs, [XYZE] * 2, "d")
