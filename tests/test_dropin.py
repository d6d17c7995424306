"""The posted functions against values computed from the post, and against the formalism where they should agree."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import fastcov as fc
from fastcov import dropin, reference

POSTED = np.load(Path(__file__).parent / "data" / "posted.npz")
A, R = POSTED["a"], POSTED["r"]
METRIC = np.diag([-1.0, -1.0, -1.0, 1.0])


def assert_close(got, wanted, tolerance):
    assert got.shape == wanted.shape
    assert np.max(np.abs(got - wanted)) <= tolerance * np.max(np.abs(wanted))


@pytest.mark.parametrize(
    ("name", "arguments", "tolerance"),
    [
        ("Gt_con", (A,), 1e-12),
        ("Gt_cov", (A,), 1e-12),
        ("T1_cov", (A, R), 1e-12),
        ("T2_cov", (A, R), 1e-12),
        ("phif243", (A, R), 1e-11),
    ],
)
def test_posted_values(name, arguments, tolerance):
    assert_close(getattr(dropin, name)(*arguments), POSTED[name], tolerance)


def test_posted_tensors():
    assert_close(fc.dense(dropin.P4(A[:1])), POSTED["P4"], 1e-12)
    assert_close(fc.dense(dropin.T4_cov(A, R)), POSTED["T4_cov"], 1e-11)


def test_metric_and_dot():
    assert np.array_equal(dropin.metric(), METRIC)
    assert_close(dropin.dot(A, R), np.einsum("ni,nj,ij->n", A, R, METRIC), 1e-15)
    assert np.array_equal(dropin.dot(A), dropin.dot(A, A))


def test_r_is_a_by_default():
    """As posted; a has no component transverse to itself, so the exact results are zero."""
    events = len(A)
    for r in ((), (A,)):
        assert np.array_equal(dropin.T1_cov(A, *r), np.zeros((events, 4)))
        assert np.array_equal(dropin.T2_cov(A, *r), np.zeros((events, 4, 4)))
        assert np.array_equal(fc.dense(dropin.T4_cov(A, *r)), np.zeros((events, 4, 4, 4, 4)))
        for projector in ("posted", "spin4"):
            assert np.array_equal(dropin.phif243(A, *r, projector=projector), np.zeros((events, 4)))
            assert np.array_equal(fc.dense(dropin.T4_cov(A, *r, projector=projector)), np.zeros((events, 4, 4, 4, 4)))


def test_spin4_is_the_projector():
    projector, orbital = fc.lower(fc.projector(4, A[:3])), fc.lower(fc.orbital(4, A, R))
    assert np.array_equal(fc.dense(dropin.P4(A[:3], projector="spin4")), fc.dense(projector))
    assert np.array_equal(fc.dense(dropin.T4_cov(A, R, projector="spin4")), fc.dense(orbital))
    assert_close(fc.dense(projector), reference.lower(reference.projector(4, A[:3]), 8), 1e-12)
    dense = reference.lower(reference.orbital(4, A, R), 4)
    wanted = np.einsum("nijkl,nj,nkl->ni", dense, POSTED["T1_cov"], POSTED["T2_cov"])
    assert_close(dropin.phif243(A, R, projector="spin4"), wanted, 1e-11)


def test_posted_p4_is_no_projector():
    """What the documentation says about it; the spin-4 projector passes the same three tests."""

    def trace(P):
        return reference.einsum("ijklijkl->", P)

    def defects(P):
        square = reference.einsum("ijklabcd,abcdmnop->ijklmnop", P, P)
        return np.max(np.abs(P - P.swapaxes(0, 1))), np.max(np.abs(square - P))

    posted, spin4 = (fc.dense(dropin.P4(A[0], projector=p)) for p in ("posted", "spin4"))
    assert abs(trace(spin4) - 9) < 1e-10
    assert abs(trace(posted) - 9) > 1
    assert max(defects(spin4)) < 1e-10 * np.max(np.abs(spin4))
    assert min(defects(posted)) > 0.1


def test_weights_of_the_products():
    """The 105 permutations make 11 different products of four metrics, with the same total weight."""
    path = Path(dropin.__file__).with_name("posted_permutations.json")
    sums = json.loads(path.read_text())["sums"]
    total = sum(Fraction(s["weight"]) * len(s["output_subscripts"]) for s in sums)
    pairings = dropin._posted_pairings()
    assert len(pairings) <= 11
    assert sum(weight for _, weight in pairings) == total
    assert all(sorted(slot for pair in pairs for slot in pair) == list(range(8)) for pairs, _ in pairings)


def test_no_large_tape():
    assert len(dropin._phif243.tape.code) < 100


def test_p4_of_all_events_is_refused():
    a = np.broadcast_to(A[0], (800_000, 4))
    with pytest.raises(MemoryError, match="419 GB"):
        fc.dense(dropin.P4(a))
    with pytest.raises(MemoryError, match=r"1\.64 GB"):
        fc.dense(dropin.T4_cov(a, a), max_bytes=1 << 30)


def test_contraction_of_the_tensors():
    """The script's last line, on tensors that hold no components."""
    T1 = fc.einsum("mn,n->m", fc.lower(fc.transverse(A)), R)
    got = fc.einsum("ijkl,j,k,l->i", dropin.T4_cov(A, R), T1, T1, T1, metric=None)
    wanted = np.einsum("nijkl,nj,nk,nl->ni", POSTED["T4_cov"], *[POSTED["T1_cov"]] * 3)
    assert_close(fc.dense(got), wanted, 1e-11)


@pytest.mark.parametrize("name", ["T1_cov", "T2_cov", "phif243"])
def test_shapes(name):
    function = getattr(dropin, name)
    whole = function(A, R)
    assert np.array_equal(
        function(A.reshape(2, 3, 4, 4), R.reshape(2, 3, 4, 4)), whole.reshape(2, 3, 4, *whole.shape[1:])
    )
    assert np.array_equal(function(A[3], R[3]), whole[3])
    assert np.array_equal(function(A[3], R[2:5])[1], whole[3])
    assert function(A[:0], R[:0]).shape == (0, *whole.shape[1:])


def test_keywords_of_a_call():
    whole = dropin.phif243(A, R)
    assert np.array_equal(dropin.phif243(A, R, components="xy", threads=1), whole[:, :2])
    out = np.full_like(whole, np.nan)
    assert dropin.phif243(A, R, out=out) is out
    assert np.array_equal(out, whole)
    assert dropin.phif243(A.astype(np.float32), R.astype(np.float32)).dtype == np.float32


def test_in_a_trace():
    def amplitude(a, r):
        return fc.einsum("ijkl,j,kl->i", dropin.T4_cov(a, r), dropin.T1_cov(a, r), dropin.T2_cov(a, r), metric=None)

    assert np.array_equal(fc.fused(amplitude)(A, R), dropin.phif243(A, R))


@pytest.mark.parametrize("call", [lambda p: dropin.P4(A, projector=p), lambda p: dropin.T4_cov(A, R, projector=p)])
def test_unknown_projector(call):
    with pytest.raises(ValueError, match="'posted' or 'spin4', not 'spin2'"):
        call("spin2")
    with pytest.raises(ValueError, match="'posted' or 'spin4', not 'spin2'"):
        dropin.phif243(A, R, projector="spin2")
