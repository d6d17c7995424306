"""Tensors built on arrays: an expression that remembers what was called on what, and computes nothing.

`fastcov.dense` evaluates it, by tracing the same calls on symbols once per structure.
"""

import functools
import inspect
import numbers
import operator
from collections.abc import Callable, Hashable
from typing import Any

from .tensors import Scalar, Tensor

STATIC = (numbers.Number, str, type(None))


class ArrayTensor:
    """A tensor of given rank on arrays; see `fastcov.dense`. Adds, subtracts and scales like a traced tensor."""

    __slots__ = ("args", "function", "keywords", "rank")
    __array_ufunc__ = None

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any], rank: int):
        self.function, self.args, self.keywords, self.rank = function, args, keywords, rank

    def __add__(self, other: Any) -> Any:
        return _combined(operator.add, self, other)

    def __sub__(self, other: Any) -> Any:
        return _combined(operator.sub, self, other)

    def __radd__(self, other: Any) -> Any:
        return _combined(operator.add, other, self)

    def __rsub__(self, other: Any) -> Any:
        return _combined(operator.sub, other, self)

    def __neg__(self) -> Any:
        return ArrayTensor(operator.neg, (self,), {}, self.rank)

    def __pos__(self) -> Any:
        return self

    def __mul__(self, other: Any) -> Any:
        return _scaled(operator.mul, self, other)

    def __rmul__(self, other: Any) -> Any:
        return _scaled(operator.mul, other, self)

    def __truediv__(self, other: Any) -> Any:
        return _scaled(operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _scaled(operator.truediv, other, self)

    def __pow__(self, exponent: Any) -> Any:
        if self.rank or not isinstance(exponent, numbers.Integral):
            return NotImplemented
        return ArrayTensor(operator.pow, (self, exponent), {}, 0)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a tensor built on arrays holds no components; fastcov.dense(tensor) computes them")

    def __repr__(self) -> str:
        return f"<tensor of rank {self.rank} built on arrays>"

    def leaves(self) -> list[Any]:
        """The arrays it is built on, each once, in the order of the expression."""
        return [part for part in self._parts() if not isinstance(part, ArrayTensor)]

    def structure(self) -> Hashable:
        """What distinguishes it from other tensors on other arrays."""
        parts = self._parts()
        place = {id(part): n for n, part in enumerate(parts)}

        def described(part: Any) -> Hashable:
            if not isinstance(part, ArrayTensor):
                return None
            args = tuple(_constant(a) if _is_constant(a) else place[id(a)] for a in part.args)
            return part.function, args, tuple(sorted(part.keywords.items()))

        return tuple(map(described, parts))

    def traced(self, leaf: Callable[[Any], Tensor]) -> Any:
        """The same tensor with each array replaced by the 4-vector that `leaf` gives for it."""
        values: dict[int, Any] = {}
        for part in self._parts():
            if isinstance(part, ArrayTensor):
                args = [a if _is_constant(a) else values[id(a)] for a in part.args]
                values[id(part)] = part.function(*args, **part.keywords)
            else:
                values[id(part)] = leaf(part)
        return values[id(self)]

    def _parts(self) -> list[Any]:
        """The arrays and tensors of the expression, each once, operands first."""
        found: dict[int, Any] = {}
        waiting: list[tuple[Any, bool]] = [(self, False)]
        while waiting:
            part, operands_found = waiting.pop()
            if operands_found or not isinstance(part, ArrayTensor):
                found.setdefault(id(part), part)
            elif id(part) not in found:
                waiting.append((part, True))
                waiting.extend((a, False) for a in reversed(part.args) if not _is_constant(a))
        return list(found.values())


def deferrable(rank: Callable[..., int]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a function of traced values take arrays too; `rank` gives the result's from the same arguments."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: Any, **keywords: Any) -> Any:
            if keywords:
                bound = signature.bind(*args, **keywords)
                args, keywords = bound.args, bound.kwargs
            arrays = [a for a in args if not isinstance(a, (Scalar, Tensor, *STATIC))]
            if not arrays:
                return function(*args, **keywords)
            if any(isinstance(a, Scalar) or (isinstance(a, Tensor) and a.graph is not None) for a in args):
                raise TypeError(f"{function.__name__.lstrip('_')}: traced values and arrays cannot be mixed")
            return ArrayTensor(function, args, keywords, rank(*args, **keywords))

        return call

    return decorate


def rank_of(value: Any) -> int:
    """The rank of an operand: an array of components is a 4-vector."""
    if isinstance(value, (Tensor, ArrayTensor)):
        return value.rank
    return 0 if isinstance(value, (Scalar, *STATIC)) else 1


def _combined(operation: Callable[..., Any], a: Any, b: Any) -> Any:
    if not (_is_operand(a) and _is_operand(b)):
        return NotImplemented
    if rank_of(a) != rank_of(b):
        raise ValueError(f"cannot add tensors of rank {rank_of(a)} and {rank_of(b)}")
    return ArrayTensor(operation, (a, b), {}, rank_of(a))


def _scaled(operation: Callable[..., Any], a: Any, b: Any) -> Any:
    if not (_is_operand(a) and _is_operand(b)):
        return NotImplemented
    if rank_of(a) and rank_of(b):
        raise ValueError("the product of two tensors is an einsum")
    if operation is operator.truediv and rank_of(b):
        raise ValueError("cannot divide by a tensor")
    return ArrayTensor(operation, (a, b), {}, rank_of(a) + rank_of(b))


def _is_operand(value: Any) -> bool:
    """Whether a value goes with arrays: a number, a tensor of theirs, or one that is constant."""
    if isinstance(value, Scalar) or (isinstance(value, Tensor) and value.graph is not None):
        raise TypeError("traced values and arrays cannot be mixed")
    return isinstance(value, (ArrayTensor, Tensor, numbers.Number))


def _is_constant(value: Any) -> bool:
    """Whether an argument is neither an array nor built on arrays."""
    return isinstance(value, (Tensor, *STATIC))


def _constant(value: Any) -> Hashable:
    return (repr(value.terms), value.lower) if isinstance(value, Tensor) else (type(value), value)
