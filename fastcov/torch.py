"""Tapes on torch tensors, with derivatives of every order in whatever way torch asks for them.

In eager mode a tape runs through an autograd function, or straight through the executor where no derivative is wanted.
Where a program is captured, by torch.compile, torch.export or a dispatch mode, every tape is the one operator

    fastcov::run(Tensor[] inputs, str tape, ...) -> Tensor[]

which has the tape as text, so that a saved program is complete in itself. Either way a derivative is another tape, run
in the same way. Importing this module registers the operator.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function, forward_ad
from torch.nn import Parameter

from . import arrays, derivative, dispatch, kernels
from .assemble import assemble, nodes_of, replayed
from .fused import capture_as_constant
from .graph import Graph
from .structure import Stack, Structure
from .tape import Input, Tape

TAPES_KEPT = 256  # of those that came as text

_DTYPES: dict[torch.dtype, np.dtype] = {torch.float32: np.dtype(np.float32), torch.float64: np.dtype(np.float64)}


@dataclass(frozen=True)
class How:
    """A tape and how to run it: everything but the tensors.

    dtype: of the outputs. order, components: of the components in inputs and outputs. stacked: whether the outputs are
    one tensor, stacked along its first axis.
    """

    tape: Tape
    dtype: torch.dtype
    order: str = arrays.COMPONENTS
    components: str = arrays.COMPONENTS
    compute: Literal["d", "f"] = "d"
    stacked: bool = False
    threads: int | None = None
    backend: str | None = None

    @cached_property
    def plain(self) -> bool:
        """Whether these are the options that `cpu.Program.call` knows."""
        return self == How(self.tape, self.dtype)

    @cached_property
    def own_axes(self) -> tuple[int, ...]:
        """How many axes of each input are not those of events."""
        return tuple(int(one.kind == "vector") for one in self.tape.inputs)

    @cached_property
    def derivatives(self) -> dict[tuple[Any, ...], "How"]:
        """How derivatives are run, as far as that has been asked for."""
        return {}


# Calls of fused functions


def run(tape: Tape, structure: Structure, values: Sequence[Any], options: dispatch.Options) -> Any:
    """The outputs of a tape for these values, of which at least one is a tensor, in the structure."""
    device = _common_device(tape.inputs, values)
    given = arrays.arguments(tape.inputs, values, partial(_as_tensor, device), torch.float64)
    if device.type != "cpu":
        placed = [tuple(c.to(device) for c in x) if isinstance(x, tuple) else x for x in given.arrays]
        given = given._replace(arrays=placed)
    how = How(
        tape,
        given.dtype,
        options.order,
        options.order if options.components is None else options.components,
        dispatch.ARITHMETIC[options.compute or "float64"],
        isinstance(structure, Stack),
        None if options.threads is None else int(options.threads),
        options.backend,
    )
    tensors = [part for x in given.arrays for part in arrays.parts(x)]
    direct = not _captured(tensors) and not _differentiated(tensors)
    if options.out is not None:
        if not direct:
            raise RuntimeError("out= can neither be differentiated nor be captured in a program")
        return _written(how, given, structure, options.out)
    split = tuple([n for n, x in enumerate(given.arrays) if isinstance(x, tuple)])
    if direct:
        results = _executed(how, given)
    elif torch.compiler.is_dynamo_compiling():
        results = tuple(_operator(how, _text_with_columns(tape.text, split, options.order), tensors))
    else:
        results = apply(replace(how, tape=_with_columns(_unshared(tape), split, options.order)), tensors)
    return results[0] if how.stacked else structure.build(iter(results), torch.stack)


def plain_calls(tape: Tape) -> dict[type, Callable[[tuple[Any, ...]], tuple[Tensor, ...] | None]]:
    """As `dispatch.plain_calls`: what runs a tape without options, here on CPU tensors of one dtype."""
    if any(one.shared for one in tape.inputs):
        return {}
    calls: dict[type, Callable[[tuple[Any, ...]], tuple[Tensor, ...] | None]] = tape.__dict__.setdefault("_calls", {})
    if not calls:
        hows = {dtype: How(tape, dtype) for dtype in _DTYPES}

        def call(args: tuple[Any, ...]) -> tuple[Tensor, ...] | None:
            how = hows.get(args[0].dtype)
            return None if how is None or len(args) != len(tape.inputs) else _run_usual(how, args)

        calls.update({Tensor: call, Parameter: call})
    return calls


def _common_device(inputs: Sequence[Input], values: Sequence[Any]) -> torch.device:
    """The device of all tensors; numbers of the CPU go with any. Raises ValueError for several devices."""
    found: dict[torch.device, str] = {}
    for one, value in zip(inputs, values, strict=True):
        for part in arrays.parts(value):
            if isinstance(part, Tensor) and (part.ndim > 0 or part.device.type != "cpu"):
                found.setdefault(part.device, one.name)
    if len(found) > 1:
        places = ", ".join(f"{name} on {device}" for device, name in found.items())
        raise ValueError(f"the arguments are on different devices: {places}")
    return next(iter(found), torch.device("cpu"))


def _as_tensor(device: torch.device, name: str, value: Any) -> Tensor:
    """A value as a tensor of float32 or float64; numbers stay on the CPU."""
    if type(value) in (int, float):
        return torch.full((), value, dtype=torch.float64, device="cpu")
    if not isinstance(value, Tensor):
        array = torch.from_numpy(np.array(arrays.number_array(name, value)))
        return array.to(device) if array.ndim else array
    if value.dtype not in _DTYPES or value.layout is not torch.strided:
        what = value.dtype if value.layout is torch.strided else value.layout
        raise TypeError(f"{name}: tensors of {what} are not supported; strided ones of float32 and float64 are")
    return value


def _written(how: How, given: arrays.Arguments, structure: Structure, out: Any) -> Any:
    """The outputs written to `out`."""
    outputs = structure.flatten("out", out)
    for n, part in enumerate(outputs):
        name = arrays.out_name(n, len(outputs))
        if not isinstance(part, Tensor):
            raise TypeError(f"{name} must be a tensor like the inputs, not {type(part).__name__}")
        if part.device != _device(given.arrays):
            raise ValueError(f"{name} is on {part.device}, the result on {_device(given.arrays)}")
        if part.dtype not in _DTYPES:
            raise ValueError(f"{name} has dtype {part.dtype}, the result has {given.dtype}")
        if part.requires_grad or _captured([part]):
            raise RuntimeError(f"{name} can neither be differentiated nor be captured in a program")
    inputs = [_each(x, _addresses) for x in given.arrays]
    memory = [_addresses(part) for part in outputs]
    arrays.check_out(
        memory, _shapes(how, given.shape), _DTYPES[given.dtype], how.tape.inputs, inputs, tuple(given.shape)
    )
    _fill(how, given, outputs)
    torch.autograd.graph.increment_version(outputs)
    return out


def _addresses(x: Tensor) -> np.ndarray:
    """An array over the memory of a tensor on any device, to compare addresses with; not to be read."""
    memory = SimpleNamespace(
        __array_interface__={
            "version": 3,
            "data": (x.data_ptr(), False),
            "typestr": _DTYPES[x.dtype].str,
            "shape": tuple(x.shape),
            "strides": tuple(step * x.element_size() for step in x.stride()),
        }
    )
    return np.asarray(memory)


# Running


def apply(how: How, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Run a tape on tensors, one an input, so that torch can differentiate it, transform it and capture it."""
    results = _run_usual(how, tensors)
    if results is not None:
        return results
    captured = _captured(tensors)
    differentiated = torch._C._are_functorch_transforms_active() or _differentiated(tensors)
    if differentiated and not torch.compiler.is_dynamo_compiling():
        run: Callable[..., tuple[Tensor, ...]] = _Run.apply if captured else _apply_plain
        return run(how, None, *tensors)
    return tuple(_operator(how, how.tape.text, tensors)) if captured else _run_plain(how, tensors)


