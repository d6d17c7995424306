"""phif243 without barrier factors, from six vectors and from four momenta."""

import pytest
from rows import fastcov_rows

ROWS = [row for row in fastcov_rows() if row.problem in ("six vectors", "four momenta")]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(map(str, row.key)))
def test_phif243(row, measure):
    measure(row)
