"""All components of a tensor built on arrays."""

import functools
import numbers
from math import prod
from operator import mul
from typing import Any, NamedTuple

import numpy as np

from . import structure
from .assemble import assemble
from .components import Piece, outer_products
from .contract import finish
from .deferred import ArrayTensor
from .dispatch import Options, namespace, native, run
from .fused import output_of
from .graph import Graph
from .locks import Guard
from .tape import RANKS, Input, Tape
from .tensors import Scalar, Tensor

PLANS_KEPT = 256
CHUNK_BYTES = 1 << 22  # of a product of full rank: it is written and read several times, so it should stay in cache


Terms = tuple[tuple[float | int, bool, tuple[Piece, ...]], ...]  # as in `components.Products`


class Plan(NamedTuple):
    rank: int
    tape: Tape
    terms: Terms | None  # of the sum of products of the tape's outputs, for ranks above 2


_plans: dict[Any, Plan] = {}
_guard = Guard()


def dense(tensor: Any, max_bytes: int = 2 << 30, **options: Any) -> Any:
    """The components of a tensor built on arrays, as an array (..., 4, ..., 4) with one axis of 4 for each index.

    The result is an array of the library of the arrays; JAX's also inside jit, grad and vmap.
    options: `backend`, `compute`, `threads`, `order` as in `fastcov.fused`. The same structure is planned once,
    whatever the arrays. Raises MemoryError, before allocating, for a result above `max_bytes`: contract the tensor
    instead, with `fastcov.einsum`, for which no component of it is ever formed.
    """
    if isinstance(tensor, Scalar) or (isinstance(tensor, Tensor) and tensor.graph is not None):
        raise TypeError("dense: a traced tensor has no components; return it from the fused function instead")
    if isinstance(tensor, Tensor):
        tensor = ArrayTensor(_same, (tensor,), {}, tensor.rank)
    if not isinstance(tensor, ArrayTensor):
        raise TypeError(f"dense: tensor must be a tensor built on arrays, not {type(tensor).__name__}")
    unknown = set(options) - {"backend", "compute", "threads", "order"}
    if unknown:
        raise ValueError(f"dense: unknown keyword {min(unknown)!r}; known are backend, compute, threads, order")
    chosen = Options(**options).checked()
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, numbers.Real) or not max_bytes >= 0:
        raise ValueError(f"dense: max_bytes must be a number of bytes, not {max_bytes!r}")
    leaves = tensor.leaves()
    _check_size(tensor.rank, leaves, max_bytes)
    plan = _plan(tensor, len(leaves))
    if plan.terms is None:
        return run(plan.tape, structure.Leaf(), leaves, chosen)
    return native(plan.tape.inputs, leaves, functools.partial(_components, plan, chosen))


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _check_size(rank: int, leaves: list[Any], max_bytes: int) -> None:
    shapes = [np.shape(leaf[0]) if isinstance(leaf, tuple) else np.shape(leaf)[:-1] for leaf in leaves]
    try:
        events = prod(np.broadcast_shapes(*shapes))
    except ValueError:
        return  # said better where the arrays are read
    size = events * 4**rank * 8
    if size > max_bytes:
        raise MemoryError(
            f"dense: a tensor of rank {rank} for {events:,} events takes {_readable(size)}, above max_bytes = "
            f"{_readable(max_bytes)}; contract it with fastcov.einsum instead, which never forms its components"
        )


def _readable(size: int) -> str:
    amount = float(size)
    for unit in ("bytes", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} GB"


def _plan(tensor: ArrayTensor, inputs: int) -> Plan:
    key = tensor.structure()
    plan = _plans.get(key)
    if plan is None:
        with _guard.lock:
            plan = _plans.get(key)
            if plan is None:
                plan = _plans[key] = _made(tensor, inputs)
                if len(_plans) > PLANS_KEPT:
                    del _plans[next(iter(_plans))]
    return plan


def _made(tensor: ArrayTensor, count: int) -> Plan:
    graph = Graph()
    inputs = tuple(Input(f"array {n}", "vector") for n in range(count))
    symbols = {id(leaf): Tensor.of_node(graph.input(n, inputs[n].name, True)) for n, leaf in enumerate(tensor.leaves())}
    value = tensor.traced(lambda leaf: symbols[id(leaf)])
    if tensor.rank <= 2:
        return Plan(tensor.rank, assemble(inputs, [output_of("dense", graph, value)]), None)
    products = outer_products(graph, Tensor(graph, finish(graph, value.terms), value.lower))
    terms = tuple((coefficient, is_output, tuple(pieces)) for coefficient, is_output, pieces in products.terms)
    return Plan(tensor.rank, assemble(inputs, products.outputs), terms)


def _components(plan: Plan, options: Options, leaves: list[Any]) -> Any:
    """The components of a tensor of rank above 2."""
    narrow = leaves[0] if options.compute != "float32" and leaves and all(map(_is_float32, leaves)) else None
    if narrow is not None:
        leaves = [_widened(leaf) for leaf in leaves]
    parts = run(plan.tape, structure.leaves(len(plan.tape.outputs)), leaves, options)
    with np.errstate(all="ignore"):  # what is not finite stays in its event
        return _multiplied(plan, parts, parts[0] if narrow is None else narrow)


def _is_float32(leaf: Any) -> bool:
    if isinstance(leaf, tuple):
        return all(map(_is_float32, leaf))
    return str(getattr(leaf, "dtype", "")).endswith("float32")


def _widened(leaf: Any) -> Any:
    """A float32 array as float64, so that products of many factors are rounded once; JAX's only where it has those."""
    if isinstance(leaf, tuple):
        return tuple(map(_widened, leaf))
    if hasattr(leaf, "double"):
        return leaf.double()
    return leaf.astype(namespace(leaf).result_type(float))


def _multiplied(plan: Plan, parts: tuple[Any, ...], like: Any) -> Any:
    """The sum of outer products in the library and dtype of `like`, chunk by chunk where arrays can be written to."""
    rank, tape, terms = plan
    assert terms is not None
    own = RANKS[tape.outputs[0].kind]
    shape = parts[0].shape[: parts[0].ndim - own]
    events = prod(shape)
    flat = [part.reshape(events, *part.shape[len(shape) :]) for part in parts]
    whole = (events, *(4,) * rank)
    while isinstance(like, tuple):
        like = like[0]
    if namespace(like).__name__ == "jax.numpy":
        from . import jax

        result = jax.dense_components(terms, whole, like.dtype, flat)
    else:
        result = like.new_empty(whole) if hasattr(like, "new_empty") else np.empty(whole, like.dtype)
        step = max(1, CHUNK_BYTES // (4**rank * 8))
        for start in range(0, events, step):
            result[start : start + step] = outer_sum(terms, rank, [part[start : start + step] for part in flat])
    return result.reshape(*shape, *(4,) * rank)


def outer_sum(terms: Terms, rank: int, parts: list[Any]) -> Any:
    """The sum of outer products of the outputs of a tape."""
    total: Any = 0
    for coefficient, is_output, pieces in terms:
        factors = [_broadcast(parts[piece.output], piece.slots, rank) for piece in pieces]
        scale = _broadcast(parts[int(coefficient)], (), rank) if is_output else coefficient
        total = total + functools.reduce(mul, factors, scale)
    return total


def _broadcast(part: Any, slots: tuple[int, ...], rank: int) -> Any:
    """A piece with its axes where the tensor has them."""
    return part.reshape(len(part), *(4 if slot in slots else 1 for slot in range(rank)))
