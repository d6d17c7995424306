"""Functions over files: arrays larger than memory, a piece at a time."""

import mmap
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from .fused import Fused

PIECE = 1 << 20  # events


def stream(
    function: Fused, *inputs: Any, out: Any, piece: int = PIECE, progress: bool | None = None, **keywords: Any
) -> Any:
    """Call a fused function piece by piece over the first axis of large arrays, such as numpy.memmap, and return `out`.

    inputs: the function's arguments; those of as many events as the longest are cut into pieces, others are passed
    whole. out: an array or numpy.memmap of the result's shape and dtype, for a function with one result per event.
    piece: events at a time; memory in use stays at about that much, since pages of a mapped file are given back once
    they have been used. progress: whether to show a bar (tqdm, if it is installed); None: on a terminal.
    keywords: those of the call.

    The result is that of one call, to the bit. Raises ValueError where `out` does not have the events of the inputs.
    """
    if piece < 1:
        raise ValueError(f"stream: piece must be a positive number of events, not {piece!r}")
    arrays = [np.asarray(x) if not isinstance(x, (np.ndarray, tuple, int, float)) else x for x in inputs]
    events = max((len(a) for a in arrays if isinstance(a, np.ndarray) and a.ndim > 1), default=0)
    if len(out) != events:
        raise ValueError(f"stream: out has {len(out)} events, the inputs have {events}")
    for start in _steps(events, piece, sys.stderr.isatty() if progress is None else progress):
        part = slice(start, start + piece)
        function(*[_cut(a, part, events) for a in arrays], out=out[part], **keywords)
        for array in (*arrays, out):
            for column in array if isinstance(array, tuple) else (array,):
                _give_back(column, part)
    return out


def _cut(value: Any, part: slice, events: int) -> Any:
    if isinstance(value, tuple):
        return tuple(_cut(column, part, events) for column in value)
    return value[part] if isinstance(value, np.ndarray) and value.ndim and len(value) == events else value


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