def _run_usual(how: How, tensors: Sequence[Any]) -> tuple[Tensor, ...] | None:
    """Run a tape on strided tensors of the CPU, all of one dtype, as `apply` does; None for any other arguments."""
    if not how.plain or _watched():
        return None
    for x in tensors:
        if (type(x) is not Tensor and type(x) is not Parameter) or x.is_neg():
            return None
    if tensors[0].dtype is not how.dtype:
        return None
    # The executor refuses what has no memory of its own, such as the tensors of a transform.
    outputs = dispatch.program_of(how.tape).call(tuple(tensors))
    if outputs is None:
        return None
    results = tuple([torch.from_numpy(output) for output in outputs])
    return _apply_plain(how, results, *tensors) if _differentiated(tensors) else results


_OLDER_VMAP = torch._C._parse_dispatch_key("VmapMode")  # which torch.autograd.grad uses for is_grads_batched


def _watched() -> bool:
    """Whether torch has to see whatever happens, besides derivatives."""
    return (
        torch.compiler.is_dynamo_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._dispatch_tls_is_dispatch_key_included(_OLDER_VMAP)
        or torch._C._get_tracing_state() is not None
    )


def _captured(tensors: Sequence[Tensor]) -> bool:
    """Whether torch has to see what happens to these tensors, besides derivatives."""
    if _watched():
        return True
    for x in tensors:
        if (type(x) is not Tensor and type(x) is not Parameter) or not (x.is_cpu or x.is_cuda):
            return True
        if torch._C._functorch.is_functorch_wrapped_tensor(x) or torch._C._functorch.is_legacy_batchedtensor(x):
            return True
        if torch._is_functional_tensor(x):
            return True
    return False


