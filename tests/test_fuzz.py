"""A few thousand of the mutated tapes of fuzz_tapes.py, which runs a million."""

import fuzz_tapes
import pytest

from fastcov.opcodes import BY_NAME


def test_the_first_seed_uses_every_opcode():
    assert {row[0] for row in fuzz_tapes.PARSED[0]["code"]} == {op.number for op in BY_NAME.values()}


def test_seeds_run():
    assert [fuzz_tapes.try_text(text) for text in fuzz_tapes.SEEDS] == ["ran"] * len(fuzz_tapes.SEEDS)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_tapes(seed):
    counts = fuzz_tapes.fuzz(1000 + seed, range(1000))
    assert counts.total() == 1000
    assert min(counts["ran"], counts["refused"]) > 100
