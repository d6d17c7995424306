"""Every table that has to have every operation has it."""

import pytest

from fastcov.opcodes import OPCODES

NAMES = [op.name for op in OPCODES]


@pytest.mark.parametrize("op", OPCODES, ids=NAMES)
def test_jax_form(op):
    jax = pytest.importorskip("fastcov.jax", exc_type=ImportError)
    moved = op.name.startswith(("load_", "store_"))
    assert moved != (op.name in jax._OPERATIONS)
