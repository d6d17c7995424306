"""What may be passed: layouts, dtypes, broadcasting, `out`; and what is refused, naming the argument."""

import itertools

import numpy as np
import pytest
from tape_numpy import evaluate

import fastcov as fc
from fastcov import arrays, waves
from fastcov.cpu import instruction_set, instruction_sets
from fastcov.opcodes import BY_NAME
from fastcov.phasespace import psi2s_kkpipi

N = 203
MOMENTA = psi2s_kkpipi(N, seed=5)
WAVE = waves.phif243
VALUES = evaluate(WAVE.tape, MOMENTA)[0]


@fc.fused
def kinds(p, r, w: fc.Scalar):
    return fc.dot(p, r) * w, p * w - r, fc.transverse(p)


def misaligned(a, by=3):
    memory = np.zeros(a.nbytes + by, np.uint8)
    view = memory[by:].view(a.dtype).reshape(a.shape)
    view[...] = a
    assert not view.flags.aligned
    return view


def read_only(a):
    a = a.copy()
    a.flags.writeable = False
    return a


def shifted(a):
    wide = np.full((len(a) + 1, 4), np.nan, a.dtype)
    wide[1:] = a
    return wide[1:]


LAYOUTS = {
    "packed": np.ascontiguousarray,
    "every second event": lambda a: np.repeat(a, 2, axis=0)[::2],
    "wide rows": lambda a: np.concatenate([a, a], axis=1)[:, :4],
    "reversed events": lambda a: a[::-1].copy()[::-1],
    "reversed components": lambda a: a[:, ::-1].copy()[:, ::-1],
    "Fortran order": np.asfortranarray,
    "offset": shifted,
    "misaligned": misaligned,
    "read-only": read_only,
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "byte order spelt out": lambda a: a.astype(a.dtype.newbyteorder("<")),
    "misaligned big-endian": lambda a: misaligned(a.astype(a.dtype.newbyteorder(">"))),
    "columns": lambda a: tuple(a.T.copy()),
    "strided columns": lambda a: tuple(a.T),
    "big-endian columns": lambda a: tuple(a.T.astype(a.dtype.newbyteorder(">"))),
    "part of a record": lambda a: np.rec.fromarrays([a[:, 0], a], dtype=[("n", "f8"), ("p", a.dtype, 4)])["p"],
    "list": lambda a: a.tolist(),
    "subclass": lambda a: a.view(type("Sub", (np.ndarray,), {})),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_bits(layout):
    arrays = [LAYOUTS[layout](p) for p in MOMENTA]
    for got in (WAVE(*arrays), WAVE(*arrays)):
        assert type(got) is np.ndarray
        assert got.flags.c_contiguous
        assert np.array_equal(got, VALUES)
    for moved, others in itertools.product(range(4), ["packed", "columns"]):
        arrays = [LAYOUTS[layout if n == moved else others](p) for n, p in enumerate(MOMENTA)]
        assert np.array_equal(WAVE(*arrays), VALUES)


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name not in ("list",)])
def test_every_layout_of_float32(layout):
    single = [p.astype(np.float32) for p in MOMENTA]
    wanted = evaluate(WAVE.tape, single)[0].astype(np.float32)
    got = WAVE(*[LAYOUTS[layout](p) for p in single])
    assert got.dtype == np.float32
    assert np.array_equal(got, wanted)
    in_single = WAVE(*[LAYOUTS[layout](p) for p in single], compute="float32")
    assert np.array_equal(in_single, evaluate(WAVE.tape, single, np.float32)[0])


@pytest.mark.parametrize("threads", [1, 2, 3, None])
def test_threads_and_instruction_sets_give_the_same_bits(threads):
    n = 40_000
    momenta = [np.resize(p, (n, 4)) for p in MOMENTA]
    wanted = np.resize(VALUES, (n, 4))
    before = instruction_set()
    try:
        for name in instruction_sets():
            instruction_set(name)
            assert np.array_equal(WAVE(*momenta, threads=threads), wanted)
    finally:
        instruction_set(before)


