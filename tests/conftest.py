"""What the tests share: hypothesis profiles, results that show what was not written to them, and fixtures."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from nodes import VALUES, VECTORS

from fastcov.graph import Graph

settings.register_profile(
    "daily",
    max_examples=200,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "nightly",
    settings.get_profile("daily"),
    max_examples=int(os.environ.get("FASTCOV_EXAMPLES", "2000")),
    derandomize=False,
    print_blob=True,
)
settings.load_profile("nightly" if "FASTCOV_EXAMPLES" in os.environ else "daily")

_empty = np.empty


def _poisoned(shape, dtype=np.float64, **keywords):
    array = _empty(shape, dtype, **keywords)
    if array.dtype.kind == "f":
        array.fill(np.nan)
    return array


@pytest.fixture(autouse=True)
def poisoned_results(monkeypatch):
    """Let results that are allocated without a value hold NaN first."""
    monkeypatch.setattr("numpy.empty", _poisoned)
    monkeypatch.setattr("fastcov.cpu._executor.empty", _poisoned)


@pytest.fixture(scope="session")
def pwacg():
    """The momenta and waves of psi2s_kkpipi.npz: see data/README.md."""
    with np.load(Path(__file__).parent / "data" / "psi2s_kkpipi.npz") as archive:
        return dict(archive)


@pytest.fixture(scope="session")
def event_momenta(pwacg):
    """kp, km, pip, pim of 64 events."""
    return [pwacg[name] for name in ("kp", "km", "pip", "pim")]


@pytest.fixture
def graph():
    return Graph()


@pytest.fixture
def inputs(graph):
    """The nodes of nodes.VALUES."""
    return [graph.input(n, name, name in VECTORS) for n, name in enumerate(VALUES)]
