"""Runs tapes on torch tensors: finds the layout of each, compiles the kernel for them once, and launches it.

Nothing here synchronises, and memory comes from torch's allocator only, so a launch can be captured in a CUDA graph
once an earlier one has loaded the kernel. A kernel stays loaded as long as the process: a captured graph may hold it.
"""

import copy
import ctypes
import math
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import JITFunction, driver

from ..locks import Guard
from ..tape import Input, Output, Tape
from . import INTERPRET
from .compilation import LIMITS, SUM_BLOCK, SUM_GROUP, Plan, compile_sum, compile_tape, plan
from .program import Layout, split
from .tape_kernel import sum_kernel, tape_kernel

INTERPRETER = -1  # in place of a device's index
XYZE = (0, 1, 2, 3)

_TYPES = {torch.float32: "fp32", torch.float64: "fp64"}
_NUMBERS = {"fp32": (ctypes.c_float, torch.float32), "fp64": (ctypes.c_double, torch.float64)}
_Layouts: TypeAlias = tuple[tuple[str, torch.dtype, tuple[int, ...]], ...]  # kind, dtype, axes, as in Layout
_kernels: dict[tuple[str, _Layouts, str, int], "_Kernel"] = {}
_sum_launches: dict[int, Callable[..., None]] = {}
_guard = Guard()  # one compilation at a time, and one interpreted launch: Triton patches its own modules for it


def run(
    tape: Tape,
    shape: tuple[int, ...],
    inputs: Sequence[Any],
    input_axes: Sequence[Any],
    outputs: Sequence[torch.Tensor],
    output_axes: Sequence[Any],
    compute: str,
    interpret: bool = False,
) -> None:
    """Run a tape on every event of `shape` and fill the outputs, queued on the current stream of their device.

    inputs: for a vector a tensor (..., 4), or a tuple of four tensors (...), its columns; for a scalar a tensor (...)
    or a number. Leading axes broadcast to `shape`. A tensor without axes on the CPU counts as a number.
    input_axes: for each vector the positions of x, y, z, E in the last axis or in the tuple; not read for a scalar.
    outputs: tensors shape + (), (m,) or (m, m), without shape for a sum; they must not overlap the inputs.
    output_axes: for each vector or matrix the positions of x, y, z, E in the last axis or axes, -1 for one not kept.
    compute: "f" or "d", the type of the arithmetic; arrays are float32 or float64, converted when read and written.

    The leading axes of an operand are taken as one axis with one stride, 0 for an operand shared by all events. Where
    that cannot be, as for an array broadcast along some of several axes, that operand alone is copied: an input before
    the launch, an output after it.
    """
    events = math.prod(shape)
    if events == 0:
        for output, declared in zip(outputs, tape.outputs, strict=True):
            if declared.summed:
                output.zero_()
        return
    if isinstance(tape_kernel, JITFunction) is interpret:
        raise RuntimeError(INTERPRET if interpret else "TRITON_INTERPRET=1 is set: kernels are interpreted")
    device = INTERPRETER
    if not interpret:
        device = _device_index(outputs[0])
        if device != driver.active.get_current_device():
            with torch.cuda.device(device):
                return run(tape, shape, inputs, input_axes, outputs, output_axes, compute)
    for part, chosen in _parts(tape, compute):
        operands = _Operands(shape, events)
        operands.inputs(part.inputs, inputs, input_axes)
        for declared, o in zip(part.outputs, chosen, strict=True):
            operands.output(declared, outputs[o], output_axes[o])
        operands.launch(_kernel(part, tuple(operands.layouts), compute, device), device)