@pytest.mark.parametrize("cuts", [[1], [64], [63, 65], [5, 6, 7, 100], list(range(1, N))])
def test_any_split_of_the_batch_gives_the_same_bits(cuts):
    parts = [WAVE(*[p[a:b] for p in MOMENTA]) for a, b in itertools.pairwise([0, *cuts, N])]
    assert np.array_equal(np.concatenate(parts), VALUES)


def test_broadcasting():
    p, r = MOMENTA[0][:20].reshape(5, 4, 4), MOMENTA[1][:4]
    w = np.linspace(1, 2, 5)[:, None]
    full = [np.broadcast_to(x, (5, 4, *x.shape[x.ndim - k :])) for x, k in ((p, 1), (r, 1), (w, 0))]
    wanted = kinds(*[x.copy() for x in full])
    for got in (kinds(p, r, w), kinds(*full), kinds(tuple(np.moveaxis(p, -1, 0)), tuple(r.T), w)):
        for a, b in zip(got, wanted, strict=True):
            assert a.shape == b.shape
            assert np.array_equal(a, b)
    for alone in (p[0, 0], p[0, 0].tolist(), tuple(p[0, 0])):
        for a, b in zip(kinds(alone, r, 2.0), kinds(np.broadcast_to(p[0, 0], (4, 4)), r, np.full(4, 2.0)), strict=True):
            assert np.array_equal(a, b)


def test_one_event_and_none():
    scalar, vector, matrix = kinds(MOMENTA[0][0], MOMENTA[1][0], 1.5)
    assert (scalar.shape, vector.shape, matrix.shape) == ((), (4,), (4, 4))
    assert isinstance(scalar, np.ndarray)
    scalar, vector, matrix = kinds(MOMENTA[0][:0], MOMENTA[1][:0], 1.5)
    assert (scalar.shape, vector.shape, matrix.shape) == ((0,), (0, 4), (0, 4, 4))
    empty = np.empty((3, 0, 4))
    assert WAVE(empty, empty, empty, MOMENTA[0][0]).shape == (3, 0, 4)


@pytest.mark.parametrize("order", ["xyzE", "Exyz", "zEyx"])
def test_order(order):
    places = ["xyzE".index(c) for c in order]
    arrays = [p[:, places] for p in MOMENTA]
    assert np.array_equal(WAVE(*arrays, order=order), VALUES[:, places])
    assert np.array_equal(WAVE(*[tuple(a.T) for a in arrays], order=order), VALUES[:, places])
    for letters in ("xy", "E", "Ex", "zyx"):
        chosen = ["xyzE".index(c) for c in letters]
        got = WAVE(*arrays, order=order, components=letters)
        assert np.array_equal(got, VALUES[:, chosen])
        assert got.flags.c_contiguous
    p, r = (x[:, places] for x in MOMENTA[:2])
    matrix = kinds(MOMENTA[0], MOMENTA[1], 1.0)[2]
    assert np.array_equal(kinds(p, r, 1.0, order=order)[2], matrix[:, places][:, :, places])
    assert np.array_equal(kinds(p, r, 1.0, order=order, components="yE")[2], matrix[:, [1, 3]][:, :, [1, 3]])


@pytest.mark.parametrize(
    ("dtypes", "wanted"),
    [
        ("dd", "d"),
        ("ff", "f"),
        ("fd", "d"),
        ("di", "d"),
        ("fi", "d"),
        ("ii", "d"),
        ("hb", "d"),
        ("fB", "d"),
        ("qQ", "d"),
    ],
)
def test_dtypes(dtypes, wanted):
    p, r = np.array([[1, 2, 3, 9.0], [0, 1, 2, 7]]), np.array([[4, 1, 0, 5.0], [0, 0, 1, 3]])
    for columns in (False, True):
        given = [x.astype(t) for x, t in zip((p, r), dtypes, strict=True)]
        scalar, vector, _ = kinds(*[tuple(x.T) if columns else x for x in given], 2.0)
        assert (scalar.dtype, vector.dtype) == (wanted, wanted)
        assert np.array_equal(vector, 2 * p - r)
        assert np.array_equal(scalar, [2 * (45 - 4 - 2), 2 * (21 - 2)])


