"""Correctness and speed on an NVIDIA GPU, in one command: python benchmarks/gpu.py

First every shipped tape is compared with the CPU executor, bit for bit; nothing is timed if one differs. Then phif243
is timed against a plain copy of as many bytes in the same run, and against PyTorch. Writes
results/gpu-<date>-<name>.json and prints a table. Without a GPU it says so and exits with 3.

    --short     three tapes, no arrays beyond 1e7 events
"""

import argparse
import datetime
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from fastcov import kernels
from fastcov.cpu import Program
from fastcov.tape import Tape

RESULTS = Path(__file__).parent / "results"
NO_GPU = 3
SIZES = (0, 1, 31, 1_000_003)
EVENTS = (10_000, 100_000, 800_000, 1_000_000, 10_000_000, 100_000_000)
MODES = (("float32", "f"), ("float32", "d"), ("float64", "d"), ("float64", "f"))  # storage, arithmetic
TAILS = {"scalar": (), "vector": (4,), "matrix": (4, 4)}
XYZE = (0, 1, 2, 3)
SUM_TOLERANCE = 1e-12  # of the sum of the terms' sizes
REPEATS = 30


def random_inputs(tape: Tape, events: int, dtype: str, seed: int = 0) -> list[np.ndarray]:
    """Time-like vectors and positive scalars."""
    rng = np.random.default_rng(seed)
    arrays = []
    for one in tape.inputs:
        values = rng.uniform(0.1, 1, ((1,) if one.shared else (events,)) + TAILS[one.kind])
        if one.kind == "vector":
            values[..., 3] += 2
        arrays.append(values.astype(dtype))
    return arrays


def run_cpu(tape: Tape, events: int, inputs: list[np.ndarray], dtype: str, compute: str) -> list[np.ndarray]:
    outputs = [np.empty((() if o.summed else (events,)) + TAILS[o.kind], dtype) for o in tape.outputs]
    spread = [np.broadcast_to(x, (events, *x.shape[1:])) for x in inputs]
    Program(tape).run((events,), spread, XYZE, outputs, XYZE, compute)
    return outputs


def run_device(tape: Tape, events: int, inputs: list[Any], dtype: str, compute: str, **keywords: Any) -> list[Any]:
    import torch

    outputs = [
        torch.full(
            (() if o.summed else (events,)) + TAILS[o.kind],
            torch.nan,
            dtype=getattr(torch, dtype),
            device=inputs[0].device,
        )
        for o in tape.outputs
    ]
    axes = [XYZE] * len(inputs), [XYZE] * len(outputs)
    kernels.run(tape, (events,), inputs, axes[0], outputs, axes[1], compute, **keywords)
    return outputs


def differences(tape: Tape, got: list[Any], wanted: list[np.ndarray]) -> list[str]:
    """Which outputs differ: in a bit, but for the payload of a NaN; a sum by more than its rounding."""
    wrong = []
    for n, (out, x, y) in enumerate(zip(tape.outputs, got, wanted, strict=True)):
        x = x.cpu().numpy()
        if out.summed:
            same = np.allclose(x, y, rtol=SUM_TOLERANCE if y.dtype == np.float64 else 1e-6, equal_nan=True)
        else:
            bits = f"i{y.itemsize}"
            same = np.all((x.view(bits) == y.view(bits)) | (np.isnan(x) & np.isnan(y)))
        if not same:
            wrong.append(f"output {n}")
    return wrong


def compare(
    tapes: list[tuple[str, Tape]], device: Any, sizes: tuple[int, ...] = SIZES, **keywords: Any
) -> Iterator[str]:
    """What differs from the CPU executor, for every tape, size, storage and arithmetic."""
    import torch

    for name, tape in tapes:
        for events in sizes:
            for dtype, compute in MODES:
                inputs = random_inputs(tape, events, dtype)
                on_device = [torch.from_numpy(x).to(device) for x in inputs]
                got = run_device(tape, events, on_device, dtype, compute, **keywords)
                for wrong in differences(tape, got, run_cpu(tape, events, inputs, dtype, compute)):
                    yield f"{name}: {wrong} differs for {events} events, {dtype}, arithmetic {compute}"


