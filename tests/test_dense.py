"""All components of tensors built on arrays: values, layouts, limits, and what is planned only once."""

import itertools
import sys

import numpy as np
import pytest

import fastcov as fc
from fastcov import reference

module = sys.modules["fastcov.dense"]
rng = np.random.default_rng(4)
N = 5
METRIC = np.diag([-1.0, -1, -1, 1])


def time_like(*shape):
    p = rng.normal(size=(*shape, 4)) / 2
    p[..., 3] = np.sqrt(np.sum(p[..., :3] ** 2, axis=-1) + rng.uniform(0.5, 2, shape) ** 2)
    return p


P, R, K = (time_like(N) for _ in range(3))


def assert_close(got, wanted, tolerance=1e-13):
    assert got.shape == wanted.shape
    assert np.max(np.abs(got - wanted)) <= tolerance * np.max(np.abs(wanted))


TENSORS = {
    "scalar": (lambda p, r: fc.dot(p, r), lambda p, r: reference.dot(p, r)),
    "vector": (
        lambda p, r: fc.einsum("ab,b->a", fc.transverse(p), r),
        lambda p, r: reference.einsum("ab,b->a", reference.transverse(p), r),
    ),
    "matrix": (lambda p, r: fc.orbital(2, p, r), lambda p, r: reference.orbital(2, p, r)),
    "rank 3": (lambda p, r: fc.orbital(3, p, r), lambda p, r: reference.orbital(3, p, r)),
    "rank 4": (lambda p, r: fc.projector(2, p), lambda p, r: reference.projector(2, np.broadcast_arrays(p, r)[0])),
    "rank 6": (lambda p, r: fc.projector(3, p), lambda p, r: reference.projector(3, np.broadcast_arrays(p, r)[0])),
    "outer product": (
        lambda p, r: fc.einsum("ab,c,d->dacb", fc.orbital(2, p, r), r, p) * fc.dot(p, r),
        lambda p, r: reference.einsum("ab,c,d,->dacb", reference.orbital(2, p, r), r, p, reference.dot(p, r)),
    ),
    "mixed positions": (
        lambda p, r: fc.einsum("ab,c->cab", fc.lower(fc.orbital(2, p, r)), r),
        lambda p, r: reference.einsum("ab,c->cab", reference.lower(reference.orbital(2, p, r), 2), r),
    ),
    "epsilon": (
        lambda p, r: fc.einsum("abcd,d,e->aebc", fc.levi_civita(), p, r),
        lambda p, r: reference.einsum("abcd,d,e->aebc", -reference.levi_civita(), p, r),
    ),
    "without the metric": (
        lambda p, r: fc.einsum("ab,bcd->cad", fc.orbital(2, p, r), fc.orbital(3, r, p), metric=None),
        lambda p, r: np.einsum("...ab,...bcd->...cad", reference.orbital(2, p, r), reference.orbital(3, r, p)),
    ),
}


@pytest.mark.parametrize("name", TENSORS)
def test_values(name):
    tensor, wanted = TENSORS[name]
    assert_close(fc.dense(tensor(P, R)), wanted(P, R))


@pytest.mark.parametrize("name", [n for n in TENSORS if n not in ("rank 4", "rank 6")])
def test_shapes(name):
    tensor, _ = TENSORS[name]
    whole = fc.dense(tensor(P, R))
    tail = whole.shape[1:]
    p, r = time_like(2, 3), time_like(3)
    for a, b, shape in ((P[0], R[0], ()), (P[:0], R[:0], (0,)), (p, r, (2, 3)), (p[:, :1], r, (2, 3))):
        got = fc.dense(tensor(a, b))
        assert got.shape == (*shape, *tail)
        for index in np.ndindex(shape):
            one = fc.dense(tensor(np.broadcast_to(a, (*shape, 4))[index], np.broadcast_to(b, (*shape, 4))[index]))
            assert np.array_equal(got[index], one)


