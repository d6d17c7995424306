"""Every table that has to have every operation has it."""

import importlib.util
from pathlib import Path

import pytest

from fastcov import cpu
from fastcov.opcodes import OPCODES

NAMES = [op.name for op in OPCODES]


@pytest.mark.parametrize("op", OPCODES, ids=NAMES)
def test_straight_line_form(op):
    """One operation on distinct operands: it gives its result, or stores what it is to store."""
    spec = importlib.util.spec_from_file_location("emit", Path(cpu.__file__).with_name("emit.py"))
    emit = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(emit)
    operands = [{"v": f"a{n}", "s": f"a{n}", "k": "k"}.get(kind, 0) for n, kind in enumerate(op.operands)]
    lines = list(emit._operation(op.name, "r", operands, [0]))
    text = "\n".join(lines)
    assert all(f"a{n}" in text for n, kind in enumerate(op.operands) if kind in "vs")
    assert ("give" in text) == (not op.result)
    assert not op.result or "const NAME(lanes) r" in text


@pytest.mark.parametrize("op", OPCODES, ids=NAMES)
def test_jax_form(op):
    jax = pytest.importorskip("fastcov.jax", exc_type=ImportError)
    moved = op.name.startswith(("load_", "store_"))
    assert moved != (op.name in jax._OPERATIONS)