def compare_beyond_32_bits(tapes: list[tuple[str, Tape]], device: Any) -> tuple[str, list[str]]:
    """A tape on arrays of more than 2^31 numbers, compared at both ends and where 32 bits wrap; what was done."""
    import torch

    name, tape = min(
        ((name, tape) for name, tape in tapes if tape.outputs[0].kind == "vector"), key=lambda t: t[1].cost(4).bytes
    )
    events = 2**29 + 1000
    needed = tape.cost(4).bytes * events
    free, _ = torch.cuda.mem_get_info(device)
    if needed > 0.9 * free:
        return f"not done: {needed / 1e9:.0f} GB needed, {free / 1e9:.0f} free", []
    inputs = [torch.rand((events, *TAILS[one.kind]), device=device) + 0.5 for one in tape.inputs]
    got = run_device(tape, events, inputs, "float32", "f")
    wrong = []
    for start in (0, 2**28 - 500, 2**29 - 500, events - 1000):
        part = slice(start, start + 1000)
        wanted = run_cpu(tape, 1000, [x[part].cpu().numpy() for x in inputs], "float32", "f")
        wrong += differences(tape, [x[part] for x in got], wanted)
    return f"{name}, {events} events", [f"beyond 2^31 numbers: {one}" for one in wrong]


def compare_ways_of_launching(tape: Tape, device: Any) -> dict[str, Any]:
    """Another stream, another device, a captured graph: the same bits as a plain launch, or why it was not tried."""
    import torch

    events = 100_003
    inputs = [torch.from_numpy(x).to(device) for x in random_inputs(tape, events, "float32")]
    plain = run_device(tape, events, inputs, "float32", "f")
    found: dict[str, Any] = {}

    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        other = run_device(tape, events, inputs, "float32", "f")
    stream.synchronize()
    found["another stream"] = all(torch.equal(a, b) for a, b in zip(plain, other, strict=True))

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run_device(tape, events, inputs, "float32", "f")
    graph.replay()
    torch.cuda.synchronize(device)
    found["captured graph"] = all(torch.equal(a, b) for a, b in zip(plain, captured, strict=True))

    if torch.cuda.device_count() > 1:
        second = [x.to("cuda:1") for x in inputs]
        there = run_device(tape, events, second, "float32", "f")
        found["second device"] = all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(plain, there, strict=True))
    else:
        found["second device"] = "not present"
    return found


def milliseconds(call: Callable[[], Any], flush: Any) -> float:
    """Median time on the device, the second-level cache emptied before each call."""
    import torch

    call()
    times = []
    for _ in range(REPEATS):
        flush.zero_()
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return median(times)


