"""The waves with their barrier factors, one by one and as bundles, and gradients."""

import pytest
from problems import BUNDLES, VJPS, WAVES
from rows import fastcov_rows

ROWS = [row for row in fastcov_rows() if row.problem in (*WAVES, *BUNDLES, *VJPS)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(map(str, row.key)))
def test_waves(row, measure):
    measure(row)