def _differentiated(tensors: Sequence[Tensor]) -> bool:
    if forward_ad._current_level >= 0:
        return True
    return torch.is_grad_enabled() and True in [x.requires_grad for x in tensors]


@torch._disable_dynamo
def _run_plain(how: How, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Run a tape on tensors that are nothing but memory."""
    return _executed(how, arrays.arguments(how.tape.inputs, tensors, _checked, torch.float64))


def _checked(name: str, value: Any) -> Tensor:
    return _as_tensor(torch.device("cpu"), name, value)


def _executed(how: How, given: arrays.Arguments) -> tuple[Tensor, ...]:
    results, outputs = _allocated(how, given, _empty)
    _fill(how, given, outputs)
    return results


def _allocated(
    how: How, given: arrays.Arguments, empty: Callable[..., Tensor]
) -> tuple[tuple[Tensor, ...], list[Tensor]]:
    """What the caller gets, and each output of the tape in it."""
    device = _device(given.arrays)
    shapes = _shapes(how, given.shape)
    if how.stacked:
        whole = empty((len(shapes), *shapes[0]), how.dtype, device)
        return (whole,), [whole[n] for n in range(len(shapes))]
    outputs = [empty(shape, how.dtype, device) for shape in shapes]
    return tuple(outputs), outputs


def _empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type == "cpu":
        return torch.from_numpy(np.empty(shape, _DTYPES[dtype]))
    return torch.empty(shape, dtype=dtype, device=device)


def _shapes(how: How, events: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [arrays.output_shape(output, events, len(how.components)) for output in how.tape.outputs]


def _device(values: Sequence[Any]) -> torch.device:
    """Where tensors, or columns of them, are, not counting numbers on the CPU."""
    for value in values:
        device: torch.device = arrays.parts(value)[0].device
        if device.type != "cpu":
            return device
    return torch.device("cpu")


def _fill(how: How, given: arrays.Arguments, outputs: Sequence[Tensor]) -> None:
    """Let an executor write the outputs."""
    backend = dispatch.executor(how.backend, _device(given.arrays).type)
    order, components = arrays.axes(how.order), arrays.axes(how.components)
    if backend == "cpu":
        dispatch.program_of(how.tape).run(
            given.shape,
            [_each(x, partial(Tensor.numpy, force=True)) for x in given.arrays],
            order,
            [output.numpy() for output in outputs],
            components,
            how.compute,
            how.threads,
        )
    else:
        values = [_each(x, _materialised) for x in given.arrays]
        places = [order] * len(values), [components] * len(outputs)
        interpreted = backend == "triton-interpret"
        kernels.run(how.tape, given.shape, values, places[0], outputs, places[1], how.compute, interpreted)


def _each(x: Any, function: Callable[[Tensor], Any]) -> Any:
    return tuple(map(function, x)) if isinstance(x, tuple) else function(x)


def _materialised(x: Tensor) -> Tensor:
    """The tensor with its elements in memory as they are."""
    return x.clone() if x._is_zerotensor() else x.detach().resolve_neg()


def interpret(
    tape: Tape, given: arrays.Arguments, order: Any, outputs: Sequence[np.ndarray], components: Any, compute: str
) -> None:
    """Run a tape on NumPy arrays in Triton's interpreter."""
    values = [_each(x, lambda a: torch.from_numpy(np.array(a))) for x in given.arrays]
    filled = [torch.from_numpy(np.empty(output.shape, output.dtype)) for output in outputs]
    kernels.run(tape, given.shape, values, [order] * len(values), filled, [components] * len(filled), compute, True)
    for output, result in zip(outputs, filled, strict=True):
        output[...] = result.numpy()


# Derivatives


class _Run(Function):
    """Runs a tape; arguments and results as those of `apply`, and the results where they are known already."""

    @staticmethod
    def forward(how: How, results: tuple[Tensor, ...] | None, *tensors: Tensor) -> tuple[Tensor, ...]:
        if results is not None:
            return results
        if not _captured(tensors):
            return _run_plain(how, tensors)
        return tuple(_operator(how, how.tape.text, tensors, _below_autograd))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.how, _, *tensors = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> Any:
        return None, None, *_pulled_back(ctx.how, ctx.saved_tensors, cotangents, ctx.needs_input_grad[2:])

    @staticmethod
    def jvp(ctx: Any, _how: None, _results: None, *tangents: Tensor | None) -> Any:
        return _pushed_forward(ctx.how, ctx.saved_tensors, tangents)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], how: How, _: tuple[Tensor, ...] | None, *tensors: Tensor
    ) -> Any:
        return _batched(how, tensors, in_dims[2:], info.batch_size)


