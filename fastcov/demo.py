"""The main job: phif243 for many events, timed, and compared with the dense reference on some of them.

Twice: the wave on phase-space events, and the function of that name posted in google/jax issue 1923 on the post's own
input, uniform momenta, but with a second vector r (the post has r = a, for which its result is zero).
"""

import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import dropin, kernels, reference, waves
from .dispatch import Options, backends
from .fused import Fused, fused
from .momenta import InputError, read_momenta
from .phasespace import psi2s_kkpipi

BATCH = 4_000_000  # events generated and held at once
REPEATS = 5  # timed calls after the first
SAMPLE = 1_000  # events compared with the reference

# Of an event's largest component. Two evaluations in float64 differ by up to 1e-12 where p^2 cancels; a result stored
# in float32 is rounded once more, by half a unit in the last place.
BOUNDS = {"float64": 1e-11, "float32": 1e-11 + 2.0**-24}

Array = npt.NDArray[Any]


class Job(NamedTuple):
    title: str
    function: Fused
    dense: Callable[..., Array]
    batches: Iterator[tuple[Array, ...]]
    sizes: list[int]  # events in each batch
    scale: str = "an event's largest component"  # what deviations are relative to
    magnified: Callable[..., Array] | None = None  # by how much more than that an event may deviate, by its momenta


class Measured(NamedTuple):
    first: float  # seconds of the very first call, with tracing
    seconds: float  # medians of the calls after it, added up over the batches
    memory: int  # bytes at the peak of a first call, beyond inputs and output
    method: str  # by which that was measured
    deviations: Array  # of each sampled event, see _deviations


def demo(*, events: int, seed: int, input: str | None, threads: int | None, backend: str | None, dtype: str) -> int:
    """Run the main job and print what was measured; 1 if a deviation is over its bound, else 0.

    `input` is a file that `read_momenta` reads; without it, momenta are generated, in batches of 4,000,000 events of
    the seeds `seed`, `seed` + 1, ... Raises InputError for a file or a back end that cannot be used.
    """
    _check_backend(backend)
    options = {name: value for name, value in (("threads", threads), ("backend", backend)) if value is not None}
    jobs = [_generated(events, seed), _posted(events, seed)] if input is None else [_from_file(input)]
    passed = [_run(job, options, np.dtype(dtype), seed) for job in jobs]
    return 0 if all(passed) else 1


def _check_backend(name: str | None) -> None:
    """Raises InputError where it is not known or cannot run here."""
    try:
        Options(backend=name).checked()
    except ValueError as error:
        raise InputError(str(error)) from None
    if name in ("triton", "triton-interpret"):
        there, words = kernels.available(name == "triton-interpret")
        if not there:
            raise InputError(f"backend {name!r} cannot run: {words}")


def _run(job: Job, options: dict[str, Any], dtype: np.dtype[Any], seed: int) -> bool:
    return _report(job, options, dtype, _measure(job, options, dtype, np.random.default_rng(seed)))


_WAVE = waves.phif243.with_defaults(barrier=False)


def _dense_wave(*momenta: Array) -> Array:
    return reference.waves["phif243"](*momenta, barrier=False)


def _generated(events: int, seed: int) -> Job:
    sizes = _sizes(events)
    batches = (psi2s_kkpipi(size, seed + n) for n, size in enumerate(sizes))
    return Job("phif243 of psi(2S) -> K+ K- pi+ pi-", _WAVE, _dense_wave, batches, sizes)


@fused
def _posted_phif243(a: Any, r: Any) -> Any:
    return dropin.phif243(a, r)


def _posted(events: int, seed: int) -> Job:
    rng = np.random.default_rng(seed)
    sizes = _sizes(events)
    batches = ((rng.random((size, 4)), rng.random((size, 4))) for size in sizes)
    title = "posted phif243(a, r) of uniform momenta"
    scale = "an event's largest component and (E^2 + p^2) / |a^2|"
    return Job(title, _posted_phif243, reference.posted_phif243, batches, sizes, scale, _cancellation)


def _cancellation(a: Array, r: Array) -> Array:
    """By how much a^2 = E^2 - p^2 magnifies the rounding of its terms: uniform momenta come close to the light cone."""
    square = a.astype(np.float64) ** 2
    magnified: Array = square.sum(axis=1) / np.abs(square[:, 3] - square[:, :3].sum(axis=1))
    return magnified


def _sizes(events: int) -> list[int]:
    return [min(BATCH, events - start) for start in range(0, events, BATCH)]


def _from_file(path: str) -> Job:
    momenta = read_momenta(path)
    return Job(f"phif243 of {Path(path).name}", _WAVE, _dense_wave, iter([momenta]), [len(momenta[0])])