def test_python_numbers_do_not_decide_the_dtype():
    p = MOMENTA[0].astype(np.float32)
    for number, wanted in (
        (2, np.float32),
        (2.0, np.float32),
        (np.float64(2), np.float64),
        (np.float32(2), np.float32),
    ):
        for _ in range(2):
            assert kinds(p, p, number)[1].dtype == wanted
    assert kinds(p[:, 0:4], tuple(p.T), np.full(N, 2.0))[1].dtype == np.float64


@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        (np.zeros((N, 3)), ValueError, r"r: a 4-vector has shape \(\.\.\., 4\), not \(203, 3\)"),
        (np.zeros((4, N)), ValueError, r"r: a 4-vector has shape \(\.\.\., 4\), not \(4, 203\)"),
        (np.zeros(()), ValueError, r"r: a 4-vector has shape \(\.\.\., 4\), not \(\)"),
        (2.0, ValueError, r"r: a 4-vector has shape"),
        (np.zeros((N - 1, 4)), ValueError, r"do not broadcast: p \(203,\), r \(202,\), w \(\)"),
        (np.zeros((2, N + 1, 4)), ValueError, r"do not broadcast: p \(203,\), r \(2, 204\)"),
        ((np.zeros(N),) * 3, ValueError, "r: a tuple is four columns, one a component, not 3"),
        ((*(np.zeros(N),) * 3, np.zeros(1)), ValueError, "r: the four columns have different shapes"),
        ([[0.0, 0, 0, 1], [0, 0, 1]], ValueError, "r: .*inhomogeneous"),
        (np.zeros((N, 4), complex), TypeError, "r: dtype complex128 is not supported; float32, float64 and integers"),
        (np.zeros((N, 4), np.float16), TypeError, "r: dtype float16"),
        (np.zeros((N, 4), np.longdouble), TypeError, "r: dtype float128|r: dtype longdouble"),
        (np.zeros((N, 4), bool), TypeError, "r: dtype bool"),
        (np.zeros((N, 4), object), TypeError, "r: dtype object"),
        (np.zeros((N, 4), "M8[s]"), TypeError, "r: dtype datetime64"),
        (np.full((N, 4), "1"), TypeError, "r: dtype <U1"),
        (None, TypeError, "r: dtype object"),
        ({"px": 1}, TypeError, "r: dtype object"),
        (np.ma.masked_array(np.zeros((N, 4))), TypeError, "r: masked arrays are not supported"),
        ((np.zeros(N), np.zeros(N), np.zeros(N), np.ma.masked_array(np.zeros(N))), TypeError, "r: masked arrays"),
        (np.zeros((N,), [("x", "f8"), ("y", "f8")]), TypeError, "r: dtype"),
    ],
)
def test_bad_vectors(bad, error, words):
    for call in (lambda: kinds(MOMENTA[0], bad, 1.0), lambda: kinds(MOMENTA[0], r=bad, w=1.0)):
        with pytest.raises(error, match=words):
            call()


@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        (np.zeros((N, 4)), ValueError, r"do not broadcast: p \(203,\), r \(203,\), w \(203, 4\)"),
        ("1", TypeError, "w: dtype <U1"),
        (1j, TypeError, "w: dtype complex128"),
        (True, TypeError, "w: dtype bool"),
    ],
)
def test_bad_scalars(bad, error, words):
    with pytest.raises(error, match=words):
        kinds(MOMENTA[0], MOMENTA[1], bad)


# out


def test_out():
    for make in (
        lambda: np.full((N, 4), np.nan),
        lambda: np.full((4, N), np.nan).T,
        lambda: np.full((2 * N, 8), np.nan)[::-2, ::2],
        lambda: misaligned(np.full((N, 4), np.nan)),
    ):
        out = make()
        assert WAVE(*MOMENTA, out=out) is out
        assert np.array_equal(out, VALUES)
    single = np.full((N, 4), np.nan, np.float32)
    WAVE(*[p.astype("f4") for p in MOMENTA], out=single)
    assert np.array_equal(single, WAVE(*[p.astype("f4") for p in MOMENTA]))
    wide = np.full((N, 6), -1.0)
    WAVE(*MOMENTA, out=wide[:, 1:5])
    assert np.array_equal(wide[:, 1:5], VALUES)
    assert (wide[:, [0, 5]] == -1).all()
    xy = np.full((N, 2), np.nan)
    assert WAVE(*MOMENTA, out=xy, components="xy") is xy
    assert np.array_equal(xy, VALUES[:, :2])


