"""What the tests share: hypothesis profiles and outputs that show what was not written."""

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

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
    max_examples=int(os.environ.get("FASTCOV_EXAMPLES", 2000)),
    derandomize=False,
    print_blob=True,
)
settings.load_profile("nightly" if "FASTCOV_EXAMPLES" in os.environ else "daily")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes many seconds or much memory")


@pytest.fixture(autouse=True)
def poisoned_outputs(monkeypatch):
    """Let the results that the package allocates hold NaN first, so that what is never written shows."""
    empty = np.empty

    def poisoned(shape, dtype=np.float64, **keywords):
        array = empty(shape, dtype, **keywords)
        if array.dtype.kind == "f":
            array.fill(np.nan)
        return array

    monkeypatch.setattr("fastcov.dispatch.np.empty", poisoned)