# Function.apply without its search for functorch transforms and default arguments, which takes longer than a small run.
_apply_plain = super(Function, _Run).apply


def _pulled_back(
    how: How, tensors: Sequence[Tensor], cotangents: Sequence[Tensor | None], wanted: tuple[bool, ...]
) -> list[Tensor | None]:
    """The gradient by each wanted tensor. What all events share gets the sum over events, as an output of the tape."""
    if how.stacked and cotangents[0] is not None:
        cotangents = cotangents[0].unbind()
    kept = tuple([c is not None for c in cotangents])
    if True not in kept:
        return [None] * len(tensors)
    alike = _alike(how, tensors)
    shared = (False,) * len(tensors) if alike else _shared(how, tensors)
    parts, split = _cotangent_inputs(how, len(tensors), cotangents)
    key = "vjp", wanted, shared, kept, split
    pulling = how.derivatives.get(key)
    if pulling is None:
        tape = _derivative(how.tape, ("vjp", wanted, shared, kept))
        tape = _with_columns(tape, split, how.order)
        pulling = how.derivatives[key] = replace(how, tape=tape, components=how.order, stacked=False)
    gradients = iter(apply(pulling, [*tensors, *parts]))
    found = [next(gradients) if want else None for want in wanted]
    return found if alike else [g if g is None else _fitted(g, x) for g, x in zip(found, tensors, strict=True)]


def _alike(how: How, tensors: Sequence[Tensor]) -> bool:
    """Whether all tensors have the shape of the same inputs for the same events, and the dtype of the outputs."""
    first = tensors[0].shape
    for x, own in zip(tensors, how.own_axes, strict=True):
        if own != how.own_axes[0] or x.dtype is not how.dtype or x.shape != first:
            return False
    return True


def _shared(how: How, tensors: Sequence[Tensor]) -> tuple[bool, ...]:
    """Which tensors are one value for several events."""
    leading = [x.shape[: x.ndim - own] for x, own in zip(tensors, how.own_axes, strict=True)]
    events = arrays.broadcast(leading)
    return tuple([shape != events and all(size == 1 for size in shape) for shape in leading])


def _fitted(gradient: Tensor, x: Tensor) -> Tensor:
    """The gradient in the shape and dtype of the tensor."""
    if gradient.shape != x.shape:
        gradient = gradient.sum_to_size(x.shape) if gradient.ndim >= x.ndim else gradient.reshape(x.shape)
    return gradient if gradient.dtype is x.dtype else gradient.to(x.dtype)