@pytest.mark.parametrize("name", TENSORS)
def test_kinds_of_arrays(name):
    tensor, _ = TENSORS[name]
    wanted = fc.dense(tensor(P, R))
    for convert in (lambda v: tuple(v.T), lambda v: v.tolist(), np.asfortranarray, lambda v: v.astype(">f8")):
        assert np.array_equal(fc.dense(tensor(convert(P), convert(R))), wanted)
    turned = fc.dense(tensor(P[:, [3, 0, 1, 2]], R[:, [3, 0, 1, 2]]), order="Exyz")
    places = [0, 1, 2, 3] if wanted.ndim == 1 else [3, 0, 1, 2]
    for axis in range(1, wanted.ndim):
        wanted = np.take(wanted, places, axis)
    assert np.array_equal(turned, wanted)


@pytest.mark.parametrize("name", TENSORS)
def test_float32_is_computed_in_float64(name):
    tensor, _ = TENSORS[name]
    p, r = P.astype(np.float32), R.astype(np.float32)
    wanted = fc.dense(tensor(p.astype(float), r.astype(float)))
    got = fc.dense(tensor(p, r))
    assert got.dtype == np.float32
    assert np.array_equal(got, wanted.astype(np.float32))
    assert fc.dense(tensor(p.astype(float), r)).dtype == np.float64
    single = fc.dense(tensor(p, r), compute="float32")
    assert single.dtype == np.float32
    assert_close(single, wanted, 1e-4)
    columns = fc.dense(tensor(tuple(p.T), tuple(r.T)))
    assert np.array_equal(columns, got)


def test_many_events_go_in_chunks():
    p = time_like(700)
    r = time_like(700)
    got = fc.dense(fc.einsum("ab,cd,e->abcde", fc.transverse(p), fc.transverse(r), p))
    assert got.nbytes > module.CHUNK_BYTES
    dense = [reference.transverse(p), reference.transverse(r), p]
    assert_close(got, reference.einsum("ab,cd,e->abcde", *dense))


def test_a_nan_stays_in_its_event():
    p = P.copy()
    p[2] = [0, 0, 1, 1]
    for tensor in (fc.orbital(3, p, R), fc.projector(2, p), fc.transverse(p)):
        got = fc.dense(tensor)
        assert not np.isfinite(got[2]).all()
        assert np.isfinite(np.delete(got, 2, axis=0)).all()


def test_constant_tensors():
    assert np.array_equal(fc.dense(fc.metric()), METRIC)
    assert np.array_equal(fc.dense(fc.metric() * 2 - fc.metric()), METRIC)
    assert fc.dense(fc.levi_civita()).shape == (4,) * 4
    for order in itertools.permutations(range(4)):
        assert abs(fc.dense(fc.levi_civita())[order]) == 1


def test_planned_once(monkeypatch):
    planned = []
    made = module._made
    monkeypatch.setattr(module, "_made", lambda *args: planned.append(args) or made(*args))

    def tensor(p, r, k, weight=0.71):
        return fc.einsum("abc,b->ac", fc.orbital(3, p, r), k) * weight

    first = fc.dense(tensor(P, R, K))
    count = len(planned)
    assert count == 1
    fc.dense(tensor(time_like(9), R[0], K[0]))
    fc.dense(tensor(P.astype("f4"), tuple(R.T), K))
    assert np.array_equal(fc.dense(tensor(P, R, K)), first)
    assert len(planned) == count
    same_twice = fc.dense(tensor(P, R, R))
    assert len(planned) == count + 1
    assert_close(same_twice, fc.dense(tensor(P, R.copy(), R.copy())))
    fc.dense(tensor(P, R, K, weight=0.72))
    assert len(planned) > count + 1


def test_plans_are_bounded():
    for n in range(module.PLANS_KEPT + 20):
        fc.dense(fc.dot(P, P) * (n + 17))
    assert len(module._plans) == module.PLANS_KEPT


# Limits and errors


