"""What a capable user would write instead, with the libraries that are installed."""

import pytest
from peers import load
from rows import peer_rows

FOUND, MISSING = load()


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("row", peer_rows(FOUND), ids=lambda row: "-".join(map(str, row.key)))
def test_peers(row, measure):
    measure(row)


@pytest.mark.parametrize("name", MISSING)
def test_missing(name):
    pytest.skip(f"{name}: {MISSING[name]}")
