"""What a capable user would write instead of calling fastcov, one module for each way.

`load()` gives them all. A peer's `prepare` takes the input vectors, arrays (events, 4) in the order x, y, z, E or
tuples of four columns, and returns a function without arguments that computes phif243 of all events and returns when
the result is there: again an array or a tuple.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

MODULES = ("dense_numpy", "posted_jax", "closed_jax", "closed_torch", "closed_numba", "qftppy_torch")


class Peer(NamedTuple):
    name: str
    form: str  # the problem, see problems.py: "six vectors", "four momenta" or "posted"
    dtypes: tuple[str, ...]
    prepare: Callable[..., Callable[[], Any]]
    events: int | None = None  # at most so many, for a slow one
    layout: str = "packed"  # or "columns"
    output: str = "new"  # allocated by each call, or "given": the same array every time


def load() -> tuple[list[Peer], dict[str, str]]:
    """The peers whose libraries are installed, and for each other module the reason why it is left out."""
    found: list[Peer] = []
    missing: dict[str, str] = {}
    for name in MODULES:
        try:
            found += import_module(f"{__name__}.{name}").PEERS
        except ImportError as error:
            missing[name] = str(error)
    return found, missing
