"""pytest-benchmark on the rows of rows.py: run `pytest` in this folder."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from rows import calls_per_sample
from triad import Triad

ROUNDS = 7


@pytest.fixture(scope="session")
def triad():
    return Triad()


@pytest.fixture
def measure(benchmark, triad):
    """Check a row, time it, and keep ns per event, GB/s and the share of the triad measured before and after."""

    def run(row):
        call = row.prepare()
        calls = calls_per_sample(call)
        before = triad.bandwidth(row.threads)
        benchmark.pedantic(call, rounds=ROUNDS, iterations=calls)
        bandwidth = (before + triad.bandwidth(row.threads)) / 2
        if benchmark.stats is None:  # --benchmark-disable
            return
        seconds = benchmark.stats.stats.median
        speed = row.bytes_per_event * row.events / seconds
        benchmark.group = f"{row.problem}, {row.dtype}"
        benchmark.extra_info.update(
            ns_per_event=seconds / row.events * 1e9,
            gigabytes_per_second=speed / 1e9,
            share_of_triad=speed / bandwidth,
        )

    return run