def test_the_projector_of_all_events_is_refused_at_once():
    events = 800_000
    p = np.broadcast_to(P[0], (events, 4))
    with pytest.raises(MemoryError) as caught:
        fc.dense(fc.projector(4, p))
    for words in ("rank 8", "800,000 events", "419 GB", "max_bytes", "2.15 GB", "fastcov.einsum"):
        assert words in str(caught.value)
    with pytest.raises(MemoryError, match=r"1\.64 GB, above max_bytes = 1 GB"):
        fc.dense(fc.orbital(4, p, p), max_bytes=10**9)


def test_max_bytes_is_exact():
    size = N * 4**4 * 8
    assert fc.dense(fc.projector(2, P), max_bytes=size).nbytes == size
    with pytest.raises(MemoryError, match=r"10\.2 kB, above max_bytes = 10\.2 kB"):
        fc.dense(fc.projector(2, P), max_bytes=size - 1)
    with pytest.raises(MemoryError, match="160 bytes"):
        fc.dense(fc.lower(P), max_bytes=1)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: fc.dense(P), TypeError, "dense: tensor must be a tensor built on arrays, not ndarray"),
        (lambda: fc.dense(3), TypeError, "not int"),
        (lambda: fc.fused(lambda p: fc.dense(p))(P), TypeError, "a traced tensor has no components"),
        (lambda: fc.fused(lambda p: fc.dense(fc.dot(p, p)))(P), TypeError, "a traced tensor has no components"),
        (lambda: fc.dense(fc.dot(P, P), out=P), ValueError, "dense: unknown keyword 'out'; known are backend"),
        (lambda: fc.dense(fc.dot(P, P), components="x"), ValueError, "dense: unknown keyword 'components'"),
        (lambda: fc.dense(fc.dot(P, P), order="abcd"), ValueError, "order must be"),
        (lambda: fc.dense(fc.dot(P, P), threads=0), ValueError, "threads must be"),
        (lambda: fc.dense(fc.dot(P, P), compute="half"), ValueError, "compute must be"),
        (lambda: fc.dense(fc.orbital(3, P, R[:4])), ValueError, r"do not broadcast: array 0 \(5,\), array 1 \(4,\)"),
        (lambda: fc.dense(fc.orbital(3, P, R[:, :3])), ValueError, r"array 1: a 4-vector has shape \(\.\.\., 4\)"),
        (lambda: fc.dense(fc.orbital(2, P, np.ma.array(R))), TypeError, "array 1: masked arrays"),
        (lambda: fc.dense(fc.orbital(2, P, R * 1j)), TypeError, "array 1: dtype complex128"),
        (lambda: np.asarray(fc.orbital(2, P, R)), TypeError, r"holds no components; fastcov\.dense\(tensor\)"),
        (lambda: np.sqrt(fc.dot(P, R)), TypeError, "ufunc"),
        (lambda: fc.orbital(2, P, R) * fc.orbital(2, P, R), ValueError, "the product of two tensors is an einsum"),
        (lambda: 1 / fc.transverse(P), ValueError, "cannot divide by a tensor"),
        (lambda: fc.transverse(P) + fc.orbital(3, P, R), ValueError, "cannot add tensors of rank 2 and 3"),
        (lambda: fc.transverse(P) + 1, ValueError, "cannot add tensors of rank 2 and 0"),
        (lambda: fc.transverse(P) + P, TypeError, "does not support ufuncs"),
        (lambda: fc.transverse(P) ** 2, TypeError, "unsupported operand"),
        (lambda: fc.dot(P, P) ** 0.5, TypeError, "unsupported operand"),
        (lambda: fc.dense(fc.dot(P, P) * 1j), TypeError, "unsupported operand"),
        (lambda: fc.dense(fc.transverse(P) / 0), ZeroDivisionError, "Fraction"),
        (lambda: fc.dense(fc.transverse(P) * np.nan), ValueError, "nan cannot be a constant: it is not finite"),
    ],
)
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_max_bytes_counts_before_anything_is_computed(monkeypatch):
    def never(*_):
        raise AssertionError("computed")

    monkeypatch.setattr(module, "run", never)
    with pytest.raises(MemoryError):
        fc.dense(fc.projector(4, np.broadcast_to(P[0], (10**6, 4))))
