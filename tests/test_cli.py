"""The command line: what it prints, what it refuses, and that its checks can fail."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

import fastcov as fc
from fastcov import check, demo, momenta, reference, waves
from fastcov.__main__ import main
from fastcov.momenta import NAMES
from fastcov.phasespace import psi2s_kkpipi

DATA = Path(__file__).parent / "data" / "psi2s_kkpipi.npz"


@pytest.fixture(scope="module")
def events():
    return dict(zip(NAMES, psi2s_kkpipi(300, seed=5), strict=True))


@pytest.fixture
def save(tmp_path):
    """Write arrays to a file and return its path."""

    def write(arrays):
        path = tmp_path / "momenta.npz"
        np.savez(path, **arrays)
        return str(path)

    return write


def run(*arguments):
    """Exit status, also where argparse ends the program."""
    try:
        return main(arguments)
    except SystemExit as exit:
        return exit.code


# demo


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_demo(dtype, capsys):
    assert run("demo", "--events", "3000", "--dtype", dtype, "--threads", "1", "--backend", "cpu", "--seed", "4") == 0
    table = capsys.readouterr().out
    for row in ("back end", "first call", "time", "per event", "memory traffic", "extra peak memory", "the dense way"):
        assert table.count(f"\n  {row} ") == 2
    assert table.count("3,000 events, " + dtype) == 2
    assert table.count("1,000 events against the dense reference") == 2
    assert table.count(": OK\n") == 2


@pytest.mark.parametrize(("dtype", "error"), [("float64", 3e-11), ("float32", 2e-7)])
def test_demo_fails_beyond_its_bound(dtype, error, monkeypatch, capsys):
    right = reference.waves["phif243"]
    monkeypatch.setitem(reference.waves, "phif243", lambda *p, **options: (1 + error) * right(*p, **options))
    assert run("demo", "--events", "100", "--dtype", dtype) == 1
    out = capsys.readouterr().out
    assert out.count("FAIL") == out.count("OK") == 1


def test_demo_of_a_file(capsys):
    assert run("demo", "--input", str(DATA)) == 0
    out = capsys.readouterr().out
    assert "psi2s_kkpipi.npz, 64 events" in out
    assert "64 events against the dense reference" in out


def test_demo_leaves_out_what_the_reference_cannot_compute(events, save, capsys):
    kp = events["kp"].copy()
    kp[3, 1] = np.nan
    assert run("demo", "--input", save(events | {"kp": kp})) == 0
    out = capsys.readouterr().out
    assert "299 events against" in out
    assert "1 sampled events without a finite result" in out
    assert run("demo", "--input", save(events | {"kp": np.full_like(kp, np.nan)})) == 1


def test_demo_counts_a_missing_result_as_wrong():
    job = demo._from_file(str(DATA))
    (given,) = job.batches
    result = job.dense(*given)
    result[5, 2] = np.nan
    deviations = demo._deviations(job, result, given)
    assert deviations[5] == np.inf
    assert np.count_nonzero(deviations) == 1


def test_demo_in_batches(monkeypatch, capsys):
    monkeypatch.setattr(demo, "BATCH", 1000)
    assert [len(batch[0]) for batch in demo._generated(2500, 7).batches] == [1000, 1000, 500]
    assert run("demo", "--events", "2500") == 0
    assert "2,500 events, float64" in capsys.readouterr().out


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs a peak that can be reset")
def test_extra_memory_is_measured():
    def wasteful(*given):
        return np.ones(1 << 23)[:4000].reshape(1000, 4)

    job = demo._generated(1000, 0)
    memory = demo._measure(job._replace(function=wasteful), {}, np.dtype(float), np.random.default_rng()).memory
    assert 60 << 20 < memory < 80 << 20
    job = demo._generated(400_000, 0)
    assert demo._measure(job, {}, np.dtype(float), np.random.default_rng()).memory < 8 << 20


def test_demo_in_the_interpreter(tmp_path):
    pytest.importorskip("triton")
    command = [sys.executable, "-m", "fastcov", "demo", "--events", "300", "--backend", "triton-interpret"]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("  triton-interpret, asked for: ") == 2


def test_demo_on_a_cuda_device(capsys):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    assert run("demo", "--events", "100000", "--backend", "triton") == 0
    assert capsys.readouterr().out.count("  triton, asked for: ") == 2


# What cannot be used


def without(events, name):
    return {n: p for n, p in events.items() if n != name}


@pytest.mark.parametrize("command", [["demo", "--input"], ["check"]])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: without(e, "pip"), "no array 'pip'; it has kp, km, pim"),
        (lambda e: e | {"km": e["km"][:, :3]}, r"km has shape (300, 3), not (events, 4)"),
        (lambda e: e | {"km": e["km"][0]}, r"km has shape (4,), not (events, 4)"),
        (lambda e: e | {"pim": e["pim"][:7]}, "pim has 7 events, kp has 300"),
        (lambda e: e | {"kp": e["kp"].astype(complex)}, "kp has dtype complex128"),
        (lambda e: e | {"kp": e["kp"].astype(object)}, "kp cannot be read"),
        (lambda e: {n: p[:0] for n, p in e.items()}, "kp has no events"),
    ],
)
def test_bad_arrays(command, change, message, events, save, capsys):
    path = save(change(events))
    assert run(*command, path) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"fastcov: {path}: ")
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("command", [["demo", "--input"], ["check"]])
def test_bad_files(command, tmp_path, capsys):
    missing, text, single, cut = (tmp_path / name for name in ("none.npz", "text.npz", "single.npy", "cut.npz"))
    text.write_text("kp km pip pim")
    np.save(single, np.ones((5, 4)))
    cut.write_bytes(DATA.read_bytes()[:5000])
    for path, message in (
        (missing, "no such file"),
        (text, "not a readable .npz file"),
        (single, "it holds a single array"),
        (cut, "not a readable .npz file"),
        (tmp_path, "not a readable .npz file"),
    ):
        assert run(*command, str(path)) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"fastcov: {path}: ")
        assert message in error
        assert error.count("\n") == 1


def test_integers_and_float32_are_read(save, events):
    arrays = {n: np.round(1000 * p).astype(np.int64) for n, p in events.items()}
    for p, q in zip(momenta.read_momenta(save(arrays)), arrays.values(), strict=True):
        assert p.dtype == np.float64
        assert np.array_equal(p, q)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--events", "0"], "'0' is not an integer of at least 1"),
        (["demo", "--threads", "two"], "'two' is not an integer of at least 1"),
        (["demo", "--seed", "-1"], "'-1' is not an integer of at least 0"),
        (["demo", "--backend", "abacus"], "'abacus'"),
        (["demo", "--dtype", "int8"], "'int8'"),
        (["check", "--order", "Epxy"], "'Epxy'"),
        (["unknown"], "'unknown'"),
        ([], "COMMAND"),
    ],
)
def test_bad_options(arguments, message, capsys):
    assert run(*arguments) == 2
    assert message in capsys.readouterr().err


# check


def failures(out):
    return [line[6:] for line in out.splitlines() if line.startswith("FAIL")]


def test_check_of_generated_events(capsys):
    assert run("check") == 0
    out = capsys.readouterr().out
    assert not failures(out)
    assert "100,000 events" in out


def test_check_of_a_file(capsys):
    assert run("check", str(DATA)) == 0
    assert not failures(capsys.readouterr().out)


def test_check_finds_the_energy_first(events, save, capsys):
    path = save({name: np.roll(p, 1, axis=1) for name, p in events.items()})
    assert run("check", path) == 1
    (line,) = failures(capsys.readouterr().out)
    assert "the energy looks like the first component" in line
    assert "--order Exyz" in line
    assert run("check", path, "--order", "Exyz") == 0


def test_check_takes_mev(events, save, capsys):
    assert run("check", save({name: 1000 * p for name, p in events.items()})) == 0
    assert "the unit is MeV" in capsys.readouterr().out


def test_check_counts_what_is_not_finite(events, save, capsys):
    kp = events["kp"].copy()
    kp[3, 1], kp[3, 2], kp[5, 0] = np.nan, np.nan, np.inf
    assert run("check", save(events | {"kp": kp})) == 1
    assert failures(capsys.readouterr().out) == ["2 events with a NaN or an infinity, left out from here on"]
    assert run("check", save({name: np.full((3, 4), np.nan) for name in NAMES})) == 1


def test_check_finds_wrong_masses(events, save, capsys):
    assert run("check", save(events | {"kp": events["pip"], "pip": events["kp"]})) == 1
    first, second = failures(capsys.readouterr().out)[:2]
    assert first.startswith("kp: masses from 0.139570 to 0.139570 GeV; a K has 0.493677")
    assert second.startswith("pip: masses from 0.493677")


def test_check_counts_events_out_of_the_domain(events, save, capsys):
    pip, pim = events["pip"].copy(), events["pim"].copy()
    pip[:2, 3] = pim[:2, 3] = 0.0  # f is space-like
    pip[2], pim[2] = [0.0, 0, 0, 0.1390], [0.0, 0, 0, 0.1390]  # below two pion masses, within the tolerance for one
    assert run("check", save(events | {"pip": pip, "pim": pim})) == 1
    found = failures(capsys.readouterr().out)
    assert "events with p^2 <= 0: 0 of psi, 0 of phi, 2 of f, 0 of b1+, 0 of b1-" in found
    assert any(line.startswith("events below threshold:") and line.endswith("3 of f") for line in found)


def test_check_compares_with_the_reference(monkeypatch, capsys):
    right = reference.waves["u_SD_1"]
    monkeypatch.setitem(reference.waves, "u_SD_1", lambda *p, **options: (1 + 1e-10) * right(*p, **options))
    assert run("check", str(DATA)) == 1
    (line,) = failures(capsys.readouterr().out)
    assert line.startswith("closed form against dense reference")


def test_check_finds_a_wave_that_is_not_covariant(monkeypatch, capsys):
    @fc.fused
    def plain_sum(kp, km, pip, pim, *, q0=None):
        return fc.einsum("mn,n->m", fc.transverse(kp + km), pip, metric=None)

    def dense(kp, km, pip, pim, *, q0):
        return reference.einsum("mn,n->m", reference.transverse(kp + km), pip, metric=None)

    monkeypatch.setitem(reference.waves, "plain_sum", dense)
    monkeypatch.setattr(waves, "all", (plain_sum,))
    assert run("check", str(DATA)) == 1
    (line,) = failures(capsys.readouterr().out)
    assert line.startswith("boost covariance")


@pytest.mark.parametrize("broken", ["transversality", "tracelessness"])
def test_check_finds_a_tensor_that_is_not_orbital(broken, monkeypatch, capsys):
    right = check.dense

    def wrong(tensor):
        values = right(tensor).copy()
        if broken == "tracelessness":
            values += 1e-9 * values.max() * reference.metric().reshape((1,) * (values.ndim - 3) + (4, 4))
        else:
            values[:, ..., 3] *= 1 + 1e-9
        return values

    monkeypatch.setattr(check, "dense", wrong)
    assert run("check", str(DATA)) == 1
    assert any(line.startswith(broken) for line in failures(capsys.readouterr().out))


# The program


def test_backends(capsys):
    assert run("backends") == 0
    assert capsys.readouterr().out == "".join(f"{name}: {report}\n" for name, report in fc.backends().items())


def test_console_script_and_module(tmp_path):
    script = Path(sysconfig.get_path("scripts")) / "fastcov"
    for command in ([script], [sys.executable, "-m", "fastcov"]):
        done = subprocess.run([*command, "backends"], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout.startswith("cpu: ")
        done = subprocess.run([*command, "demo", "--input", "none.npz"], cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (2, "fastcov: none.npz: no such file\n")


def test_importing_the_program_is_light(tmp_path):
    heavy = ["torch", "triton", "jax", "tqdm", "fastcov.demo", "fastcov.check", "fastcov.reference"]
    code = f"import fastcov.__main__, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