def speeds(tape: Tape, device: Any, short: bool) -> Iterator[dict[str, Any]]:
    """phif243 of six vectors, a copy of as many bytes, and PyTorch's closed form, for growing numbers of events."""
    import torch
    from peers.closed_form import CONSTANTS
    from peers.closed_torch import closed_form

    flush = torch.empty(1 << 28, dtype=torch.uint8, device=device)
    axes = [XYZE] * 6
    for events in EVENTS[:-1] if short else EVENTS:
        for dtype, compute in (("float32", "f"), ("float32", "d"), ("float64", "d")):
            size = np.dtype(dtype).itemsize
            moved = tape.cost(size).bytes * events
            free, _ = torch.cuda.mem_get_info(device)
            if 2.2 * moved > free:
                continue
            inputs = [torch.rand(events, 4, dtype=getattr(torch, dtype), device=device) + 0.5 for _ in range(6)]
            out = torch.empty_like(inputs[0])
            source, target = (torch.empty(moved // 2, dtype=torch.uint8, device=device) for _ in range(2))

            def fastcov() -> None:
                kernels.run(tape, (events,), inputs, axes, [out], [XYZE], compute)  # noqa: B023

            row = {"events": events, "dtype": dtype, "arithmetic": {"f": "float32", "d": "float64"}[compute]}
            row["fastcov_ms"] = milliseconds(fastcov, flush)
            row["copy_ms"] = milliseconds(lambda: target.copy_(source), flush)  # noqa: B023
            row["share_of_copy"] = row["copy_ms"] / row["fastcov_ms"]
            row["gigabytes_per_second"] = moved / row["fastcov_ms"] / 1e6
            if events <= 10_000_000 and (dtype, compute) != ("float32", "d"):
                for name, compiled in (("torch_eager_ms", False), ("torch_compile_ms", True)):
                    function = closed_form("six vectors", compiled)
                    with torch.inference_mode():
                        row[name] = milliseconds(lambda: function(CONSTANTS, *inputs), flush)  # noqa: B023
            yield row


def latency(tape: Tape, device: Any) -> Iterator[dict[str, Any]]:
    """Microseconds of a call on few events: on the host alone, and until the result is there."""
    import torch

    for events in (1, 100, 10_000):
        inputs = [torch.rand(events, 4, device=device) + 0.5 for _ in range(6)]
        out = torch.empty_like(inputs[0])
        arguments = tape, (events,), inputs, [XYZE] * 6, [out], [XYZE], "f"
        kernels.run(*arguments)
        torch.cuda.synchronize(device)
        start = time.perf_counter()
        for _ in range(500):
            kernels.run(*arguments)
        host = (time.perf_counter() - start) / 500
        torch.cuda.synchronize(device)
        waited = []
        for _ in range(200):
            start = time.perf_counter()
            kernels.run(*arguments)
            torch.cuda.synchronize(device)
            waited.append(time.perf_counter() - start)
        yield {"events": events, "host_us": host * 1e6, "until_done_us": median(waited) * 1e6}


def machine(device: Any) -> dict[str, Any]:
    import torch
    import triton

    def said(*command: str) -> str:
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return "unknown"

    query = "driver_version,clocks.sm,clocks.max.sm,clocks.mem,clocks.max.mem,power.limit"
    return {
        "gpu": torch.cuda.get_device_name(device),
        "capability": torch.cuda.get_device_capability(device),
        query: said("nvidia-smi", f"--id={device.index}", f"--query-gpu={query}", "--format=csv,noheader"),
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "numpy": np.__version__,
        "commit": said("git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"),
    }


def table(results: dict[str, Any]) -> str:
    """Times of fastcov; the copy's time as a share of it, PyTorch's as a multiple."""
    lines = ["     events storage  arithmetic        us  ns/event   GB/s    copy   eager compile"]
    for row in results["speeds"]:
        own = row["fastcov_ms"]
        eager, compiled = (
            f"{row[name] / own:6.1f}x" if name in row else "      -" for name in ("torch_eager_ms", "torch_compile_ms")
        )
        lines.append(
            f"{row['events']:11} {row['dtype']:8} {row['arithmetic']:10} {1e3 * own:9.1f} "
            f"{1e6 * own / row['events']:9.4f} "
            f"{row['gigabytes_per_second']:6.0f} {row['share_of_copy']:7.0%} {eager} {compiled}"
        )
    for row in results["latency"]:
        lines.append(
            f"{row['events']} events: {row['host_us']:.1f} us on the host, {row['until_done_us']:.1f} us in all"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="three tapes, no arrays beyond 1e7 events")
    short = parser.parse_args().short
    there, why = kernels.available()
    if not there:
        print(f"no GPU: {why}", file=sys.stderr)
        return NO_GPU
    import torch

    from fastcov.kernels.report import shipped_tapes

    device = torch.device("cuda", torch.cuda.current_device())
    tapes = shipped_tapes()
    chosen = [tapes[0], tapes[len(tapes) // 2], tapes[-1]] if short else tapes
    _, phif243 = tapes[0]

    problems = list(compare(chosen, device))
    large, wrong = ("not done: --short", []) if short else compare_beyond_32_bits(tapes, device)
    ways = compare_ways_of_launching(phif243, device)
    problems += wrong + [name for name, same in ways.items() if same is False]
    for problem in problems:
        print("WRONG:", problem)
    if problems:
        return 1
    checked = {"tapes": len(chosen), "sizes": SIZES, "beyond 2^31 numbers": large, **ways}
    print(f"{len(chosen)} tapes equal the CPU executor to the bit; {checked}")

    results = {
        **machine(device),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "checked": checked,
        "speeds": list(speeds(phif243, device, short)),
        "latency": list(latency(phif243, device)),
    }
    print(table(results))
    RESULTS.mkdir(exist_ok=True)
    gpu = re.sub(r"\W+", "-", results["gpu"]).strip("-").lower()
    path = RESULTS / f"gpu-{results['date'][:10]}-{gpu}.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
