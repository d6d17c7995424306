"""Locks that no child process inherits held."""

import os
from threading import RLock
from weakref import WeakSet


class Guard:
    """`with guard.lock:` keeps other threads out.

    After a fork the child has a new lock: the thread that held the old one is not there to release it. So what is
    guarded has to be in order whenever another thread gets its turn.
    """

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = RLock()
        _guards.add(self)


_guards: WeakSet[Guard] = WeakSet()


def _renew() -> None:
    for guard in _guards:
        guard.lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
