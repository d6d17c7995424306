"""How the flat inputs and outputs of a tape are arranged for the caller: alone, in tuples and dicts, or stacked."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

NO_ROW = (0.0,) * 4  # the columns of a 4-vector


class Leaf(NamedTuple):
    """One array."""

    def flatten(self, name: str, value: Any) -> list[Any]:
        return [value]

    def build(self, parts: Iterator[Any], stack: Callable[[list[Any], int], Any]) -> Any:
        return next(parts)


class Rows(NamedTuple):
    """A matrix that goes into a tape as four vectors; `axes` are the places of its rows x, y, z, E.

    The place of a row that is not given is -1; `NO_ROW` stands for it.
    """

    axes: tuple[int, int, int, int]

    def flatten(self, name: str, value: Any) -> list[Any]:
        array = as_array(value)
        size = sum(axis >= 0 for axis in self.axes)
        if tuple(array.shape[-2:]) != (size, size):
            raise ValueError(f"{name}: a tensor of rank 2 has shape (..., {size}, {size}), not {tuple(array.shape)}")
        return [array[..., axis, :] if axis >= 0 else NO_ROW for axis in self.axes]

    def build(self, parts: Iterator[Any], stack: Callable[[list[Any], int], Any]) -> Any:
        rows = [next(parts) for _ in range(4)]
        return stack([rows[self.axes.index(n)] for n in range(4)], -2)


class Tuple(NamedTuple):
    children: tuple["Structure", ...]

    def flatten(self, name: str, value: Any) -> list[Any]:
        if not isinstance(value, (tuple, list)) or len(value) != len(self.children):
            raise ValueError(f"{name} must be a tuple of {len(self.children)}")
        return [
            part
            for n, (child, one) in enumerate(zip(self.children, value, strict=True))
            for part in child.flatten(f"{name}[{n}]", one)
        ]

    def build(self, parts: Iterator[Any], stack: Callable[[list[Any], int], Any]) -> Any:
        return tuple(child.build(parts, stack) for child in self.children)


class Dict(NamedTuple):
    keys: tuple[Any, ...]
    children: tuple["Structure", ...]

    def flatten(self, name: str, value: Any) -> list[Any]:
        if not isinstance(value, dict) or set(value) != set(self.keys):
            raise ValueError(f"{name} must be a dict with the keys {', '.join(map(repr, self.keys))}")
        return [
            part
            for key, child in zip(self.keys, self.children, strict=True)
            for part in child.flatten(f"{name}[{key!r}]", value[key])
        ]

    def build(self, parts: Iterator[Any], stack: Callable[[list[Any], int], Any]) -> Any:
        return {key: child.build(parts, stack) for key, child in zip(self.keys, self.children, strict=True)}


class Stack(NamedTuple):
    """Parts of equal shape in one array, along its first axis; a tuple of as many is taken as well."""

    size: int
    child: "Structure" = Leaf()

    def flatten(self, name: str, value: Any) -> list[Any]:
        if isinstance(value, (tuple, list)) and len(value) == self.size:
            parts = value
        elif hasattr(value, "dtype") and tuple(value.shape[:1]) == (self.size,):
            parts = [value[n, ...] for n in range(self.size)]
        else:
            given = f"of shape {tuple(value.shape)}" if hasattr(value, "dtype") else type(value).__name__
            raise ValueError(f"{name} must be an array whose first axis has length {self.size}, not {given}")
        return [part for n, one in enumerate(parts) for part in self.child.flatten(f"{name}[{n}]", one)]

    def build(self, parts: Iterator[Any], stack: Callable[[list[Any], int], Any]) -> Any:
        return stack([self.child.build(parts, stack) for _ in range(self.size)], 0)


Structure = Leaf | Rows | Tuple | Dict | Stack


def leaves(count: int) -> Tuple:
    return Tuple((Leaf(),) * count)


def as_array(value: Any) -> Any:
    """An array as it is, of any library; what is none, as NumPy converts it."""
    return value if hasattr(value, "shape") else np.asarray(value)


def packed(structure: Structure, parts: Sequence[Any]) -> Any:
    """Parts in a structure without stacks."""
    if isinstance(structure, Leaf):
        return parts[0]
    return structure.build(iter(parts), _no_stack)


def _no_stack(parts: list[Any], axis: int) -> Any:
    raise AssertionError("a structure with stacks needs a library to stack with")