def _cotangent_inputs(
    how: How, first: int, cotangents: Sequence[Tensor | None]
) -> tuple[list[Tensor], tuple[int, ...]]:
    """Cotangents as the inputs of a derivative from the first on, and which of these inputs are given by columns."""
    parts: list[Tensor] = []
    split: list[int] = []
    for output, c in zip(how.tape.outputs, cotangents, strict=True):
        if c is None:
            continue
        for row in _rows(how, c) if output.kind == "matrix" else (c,):
            if output.kind == "scalar" or how.components == how.order:
                parts.append(row)
            else:
                split.append(first + len(parts) - 3 * len(split))
                parts += _columns(how, row)
    return parts, tuple(split)


def _rows(how: How, c: Tensor) -> list[Tensor]:
    """The rows x, y, z, E of a matrix of some components."""
    return [
        c[..., how.components.index(letter), :] if letter in how.components else c.new_zeros(len(how.components))
        for letter in arrays.COMPONENTS
    ]


def _columns(how: How, c: Tensor) -> list[Tensor]:
    """The columns, in order, of a vector of some components."""
    return [
        c[..., how.components.index(letter)] if letter in how.components else c.new_zeros(()) for letter in how.order
    ]


def _pushed_forward(
    how: How, tensors: Sequence[Tensor], tangents: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    active = tuple([t is not None for t in tangents])
    if True not in active:
        return (None,) * (1 if how.stacked else len(how.tape.outputs))
    key = "jvp", active
    pushing = how.derivatives.get(key)
    if pushing is None:
        pushing = how.derivatives[key] = replace(how, tape=_derivative(how.tape, key))
    return apply(pushing, [*tensors, *(t for t in tangents if t is not None)])


def _batched(how: How, tensors: Sequence[Tensor], dims: Sequence[int | None], size: int) -> tuple[Any, Any]:
    """A batch as one more axis of events; sums, which would run over the batch too, one by one."""
    if any(output.summed for output in how.tape.outputs):
        single = [
            apply(how, [x if d is None else x.select(d, n) for x, d in zip(tensors, dims, strict=True)])
            for n in range(size)
        ]
        results = tuple(torch.stack(parts) for parts in zip(*single, strict=True))
        return results, (0,) * len(results)
    most = max(x.ndim - n - (d is not None) for x, d, n in zip(tensors, dims, how.own_axes, strict=True))
    moved = []
    for x, d, n in zip(tensors, dims, how.own_axes, strict=True):
        if d is not None:
            x = x.movedim(d, 0)
            missing = most + n - (x.ndim - 1)
            x = x.reshape(x.shape[0], *(1,) * missing, *x.shape[1:])
        moved.append(x)
    results = apply(how, moved)
    return results, (int(how.stacked),) * len(results)


# Other tapes from a tape, each made once


def _derivative(tape: Tape, key: tuple[Any, ...]) -> Tape:
    """The derivative tape of a kind, "vjp" or "jvp", with what it is of."""
    made: dict[Any, Tape] = tape.__dict__.setdefault("_torch_derivatives", {})
    if key not in made:
        match key:
            case "vjp", wanted, shared, kept:
                new = derivative.vjp(_kept(tape, kept), wanted, shared)
            case _, active:
                new = derivative.jvp(tape, active)
        made[key] = _unshared(new)
    return made[key]


def _unshared(tape: Tape) -> Tape:
    """The tape without declarations of what is shared: under vmap that may have a batch axis, and shapes tell."""
    if not any(one.shared for one in tape.inputs):
        return tape
    new = tape.__dict__.get("_unshared")
    if new is None:
        inputs = tuple(Input(one.name, one.kind) for one in tape.inputs)
        new = Tape(inputs, tape.outputs, tape.constants, tape.vectors, tape.scalars, tape.code)
        tape.__dict__["_unshared"] = new
    return new


def _kept(tape: Tape, kept: tuple[bool, ...]) -> Tape:
    """The tape without some of its outputs."""
    if all(kept):
        return tape
    _, _, nodes = nodes_of(tape)
    return assemble(tape.inputs, [(o, rows) for o, rows, keep in zip(tape.outputs, nodes, kept, strict=True) if keep])


def _with_columns(tape: Tape, split: tuple[int, ...], order: str) -> Tape:
    """The tape with four scalars, its columns, in place of each of some vectors."""
    if not split:
        return tape
    made: dict[Any, Tape] = tape.__dict__.setdefault("_by_columns", {})
    key = split, order
    if key not in made:
        graph = Graph(flatten=False)
        inputs: list[Input] = []
        nodes = []
        for n, one in enumerate(tape.inputs):
            if n not in split:
                nodes.append(graph.input(len(inputs), one.name, one.kind == "vector"))
                inputs.append(one)
                continue
            columns = [graph.input(len(inputs) + k, one.name, False) for k in range(4)]
            inputs += [Input(one.name, "scalar")] * 4
            nodes.append(graph.pack(*(columns[axis] for axis in arrays.axes(order))))
        made[key] = assemble(tuple(inputs), list(zip(tape.outputs, replayed(tape, graph, nodes), strict=True)))
    return made[key]


@capture_as_constant
def _text_with_columns(text: str, split: tuple[int, ...], order: str) -> str:
    return _with_columns(_tape_of(text), split, order).text


# The operator

_library = torch.library.Library("fastcov", "DEF")
_library.define(
    "run(Tensor[] inputs, str tape, ScalarType dtype, str order='xyzE', str components='xyzE', str compute='d', "
    "bool stacked=False, int? threads=None, str? backend=None) -> Tensor[]",
    tags=(torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout),
)


def _operator(
    how: How, text: str, tensors: Sequence[Tensor], call: Callable[..., list[Tensor]] = torch.ops.fastcov.run.default
) -> list[Tensor]:
    options = how.order, how.components, how.compute, how.stacked, how.threads, how.backend
    return call(list(tensors), text, how.dtype, *options)


@torch._disable_dynamo
def _below_autograd(inputs: Sequence[Tensor], *options: Any) -> list[Tensor]:
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.fastcov.run.default(inputs, *options)


@lru_cache(TAPES_KEPT)
def _tape_of(text: str) -> Tape:
    return _unshared(Tape.from_text(text))


def _arguments(inputs: Sequence[Tensor], tape: str, *options: Any) -> tuple[How, arrays.Arguments]:
    how = How(_tape_of(tape), *options)
    if len(inputs) != len(how.tape.inputs):
        raise ValueError(f"the tape has {len(how.tape.inputs)} inputs, not {len(inputs)}")
    return how, arrays.arguments(how.tape.inputs, inputs, _checked, torch.float64)


def _run_kernel(inputs: Sequence[Tensor], *options: Any) -> list[Tensor]:
    how, given = _arguments(inputs, *options)
    return list(_executed(how, given))


def _run_fake(inputs: Sequence[Tensor], *options: Any) -> list[Tensor]:
    how, given = _arguments(inputs, *options)
    results, _ = _allocated(how, given, lambda shape, dtype, device: torch.empty(shape, dtype=dtype, device=device))
    return list(results)


def _run_autograd(inputs: Sequence[Tensor], *options: Any) -> list[Tensor]:
    if torch._C._are_functorch_transforms_active():
        raise RuntimeError(_TRANSFORMED)
    if _differentiated(inputs):
        how, _ = _arguments(inputs, *options)
        return list(_apply_plain(how, None, *inputs))
    return _below_autograd(inputs, *options)


_TRANSFORMED = (
    "transforms of torch.func do not see through the operator fastcov::run; transform the fused function itself, and "
    "compile no function that applies transforms"
)


def _run_in_vmap(inputs: Sequence[Tensor], *options: Any) -> list[Tensor]:
    raise RuntimeError(_TRANSFORMED)


def _run_batched(inputs: Sequence[Tensor], *options: Any) -> list[Tensor]:
    """The older kind of vmap, which torch.autograd.grad uses for is_grads_batched."""
    how, _ = _arguments(inputs, *options)
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    whole = [torch._remove_batch_dim(x, level, 1, 0) for x in inputs]
    size = max(x.shape[0] for x in whole)
    results, dims = _batched(how, [x.expand(size, *x.shape[1:]) for x in whole], (0,) * len(whole), size)
    return [torch._add_batch_dim(result, dim, level) for result, dim in zip(results, dims, strict=True)]


for key in ("CPU", "CUDA"):
    _library.impl("run", _run_kernel, key)
_library.impl("run", _run_autograd, "Autograd")
_library.impl("run", _run_in_vmap, "FuncTorchBatched")
_library.impl("run", _run_batched, "Batched")
torch.library.register_fake("fastcov::run", _run_fake, lib=_library)
