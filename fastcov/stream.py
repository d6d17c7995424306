"""Functions over files: arrays larger than memory, a piece at a time."""

import mmap
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from .dispatch import event_shape
from .fused import Fused
from .structure import Leaf, Stack

PIECE = 1 << 20  # events


def stream(
    function: Fused, *inputs: Any, out: Any, piece: int = PIECE, progress: bool | None = None, **keywords: Any
) -> Any:
    """Call a fused function piece by piece over the first axis of large arrays, such as numpy.memmap, and return `out`.

    inputs: the function's positional arguments; those with an axis of events as long as `out` are cut into pieces, the
    others are passed whole. out: an array or numpy.memmap of the result's shape and dtype, for a function with one
    result, events first; a bundle's result, (waves, events, ...), is cut along its second axis.
    piece: events at a time; memory in use stays at about that much, since pages of a mapped file are given back once
    they have been used. progress: whether to show a bar (tqdm, if it is installed); None: on a terminal.
    keywords: those of the call.

    The result is that of one call, to the bit. Raises TypeError for a function with several results or a sum over
    events, ValueError where `out` does not have the events of the inputs.
    """
    if piece < 1:
        raise ValueError(f"stream: piece must be a positive number of events, not {piece!r}")
    trace = function.trace(function.default_constants())
    if not isinstance(trace.structure, (Leaf, Stack)) or any(output.summed for output in trace.tape.outputs):
        raise TypeError("stream: the function must have one result per event, or be a bundle of such")
    axis = 1 if isinstance(trace.structure, Stack) else 0
    values = [x if isinstance(x, (tuple, int, float)) else np.asanyarray(x) for x in inputs]
    shapes = [event_shape(one, value) for one, value in zip(trace.tape.inputs, values, strict=False)]
    events = max((shape[0] for shape in shapes if shape), default=0)
    if out.ndim <= axis or out.shape[axis] != events:
        raise ValueError(f"stream: out has shape {out.shape}, the inputs have {events} events")
    for start in _steps(events, piece, sys.stderr.isatty() if progress is None else progress):
        part = slice(start, start + piece)
        pieces = [_cut(x, part) if shape[:1] == (events,) else x for x, shape in zip(values, shapes, strict=True)]
        function(*pieces, out=out[(slice(None),) * axis + (part,)], **keywords)
        for value in (*values, *(out if axis else [out])):
            for array in value if isinstance(value, tuple) else (value,):
                _give_back(array, part)
    return out


def _cut(value: Any, part: slice) -> Any:
    return tuple(column[part] for column in value) if isinstance(value, tuple) else value[part]


def _steps(events: int, piece: int, progress: bool) -> Iterator[int]:
    if not progress:
        yield from range(0, events, piece)
        return
    try:
        from tqdm import tqdm
    except ImportError:
        yield from range(0, events, piece)
        return
    with tqdm(total=events, unit="events", unit_scale=True) as bar:
        for start in range(0, events, piece):
            yield start
            bar.update(min(piece, events - start))


def _give_back(array: Any, part: slice) -> None:
    """Let the system drop the pages of a mapped file that hold these events; what was written stays in the file.

    The pages of a private copy (mode "c") are nowhere else, so they stay.
    """
    if not isinstance(array, np.memmap) or array.mode == "c" or not hasattr(mmap, "MADV_DONTNEED"):
        return
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if not isinstance(base, mmap.mmap) or not array.flags.c_contiguous:
        return
    whole = np.frombuffer(base, np.uint8).__array_interface__["data"][0]
    offset = array.__array_interface__["data"][0] - whole
    step = array.strides[0]
    first = (offset + part.start * step) // mmap.PAGESIZE * mmap.PAGESIZE
    last = min(offset + part.stop * step, len(base)) // mmap.PAGESIZE * mmap.PAGESIZE
    if last > first:
        base.madvise(mmap.MADV_DONTNEED, first, last - first)
