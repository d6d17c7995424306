"""The code blocks of the documents run as pasted into a fresh file."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks():
    for document in DOCUMENTS:
        text = document.read_text()
        for block in re.finditer(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
            line = text.count("\n", 0, block.start()) + 2
            yield f"{document.name}:{line}", block[1]


BLOCKS = dict(blocks())


@pytest.mark.parametrize("code", BLOCKS.values(), ids=BLOCKS.keys())
def test_runs_as_pasted(code, tmp_path):
    script = tmp_path / "pasted.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, "-W", "error", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_readme_has_its_example():
    assert any(name.startswith("README.md:") for name in BLOCKS)
