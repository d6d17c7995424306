"""The drop-in for the posted script."""

import pytest
from rows import fastcov_rows

ROWS = [row for row in fastcov_rows() if row.problem == "posted"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(map(str, row.key)))
def test_posted(row, measure):
    measure(row)