def _measure(job: Job, options: dict[str, Any], dtype: np.dtype[Any], rng: np.random.Generator) -> Measured:
    memory_of = Cuda() if options.get("backend") == "triton" else Host()
    first, seconds, extra, deviations = 0.0, 0.0, 0, []
    for batch, size in zip(_progress(job.batches, len(job.sizes)), job.sizes, strict=True):
        momenta = [p.astype(dtype, copy=False) for p in batch]
        placed = [memory_of.place(p) for p in momenta]

        def call(placed: list[Any] = placed) -> tuple[float, Any]:
            start = time.perf_counter()
            result = job.function(*placed, **options)
            memory_of.wait()
            return time.perf_counter() - start, result

        before = memory_of.reset_peak()
        duration, result = call()
        first = first or duration
        extra = max(extra, memory_of.peak() - before - result.nbytes)
        seconds += statistics.median(call()[0] for _ in range(REPEATS))
        sample = rng.choice(size, min(size, -(-SAMPLE // len(job.sizes))), replace=False)
        deviations.append(_deviations(job, memory_of.fetch(result)[sample], [p[sample] for p in momenta]))
    return Measured(first, seconds, extra, memory_of.method, np.concatenate(deviations))


def _deviations(job: Job, result: Array, momenta: list[Array]) -> Array:
    """The largest difference of each event, relative to the job's scale; NaN where the reference is not finite."""
    wanted = job.dense(*momenta)
    error = np.max(np.abs(result - wanted), axis=1)
    error[np.isnan(error)] = np.inf
    scale = np.max(np.abs(wanted), axis=1) * (job.magnified(*momenta) if job.magnified else 1)
    with np.errstate(divide="ignore"):
        relative: Array = np.divide(error, scale, out=np.zeros_like(error), where=error > 0)
    relative[~np.all(np.isfinite(wanted), axis=1)] = np.nan
    return relative


def _report(job: Job, options: dict[str, Any], dtype: np.dtype[Any], measured: Measured) -> bool:
    """Print the table; whether the deviations are within their bound."""
    events = sum(job.sizes)
    backend = options.get("backend", "cpu")
    why = "asked for" if "backend" in options else "NumPy arrays run on the CPU"
    cost = job.function.tape.cost(dtype.itemsize)
    compared = measured.deviations[~np.isnan(measured.deviations)]
    left_out = len(measured.deviations) - len(compared)
    worst, bound = np.max(compared, initial=0), BOUNDS[dtype.name]
    passed = bool(len(compared) and worst <= bound)
    rows = {
        "back end": f"{backend}, {why}: {backends()[backend]}",
        "first call": f"{measured.first * 1e3:.3g} ms with tracing",
        "time": f"{measured.seconds * 1e3:.3g} ms, median of the {REPEATS} calls after it",
        "per event": f"{measured.seconds / events * 1e9:.3g} ns, {cost.flops} floating-point operations",
        "memory traffic": f"{cost.bytes * events / measured.seconds / 1e9:.3g} GB/s, {cost.bytes} bytes per event",
        "extra peak memory": f"{measured.memory / 2**20:.1f} MiB beyond inputs and output ({measured.method})",
        "the dense way": f"{4**8 * dtype.itemsize * events / 1e9:,.3f} GB, 4^8 numbers per event for the projector",
        "worst deviation": f"{worst:.2g} relative to {job.scale}",
        "": f"{len(compared):,} events against the dense reference, bound {bound:.2g}: {'OK' if passed else 'FAIL'}",
    }
    if "threads" in options:
        rows["back end"] += f", threads={options['threads']}"
    if left_out:
        rows["left out"] = f"{left_out:,} sampled events without a finite result in the reference"
    print(f"{job.title}, {events:,} events, {dtype}")
    for name, text in rows.items():
        print(f"  {name:<18}{text}")
    return passed


def _progress(batches: Iterator[tuple[Array, ...]], count: int) -> Iterator[tuple[Array, ...]]:
    """The batches, with a progress bar where they are several and tqdm is installed."""
    if count == 1:
        return batches
    try:
        from tqdm import tqdm
    except ImportError:
        return batches
    return iter(tqdm(batches, total=count, unit="batch", leave=False, disable=None))


class Host:
    """NumPy arrays in the memory of this process.

    Linux can reset the peak of the resident memory; elsewhere an earlier peak may hide that of a call.
    """

    _STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")

    def __init__(self) -> None:
        self.can_reset = self._CLEAR.exists()
        self.method = "VmHWM, reset before the call" if self.can_reset else "growth of ru_maxrss"

    def place(self, array: Array) -> Array:
        return array

    def fetch(self, array: Array) -> Array:
        return array

    def wait(self) -> None:
        pass

    def reset_peak(self) -> int:
        """Start a new measurement of the peak; the bytes in use now."""
        if self.can_reset:
            self._CLEAR.write_text("5")
        return self.peak()

    def peak(self) -> int:
        """The most bytes in use since the reset."""
        if self.can_reset:
            return 1024 * int(self._STATUS.read_text().split("VmHWM:")[1].split()[0])
        unit = 1 if sys.platform == "darwin" else 1024
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class Cuda:
    """Torch tensors in the memory of a CUDA device."""

    method = "torch's allocations on the device"

    def __init__(self) -> None:
        import torch

        self.torch = torch

    def place(self, array: Array) -> Any:
        return self.torch.from_numpy(array).cuda()

    def fetch(self, tensor: Any) -> Array:
        array: Array = tensor.cpu().numpy()
        return array

    def wait(self) -> None:
        self.torch.cuda.synchronize()

    def reset_peak(self) -> int:
        self.wait()
        self.torch.cuda.reset_peak_memory_stats()
        return self.peak()

    def peak(self) -> int:
        return int(self.torch.cuda.max_memory_allocated())