def event_stride(shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """The one stride with which all axes can be walked as one, or None; anything for a single event."""
    if len(shape) == 1:
        return strides[0]
    stride = span = None
    for size, step in zip(reversed(shape), reversed(strides), strict=True):
        if size == 1:
            continue
        if stride is None:
            stride, span = step, step * size
        elif step != span:
            return None
        else:
            span = step * size
    return 1 if stride is None else stride


class _Operands:
    """The arguments of one launch and the layouts of its operands, added in the order in which `lower` numbers them."""

    def __init__(self, shape: tuple[int, ...], events: int):
        self.shape, self.events = shape, events
        self.layouts: list[tuple[str, torch.dtype, tuple[int, ...]]] = []
        self.pointers: list[int] = []
        self.strides: list[int] = []
        self.values: list[float] = []
        self.copies: list[torch.Tensor] = []
        self.late: list[tuple[torch.Tensor, torch.Tensor]] = []  # an output, and the array that the launch fills for it
        self.summed: list[tuple[torch.Tensor, int]] = []  # an output, and its first row of sums
        self.sums = 0

    def inputs(self, declared: Sequence[Input], arrays: Sequence[Any], axes: Sequence[Any]) -> None:
        numbers = 4 * self.events
        for one, x, order in zip(declared, arrays, axes, strict=True):
            if one.kind == "scalar":
                self.scalar(x)
            elif type(x) is tuple:
                self.columns([x[axis] for axis in order])
            elif x.numel() == numbers and x.is_contiguous() and not (address := x.data_ptr()) % 16:
                self.pointers.append(address)
                self.layouts.append(("packed", x.dtype, order))
            else:
                self.strided_vector(x, order)

    def strided_vector(self, x: torch.Tensor, axes: tuple[int, ...]) -> None:
        shape = (*self.shape, 4)
        if x.shape != shape:
            x = x.expand(shape)
        strides = x.stride()
        stride = event_stride(self.shape, strides[:-1])
        if stride is None:
            self.copies.append(x.contiguous())
            self.pointers.append(self.copies[-1].data_ptr())
            self.layouts.append(("packed", x.dtype, axes))
        else:
            address, step = x.data_ptr(), strides[-1] * x.element_size()
            self.places([address + axis * step for axis in axes], [stride] * 4, x.dtype, XYZE)

    def columns(self, columns: list[torch.Tensor]) -> None:
        dtype = columns[0].dtype
        if [column.dtype for column in columns].count(dtype) != 4:
            dtype = torch.float64
            columns = [column.double() for column in columns]
            self.copies += columns
        placed = [self.column(column) for column in columns]
        self.places([address for address, _ in placed], [stride for _, stride in placed], dtype, XYZE)

    def scalar(self, x: Any) -> None:
        if not isinstance(x, torch.Tensor) or (x.dim() == 0 and not x.is_cuda):
            self.values.append(float(x))
            self.layouts.append(("value", torch.float64, ()))
        else:
            address, stride = self.column(x)
            self.places([address], [stride], x.dtype, ())

    def column(self, x: torch.Tensor) -> tuple[int, int]:
        """Address and stride of one number per event."""
        if x.numel() == self.events and x.is_contiguous():
            return x.data_ptr(), 1
        if x.shape != self.shape:
            x = x.expand(self.shape)
        stride = event_stride(self.shape, x.stride())
        if stride is None:
            x, stride = x.contiguous(), 1
            self.copies.append(x)
        return x.data_ptr(), stride

    def output(self, declared: Output, x: torch.Tensor, axes: tuple[int, ...] | None) -> None:
        axes = axes or ()
        kept = [axis for axis in axes if axis >= 0]
        if declared.summed:
            self.summed.append((x, self.sums))
            self.sums += x.numel()
            self.layouts.append(("sum", torch.float64, axes))
            return
        whole = len(kept) == 4 or (len(kept) == 2 and declared.kind == "vector")
        if whole and x.is_contiguous() and not (address := x.data_ptr()) % 16:
            self.pointers.append(address)
            self.layouts.append(("packed", x.dtype, axes))
            return
        stride = event_stride(self.shape, x.stride()[: len(self.shape)])
        if stride is None:
            filled = torch.empty(x.shape, dtype=x.dtype, device=x.device)
            self.late.append((x, filled))
            self.output(declared, filled, axes)
            return
        steps = x.stride()[len(self.shape) :]
        offsets = [0]
        for step in steps:
            offsets = [offset + axis * step for offset in offsets for axis in kept]
        address, size = x.data_ptr(), x.element_size()
        self.places([address + offset * size for offset in offsets], [stride] * len(offsets), x.dtype, axes)

    def launch(self, kernel: "_Kernel", device: int) -> None:
        blocks = -(-self.events // kernel.block)
        if kernel.sums:
            terms = torch.empty((kernel.sums, blocks), dtype=torch.float64, device=self.summed[0][0].device)
            self.pointers.append(terms.data_ptr())
        arguments = self.events, tuple(self.pointers), tuple(self.strides), tuple(self.values)
        kernel.launch((blocks, 1, 1), *arguments)
        if kernel.sums:
            totals = _added_up(terms, device)
            for output, first in self.summed:
                output.copy_(totals[first : first + output.numel()].view(output.shape))
        for output, filled in self.late:
            output.copy_(filled)

    def places(self, addresses: list[int], strides: list[int], dtype: torch.dtype, axes: tuple[int, ...]) -> None:
        self.pointers += addresses
        if strides.count(1) == len(strides):
            kind = "unit"
        elif strides.count(0) == len(strides):
            kind = "shared"
        else:
            kind = "strided"
            self.strides += strides
        self.layouts.append((kind, dtype, axes))


@lru_cache(maxsize=256)
def _parts(tape: Tape, compute: str) -> tuple[tuple[Tape, tuple[int, ...]], ...]:
    return split(tape, LIMITS[compute])


class _Kernel(NamedTuple):
    """launch(grid, n, pointers, strides, values); events of a block; rows of block sums."""

    launch: Callable[..., None]
    block: int
    sums: int


def _kernel(tape: Tape, layouts: _Layouts, compute: str, device: int) -> _Kernel:
    key = (tape.fingerprint, layouts, compute, device)
    kernel = _kernels.get(key)
    if kernel is None:
        with _guard.lock:
            kernel = _kernels.get(key)
            if kernel is None:
                kernel = _kernels[key] = _make_kernel(tape, layouts, compute, device)
    return kernel


def _make_kernel(tape: Tape, layouts: _Layouts, compute: str, device: int) -> _Kernel:
    if device == INTERPRETER:
        planned = _planned(tape, layouts, compute)
        types = [_NUMBERS[dtype] for dtype, _ in planned.program.pointers]
        launch: Callable[..., None] = partial(_interpret, types, planned.constexprs)
    else:
        compiled, planned = _compiled(tape, layouts, compute, driver.active.get_current_target())
        launch = _loaded(compiled, device)
    return _Kernel(launch, planned.block, planned.program.sums)


def _planned(tape: Tape, layouts: _Layouts, compute: str) -> Plan:
    return plan(tape, [Layout(kind, _TYPES[dtype], axes) for kind, dtype, axes in layouts], compute)


@cache
def _compiled(tape: Tape, layouts: _Layouts, compute: str, target: GPUTarget) -> tuple[Any, Plan]:
    planned = _planned(tape, layouts, compute)
    return compile_tape(tape, planned, target), planned


@cache
def _compiled_sum(target: GPUTarget) -> Any:
    return compile_sum(target)


def _loaded(compiled: Any, device: int) -> Callable[..., None]:
    """What launches a compiled kernel on the current device, to which its binary is loaded."""
    kernel = copy.copy(compiled)
    kernel._init_handles()
    constexprs = (None,) * list(compiled.src.signature.values()).count("constexpr")
    get_stream = driver.active.get_current_stream

    def launch(grid: tuple[int, int, int], *arguments: Any) -> None:
        kernel[grid](*arguments, *constexprs, stream=get_stream(device))

    return launch


def _interpret(
    types: list[Any],
    constexprs: dict[str, Any],
    grid: tuple[int, int, int],
    n: int,
    pointers: tuple[int, ...],
    strides: tuple[int, ...],
    values: tuple[float, ...],
) -> None:
    places = tuple(
        torch.frombuffer(number.from_address(address), dtype=dtype)
        for (number, dtype), address in zip(types, pointers, strict=True)
    )
    with _guard.lock, np.errstate(all="ignore"):
        tape_kernel[grid](n, places, strides, values, **constexprs)


def _added_up(terms: torch.Tensor, device: int) -> torch.Tensor:
    """The sum of each row, in an order that depends on its length only."""
    while terms.shape[1] > 1:
        rows, n = terms.shape
        groups = -(-n // SUM_GROUP)
        sums = terms.new_empty((rows, groups))
        if device == INTERPRETER:
            with _guard.lock, np.errstate(all="ignore"):
                sum_kernel[groups, rows, 1](terms, sums, n, SUM_GROUP, SUM_BLOCK)
        else:
            _sum_launch(device)((groups, rows, 1), terms, sums, n)
        terms = sums
    return terms[:, 0]


def _sum_launch(device: int) -> Callable[..., None]:
    launch = _sum_launches.get(device)
    if launch is None:
        with _guard.lock:
            launch = _sum_launches[device] = _loaded(_compiled_sum(driver.active.get_current_target()), device)
    return launch


def _device_index(x: torch.Tensor) -> int:
    index: int = x.device.index
    return index
