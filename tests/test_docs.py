"""The documents agree with the package: links, figure, presets, and the worked analysis with its script.

That their code blocks run is tested in test_examples.py.
"""

import importlib.util
import re
import runpy
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import fastcov as fc

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SCRIPT = ROOT / "examples" / "angular_distribution.py"
EVENTS = 100_000  # as in docs/analysis.md


@pytest.fixture(scope="module")
def found():
    spec = importlib.util.spec_from_file_location("angular_distribution", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script.distributions(EVENTS)


def code_blocks(document):
    return re.findall(r"^```python\n(.*?)^```", document.read_text(), flags=re.DOTALL | re.MULTILINE)


def deviation(difference, *errors):
    """Chi^2 of a difference of densities per bin."""
    return np.mean(difference**2 / sum(error**2 for error in errors))


@pytest.mark.parametrize("document", sorted(DOCS.glob("*.md")), ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)", document.read_text()):
        assert target.startswith("https://") or (document.parent / target).exists(), target


def test_the_first_wave_of_the_guide_has_six_lines():
    block = code_blocks(DOCS / "waves.md")[0]
    wave = re.search(r"^@fc\.fused\n(?:.+\n)+", block, flags=re.MULTILINE)[0]
    assert len(wave.splitlines()) == 6


def test_the_table_of_presets():
    rows = re.findall(r'^\| `"(\w+)"`.*?\| ([\d./ ]+) \|', (DOCS / "conventions.md").read_text(), flags=re.MULTILINE)
    written = {}
    for name, value in rows:
        numerator, _, denominator = value.partition("/")
        written[name] = Fraction(numerator.strip()) / Fraction(denominator.strip() or 1)
    assert written == fc.Q0


def test_the_analysis_is_that_of_the_script(found, tmp_path):
    pasted = tmp_path / "pasted.py"
    pasted.write_text(code_blocks(DOCS / "analysis.md")[0])
    values = runpy.run_path(str(pasted))
    assert len(values["cosine"]) == EVENTS
    density, error = found["pi+"]["sum"]
    np.testing.assert_allclose(values["density"], density, rtol=1e-10)
    np.testing.assert_allclose(values["error"], error, rtol=1e-10)
    np.testing.assert_allclose(values["phase_space"], found["pi+"]["phase space"].density, rtol=1e-10)


def test_phase_space_and_spin_0_are_flat_in_the_pion_angle(found):
    for name, expected in (("phase space", 0.5), ("f0(1370)", np.mean(found["pi+"]["f0(1370)"].density))):
        density, error = found["pi+"][name]
        assert deviation(density - expected, error) < 2
    density, error = found["pi+"]["f2(1270)"]
    assert deviation(density - np.mean(density), error) > 10


def test_different_spins_interfere_in_the_pion_angle_only(found):
    values = {}
    for particle, parts in found.items():
        interference = parts["sum"].density - parts["f0(1370)"].density - parts["f2(1270)"].density
        values[particle] = deviation(interference, *(parts[name].error for name in ("sum", "f0(1370)", "f2(1270)")))
    assert values["K+"] < 1
    assert values["pi+"] > 10


def test_the_script_draws_the_figure(tmp_path):
    pytest.importorskip("matplotlib")
    figure = tmp_path / "figure.png"
    command = [sys.executable, SCRIPT, "--output", figure, "--events", "10000"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_the_committed_figure_is_small():
    assert 10_000 < (DOCS / "angular_distribution.png").stat().st_size < 60_000
