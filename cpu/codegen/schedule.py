"""The order of straight-line statements: so that the processor always has several to work on, and registers suffice.

A tape's own order is depth first, with few registers and each operation waiting for the one before. Here the longest
chain of what is still to come goes first (list scheduling), as long as no more values are live than registers hold;
from there on a statement that frees registers, and then the tape's own order.
"""

from collections.abc import Sequence
from typing import NamedTuple

ISSUED = 2  # statements a cycle


class Statement(NamedTuple):
    """One statement: its text, the values it makes and reads, and the cycles until they are there."""

    text: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    latency: int


def scheduled(statements: Sequence[Statement], registers: int) -> list[Statement]:
    """The statements in a new order, in which still every value is made before it is read."""
    maker = {value: n for n, one in enumerate(statements) for value in one.results}
    needs = [{maker[value] for value in one.operands} for one in statements]
    readers: list[list[int]] = [[] for _ in statements]
    for n, makers in enumerate(needs):
        for m in makers:
            readers[m].append(n)
    ahead = [one.latency for one in statements]  # the cycles from a statement to the end of the longest chain
    for n in reversed(range(len(statements))):
        ahead[n] += max((ahead[reader] for reader in readers[n]), default=0)
    unread = dict.fromkeys(maker, 0)
    for one in statements:
        for value in set(one.operands):
            unread[value] += 1

    def growth(n: int) -> int:
        """How many more values are live after a statement."""
        one = statements[n]
        return sum(unread[value] > 0 for value in one.results) - sum(unread[value] == 1 for value in set(one.operands))

    order: list[int] = []
    start = {n: 0 for n, makers in enumerate(needs) if not makers}  # the first cycle of all that could come next
    end: dict[int, int] = {}
    slots, live = 0, 0
    while start:
        cycle = slots // ISSUED
        if live >= registers:
            n = min(start, key=lambda n: (max(growth(n), 0), n))
        elif now := [n for n in start if start[n] <= cycle]:
            n = max(now, key=lambda n: (live + growth(n) <= registers, ahead[n], -n))
        else:
            slots = ISSUED * min(start.values())
            continue
        slots = max(slots, ISSUED * start.pop(n)) + 1
        end[n] = (slots - 1) // ISSUED + statements[n].latency
        live += growth(n)
        order.append(n)
        for value in set(statements[n].operands):
            unread[value] -= 1
        for reader in readers[n]:
            needs[reader].discard(n)
            if not needs[reader]:
                start[reader] = max(end[maker[value]] for value in statements[reader].operands)
    return [statements[n] for n in order]
