"""Fused functions over mapped files."""

import subprocess
import sys

import numpy as np
import pytest

import fastcov as fc
from fastcov import phasespace, waves


def test_the_bits_of_one_call(tmp_path):
    momenta = phasespace.psi2s_kkpipi(1003)
    files = []
    for n, p in enumerate(momenta):
        mapped = np.memmap(tmp_path / f"p{n}", p.dtype, "w+", shape=p.shape)
        mapped[:] = p
        files.append(mapped)
    out = np.memmap(tmp_path / "out", "f8", "w+", shape=(1003, 4))
    assert fc.stream(waves.phif243, *files, out=out, piece=100) is out
    np.testing.assert_array_equal(out, waves.phif243(*momenta))
    out.flush()
    np.testing.assert_array_equal(np.fromfile(tmp_path / "out").reshape(-1, 4), waves.phif243(*momenta))


def test_shared_arguments_columns_and_keywords():
    kp, km, pip, pim = phasespace.psi2s_kkpipi(250)
    columns = tuple(np.ascontiguousarray(km[:, m]) for m in range(4))
    out = np.empty((250, 2))
    fc.stream(waves.phif201, kp, columns, pip[0], pim, out=out, piece=64, components="xy", progress=True)
    np.testing.assert_array_equal(out, waves.phif201(kp, columns, pip[0], pim, components="xy"))


def test_bundles_columns_and_scalars():
    momenta = phasespace.psi2s_kkpipi(250)
    seven = fc.bundle(*waves.psi_phi_f)
    out = np.empty((7, 250, 4))
    fc.stream(seven, *momenta, out=out, piece=64)
    np.testing.assert_array_equal(out, seven(*momenta))
    columns = [tuple(np.ascontiguousarray(p[:, m]) for m in range(4)) for p in momenta]
    out = np.empty((250, 4))
    fc.stream(waves.phif201, *columns, out=out, piece=64)
    np.testing.assert_array_equal(out, waves.phif201(*momenta))

    @fc.fused
    def scaled(p, s: fc.Scalar):
        return s * p

    weights = np.linspace(0, 1, 250)
    fc.stream(scaled, momenta[0][3], weights, out=out, piece=2)
    np.testing.assert_array_equal(out, scaled(momenta[0][3], weights))


def test_shared_vector_of_as_many_components_as_events():
    momenta = phasespace.psi2s_kkpipi(4)
    out = np.empty((4, 4))
    fc.stream(waves.phif201, momenta[0][0], *momenta[1:], out=out, piece=2)
    np.testing.assert_array_equal(out, waves.phif201(momenta[0][0], *momenta[1:]))


def test_private_copies_keep_what_was_written(tmp_path):
    momenta = phasespace.psi2s_kkpipi(1000)
    momenta[0].tofile(tmp_path / "kp")
    private = np.memmap(tmp_path / "kp", "f8", "c", shape=(1000, 4))
    private[:] *= 2
    out = np.empty((1000, 4))
    fc.stream(waves.phif201, private, *momenta[1:], out=out, piece=128)
    np.testing.assert_array_equal(private, 2 * momenta[0])


def test_bad_calls():
    momenta = phasespace.psi2s_kkpipi(10)
    with pytest.raises(ValueError, match=r"out has shape \(9, 4\), the inputs have 10 events"):
        fc.stream(waves.phif201, *momenta, out=np.empty((9, 4)))
    with pytest.raises(TypeError, match="one result per event"):
        fc.stream(fc.fused(lambda p: (p, p)), momenta[0], out=np.empty((10, 4)))
    with pytest.raises(ValueError, match="piece must be a positive number"):
        fc.stream(waves.phif201, *momenta, out=np.empty((10, 4)), piece=0)


FLAT = """
import sys
import numpy as np
import fastcov as fc
from fastcov import waves
folder, events = sys.argv[1], 2_000_000
p = [np.memmap(f"{folder}/{n}", "f8", "w+", shape=(events, 4)) for n in range(4)]
out = np.memmap(f"{folder}/out", "f8", "w+", shape=(events, 4))
fc.stream(waves.phif201, *[np.ones((10, 4))] * 4, out=np.empty((10, 4)))
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = peak()
fc.stream(waves.phif201, *p, out=out, piece=50_000)
print(peak() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_stays_flat(tmp_path):
    """2,000,000 events map 320 MB; a piece of 50,000 is 8 MB."""
    run = subprocess.run([sys.executable, "-c", FLAT, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 32 * 1024