def test_out_in_the_structure_of_the_result():
    wanted = kinds(*MOMENTA[:2], 2.0)
    out = tuple(np.full_like(x, np.nan) for x in wanted)
    got = kinds(*MOMENTA[:2], 2.0, out=out)
    assert all(a is b for a, b in zip(got, out, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(out, wanted, strict=True))
    named = fc.fused(lambda p: {"a": p * 2, "b": fc.sum(p)})
    out = {"b": np.full(4, np.nan), "a": np.full((N, 4), np.nan)}
    named(MOMENTA[0], out=out)
    assert np.array_equal(out["a"], 2 * MOMENTA[0])
    assert np.array_equal(out["b"], named(MOMENTA[0])["b"])
    bundle = fc.bundle(waves.phif001, WAVE)
    stacked = np.full((2, N, 4), np.nan)
    assert bundle(*MOMENTA, out=stacked) is stacked
    assert np.array_equal(stacked[1], VALUES)
    for several in ((np.full((N, 4), np.nan), np.full((N, 4), np.nan)), [np.full((N, 4), np.nan), np.ones((4, N)).T]):
        assert bundle(*MOMENTA, out=several) is several
        assert np.array_equal(np.stack(several), stacked)


def test_out_may_be_an_input():
    """Each event is read before it is written."""
    p = [x.copy() for x in MOMENTA]
    assert WAVE(*p, out=p[2]) is p[2]
    assert np.array_equal(p[2], VALUES)
    n = 30_000
    big = [np.resize(x, (n, 4)) for x in MOMENTA]
    WAVE(*big, out=big[0], threads=2)
    assert np.array_equal(big[0], np.resize(VALUES, (n, 4)))


def bad_outs():
    p = [x.copy() for x in MOMENTA]
    memory = np.zeros((N + 1, 4))
    locked = np.zeros((N, 4))
    locked.flags.writeable = False
    one = np.zeros((N, 4))
    yield WAVE, p, [[0.0] * 4] * N, TypeError, "out must be a NumPy array like the inputs, not list"
    yield WAVE, p, np.zeros((N, 3)), ValueError, r"out has shape \(203, 3\), the result has \(203, 4\)"
    yield WAVE, p, np.zeros((1, N, 4)), ValueError, r"out has shape \(1, 203, 4\)"
    yield WAVE, p, np.zeros((N, 4), "f4"), ValueError, "out has dtype float32, the result has float64"
    yield WAVE, p, np.zeros((N, 4), ">f8"), ValueError, "out has dtype >f8"
    yield WAVE, p, np.zeros((N, 4), int), ValueError, "out has dtype int64"
    yield WAVE, p, locked, ValueError, "out is read-only"
    yield WAVE, p, np.broadcast_to(np.zeros(4), (N, 4)), ValueError, "out is read-only"
    shared = np.lib.stride_tricks.as_strided(np.zeros(4), (N, 4), (0, 8))
    yield WAVE, p, shared, ValueError, "out has elements that share memory"
    yield WAVE, p, p[1][::-1], ValueError, "out overlaps an input"
    yield WAVE, [memory[1:], *p[1:]], memory[:-1], ValueError, "out overlaps an input"
    yield WAVE, [tuple(memory[1:].T), *p[1:]], memory[1:], ValueError, "out overlaps an input"
    two = fc.fused(lambda a, b: (a + b, a - b))
    yield two, p[:2], np.zeros((2, N, 4)), ValueError, "out must be a tuple of 2"
    yield two, p[:2], (one,), ValueError, "out must be a tuple of 2"
    yield two, p[:2], (one, one[:, :2]), ValueError, r"out\[1\] has shape"
    yield two, p[:2], (p[0], one), ValueError, r"out\[0\] overlaps an input"
    yield two, p[:2], (one, one), ValueError, r"out\[1\] overlaps another output"
    named = fc.fused(lambda a: {"a": a})
    yield named, p[:1], {"b": one}, ValueError, "out must be a dict with the keys 'a'"
    bundle = fc.bundle(waves.phif001, WAVE)
    yield bundle, p, np.zeros((3, N, 4)), ValueError, "out must be an array whose first axis has length 2"
    yield bundle, p, (one,), ValueError, "out must be an array whose first axis has length 2, not tuple"
    yield bundle, p, np.zeros((2, N, 4)).tolist(), TypeError, r"out\[0\] must be a NumPy array"
    yield bundle, p, memoryview(np.zeros((2, N))), ValueError, "out must be an array whose .* 2, not memoryview"


@pytest.mark.parametrize("number", range(len(list(bad_outs()))))
def test_bad_out(number):
    function, arrays, out, error, words = list(bad_outs())[number]
    with pytest.raises(error, match=words):
        function(*arrays, out=out)


# Values that are no numbers


def spoiled(momenta, particle, event, component, value):
    momenta = [p.copy() for p in momenta]
    momenta[particle][event, component] = value
    return momenta


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("component", range(4))
@pytest.mark.parametrize("particle", range(4))
def test_what_is_not_finite_stays_in_its_event(particle, component, value):
    bundle = fc.bundle(*waves.all)
    wanted = bundle(*MOMENTA)
    event = 77
    got = bundle(*spoiled(MOMENTA, particle, event, component, value))
    others = np.arange(N) != event
    assert np.array_equal(got[:, others], wanted[:, others])
    for wave, one in zip(waves.all, got[:, event], strict=True):
        loads = (BY_NAME["load_vector"].number, particle)
        depends = any((row[0], row[2]) == loads for row in wave.tape.code if len(row) > 2)
        assert np.isfinite(one).all() != depends, wave.__name__


@pytest.mark.parametrize("wave", waves.all, ids=lambda w: w.__name__)
def test_a_light_like_parent_stays_in_its_event(wave):
    """p^2 is exactly 0 for phi: the event is not finite, the others keep their bits, and nothing warns."""
    kp, km, pip, pim = (p.copy() for p in MOMENTA)
    kp[9], km[9] = [0, 0, 0.5, 0.5], [0, 0, 1, 1]
    got, wanted = wave(kp, km, pip, pim), wave(*MOMENTA)
    assert not np.isfinite(got[9]).any()
    others = np.arange(N) != 9
    assert np.array_equal(got[others], wanted[others])


def test_a_vanishing_momentum():
    still = [p.copy() for p in MOMENTA]
    for p in still:
        p[3] = 0
    got = fc.bundle(*waves.all)(*still)
    assert not np.isfinite(got[:, 3]).any()
    assert np.isfinite(np.delete(got, 3, axis=1)).all()


def test_in_place_only_where_each_event_is_read_once():
    """An input that broadcasts is read again after its memory has been written."""
    a = np.ones((4, 4, 4, 4))
    with pytest.raises(ValueError, match="out overlaps an input"):
        fc.fused(fc.dot)(a, np.ones((4, 4, 4, 4, 4)), out=a)


@pytest.mark.parametrize(
    ("shape", "strides", "overlaps"),
    [
        ((5, 4), (32, 8), False),
        ((5, 4), (8, 40), False),
        ((5, 4), (-32, 8), False),
        ((5, 4), (24, 8), True),
        ((5, 4), (8, 8), True),
        ((5, 4), (0, 8), True),
        ((1, 4), (0, 8), False),
        ((0, 4), (0, 8), False),
        ((5, 4), (32, 4), True),
        ((3, 2, 4), (8, 96, 24), False),
        ((3, 2, 4), (16, 96, 24), True),
    ],
)
def test_elements_that_share_memory(shape, strides, overlaps):
    array = np.lib.stride_tricks.as_strided(np.zeros(100)[50:], shape, strides)
    assert arrays._overlaps_itself(array) == overlaps
