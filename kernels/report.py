"""What the compiled kernels look like, without a GPU: registers, memory traffic, instructions, and a modelled time.

The figures are read from the machine code (for NVIDIA the SASS) and from the PTX that Triton makes for a target.
"""

import multiprocessing
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import triton
from triton.backends.compiler import GPUTarget

from ..tape import COMPONENTS, Tape
from .compilation import LIMITS, compile_tape, plan
from .program import Layout, split

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
MODES = (("fp32", "f"), ("fp32", "d"), ("fp64", "d"), ("fp64", "f"))  # storage, arithmetic


class Machine(NamedTuple):
    """Published peaks: memory in GB/s, arithmetic in 10^12 operations a second, a multiply-add counted as two."""

    name: str
    target: str
    bandwidth: float
    fp64: float
    fp32: float
    source: str


MACHINES = (
    Machine("A100", "sm_80", 2039, 9.7, 19.5, "NVIDIA A100 data sheet, SXM 80 GB"),
    Machine("H100", "sm_90", 3350, 34, 67, "NVIDIA H100 data sheet, SXM"),
    Machine("H200", "sm_90", 4800, 34, 67, "NVIDIA H200 data sheet, SXM"),
    Machine("B200", "sm_100", 8000, 40, 80, "NVIDIA Blackwell architecture brief, HGX B200 at 1000 W"),
)


class Figures(NamedTuple):
    """A kernel as compiled for one target. Counts are of instructions in the code, for the events of one thread."""

    name: str
    target: str
    storage: str
    arithmetic: str
    registers: int
    spills: int  # loads and stores of local memory
    local: int  # bytes
    shared: int  # bytes
    barriers: int
    loads: Counter[int]  # how many of which width in bits
    stores: Counter[int]
    operations: Counter[
        str
    ]  # add, mul, div, sqrt, fma as in the PTX; for AMD in the code, after divisions are expanded
    issued: Counter[str]  # floating-point instructions, FADD, DMUL, ..., on the path without special cases
    events: int  # of one thread
    sums: int  # rows of block sums
    packed: int  # bytes of packed vectors and matrices per event
    other: int  # bytes of other operands per event
    shared_operands: int  # bytes that are read for all events

    @property
    def bytes(self) -> float:
        """What the code moves per event, beyond shared operands and block sums."""
        moved = sum(bits * n for bits, n in (self.loads + self.stores).items()) / 8
        return (moved - self.shared_operands - 8 * self.sums) / self.events

    def time(self, machine: Machine) -> float:
        """Modelled ns per event: the larger of memory traffic and instruction issue, both at the published peak."""
        double = sum(n for name, n in self.issued.items() if name.startswith("D")) / self.events
        single = sum(2 * n if name.endswith("2") else n for name, n in self.issued.items()) / self.events - double
        arithmetic = 2e-3 * (double / machine.fp64 + single / machine.fp32)
        return max(self.bytes / machine.bandwidth, arithmetic)


def shipped_tapes() -> list[tuple[str, Tape]]:
    """Name and tape of everything whose kernels are checked: first phif243 of the vectors of its vertices, then every
    wave, bundle and drop-in function; no derivatives.
    """
    from .. import dropin, shipped, waves
    from ..fused import Fused

    first = waves.phif243_of_vertices
    named = {first.__name__: first}
    named |= {name: function for name, function in shipped.functions().items() if not name.endswith("vjp")}
    named |= {f"dropin.{name.lstrip('_')}": value for name, value in vars(dropin).items() if isinstance(value, Fused)}
    return [(name, function.tape) for name, function in named.items()]


def packed_layouts(tape: Tape, storage: str) -> list[Layout]:
    """The layouts of contiguous arrays, one value for all events where the tape says so."""

    def layout(kind: str, shared: bool = False, summed: bool = False) -> Layout:
        if summed:
            return Layout("sum", "fp64")
        if shared:
            return Layout("shared", storage)
        return Layout("unit" if kind == "scalar" else "packed", storage)

    inputs = [layout(one.kind, shared=one.shared) for one in tape.inputs]
    return inputs + [layout(out.kind, summed=out.summed) for out in tape.outputs]


def figures(name: str, tape: Tape, target: str, storage: str, arithmetic: str) -> Figures:
    """Compile a tape on packed arrays for a target of TARGETS and read the result."""
    layouts = packed_layouts(tape, storage)
    lanes = TARGETS[target].warp_size
    planned = plan(tape, layouts, arithmetic)
    planned = planned._replace(warps=planned.warps * 32 // lanes)
    kernel = compile_tape(tape, planned, TARGETS[target])
    size = {"fp32": 4, "fp64": 8}[storage]
    numbers: Counter[str] = Counter()
    kinds = [one.kind for one in tape.inputs] + [out.kind for out in tape.outputs]
    for kind, layout in zip(kinds, layouts, strict=True):
        numbers[layout.kind] += COMPONENTS[kind]
    read = _nvidia if TARGETS[target].backend == "cuda" else _amd
    return Figures(
        name,
        target,
        storage,
        arithmetic,
        **read(kernel),
        events=planned.block // (planned.warps * lanes),
        sums=planned.program.sums,
        packed=size * numbers["packed"],
        other=size * numbers["unit"],
        shared_operands=size * numbers["shared"],
    )


def _nvidia(kernel: Any) -> dict[str, Any]:
    text = _cuobjdump(kernel.asm["cubin"])
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", text)
    if not found:
        raise RuntimeError(f"cuobjdump says nothing of registers: {text:.200}")
    registers, stack, shared, local = map(int, found.groups())
    # Without special cases: up to the first EXIT that is not conditional, behind which the slow divisions stand.
    main = re.split(r"^(?!.*@).*\bEXIT\b", text, maxsplit=1, flags=re.M)[0]
    return {
        "registers": registers,
        "spills": len(re.findall(r"\b(?:LDL|STL)\b", text)),
        "local": stack + local,
        "shared": shared + kernel.metadata.shared,
        "barriers": len(re.findall(r"\bBAR\b", text)),
        "loads": Counter(int(width or 32) for width in re.findall(r"\bLDG\.E(?:\.(\d+))?", text)),
        "stores": Counter(int(width or 32) for width in re.findall(r"\bSTG\.E(?:\.(\d+))?", text)),
        "operations": _ptx_operations(kernel.asm["ptx"]),
        "issued": Counter(re.findall(r"\b([FD](?:ADD|MUL|FMA)2?)\b", main)),
    }


def _cuobjdump(cubin: bytes) -> str:
    """Resources and SASS, by the tool that Triton brings along."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([tool, "-res-usage", "-sass", file.name], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def _ptx_operations(ptx: str) -> Counter[str]:
    """Floating-point operations; one that ptxas may contract to a multiply-add, as it has no rounding, counts as fma.

    sm_100 has operations on pairs (f32x2), which are two.
    """
    names = {"sub": "add", "rcp": "div", "mad": "fma"}
    operation = r"\b(add|sub|mul|fma|mad|div|rcp|sqrt)\.((?:[a-z]+\.)*)f(?:64|32(x2)?)\b"
    counted: Counter[str] = Counter()
    for name, modifiers, pair in re.findall(operation, ptx):
        counted[names.get(name, name) if modifiers == "rn." else "fma"] += 2 if pair else 1
    return counted


def _amd(kernel: Any) -> dict[str, Any]:
    code = kernel.asm["amdgcn"]

    def value(name: str) -> int:
        return int(re.search(rf"\.{name}:\s+(\d+)", code)[1])  # type: ignore[index]

    widths = {"": 32, "x2": 64, "x3": 96, "x4": 128}
    names = {"sub": "add", "fmac": "fma"}
    operations = re.findall(r"\bv_(?:pk_)?(add|sub|mul|fma|fmac)_f(?:32|64)", code)
    return {
        "registers": value("vgpr_count"),
        "spills": value("vgpr_spill_count"),
        "local": value("private_segment_fixed_size"),
        "shared": value("group_segment_fixed_size") or kernel.metadata.shared,
        "barriers": len(re.findall(r"\bs_barrier\b", code)),
        "loads": Counter(widths[w] for w in re.findall(r"\bglobal_load_dword(x\d)?\b", code)),
        "stores": Counter(widths[w] for w in re.findall(r"\bglobal_store_dword(x\d)?\b", code)),
        "operations": Counter(names.get(name, name) for name in operations),
        "issued": Counter(),
    }


def check(kernel: Figures) -> list[str]:
    """What is wrong with a kernel for an NVIDIA target; empty if nothing is."""
    moved = kernel.loads + kernel.stores
    narrow = sum(bits // 8 * n for bits, n in moved.items() if bits < 128)
    unpacked = kernel.other * kernel.events + kernel.shared_operands + 8 * kernel.sums
    divides = kernel.operations["div"] or kernel.operations["sqrt"]
    problems = {
        f"{kernel.spills} accesses to spilled registers": kernel.spills,
        f"{kernel.local} bytes of local memory": kernel.local,
        f"{kernel.shared} bytes of shared memory": kernel.shared and not kernel.sums,
        f"{kernel.barriers} barriers": kernel.barriers and not kernel.sums,
        "a packed vector moved less than 128 bits at a time": narrow > unpacked,
        "a fused multiply-add, or what may become one": (
            kernel.operations["fma"] or (not divides and any("FMA" in name for name in kernel.issued))
        ),
        f"{kernel.bytes:g} bytes per event for {kernel.packed + kernel.other} of inputs and outputs": (
            kernel.bytes > kernel.packed + kernel.other
        ),
    }
    where = f"{kernel.name}, {kernel.target}, {kernel.storage} storage, {ARITHMETIC[kernel.arithmetic]} arithmetic"
    return [f"{where}: {problem}" for problem, found in problems.items() if found]


ARITHMETIC = {"f": "fp32", "d": "fp64"}


def launches(name: str, tape: Tape, arithmetic: str) -> Iterator[tuple[str, Tape]]:
    """The tapes that the launcher makes of one."""
    parts = split(tape, LIMITS[arithmetic])
    for number, (part, _) in enumerate(parts, 1):
        yield (f"{name} {number}/{len(parts)}" if len(parts) > 1 else name), part


def report(everything: bool = False) -> Iterator[Figures]:
    """All shipped tapes for sm_90 and three of them, the first, the middle and the last one, for the rest; or all."""
    tapes = shipped_tapes()
    few = {0, len(tapes) // 2, len(tapes) - 1}
    jobs = [
        (part_name, part, target, *mode)
        for number, (name, tape) in enumerate(tapes)
        for target in (TARGETS if everything or number in few else ("sm_90",))
        for mode in MODES
        for part_name, part in launches(name, tape, mode[1])
    ]
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(figures, *zip(*jobs, strict=True))


HEADER = (
    f"{'tape':24} {'target':6} {'stored':6} {'arith.':6} "
    f"{'regs':>4} {'spill':>5} {'local':>5} {'shared':>6} {'bar':>3} "
    f"{'loads':13} {'stores':13} {'add':>5} {'mul':>5} {'div':>4} {'sqrt':>4} {'fma':>4} {'bytes':>6}  modelled ns"
)


def line(kernel: Figures) -> str:
    def widths(counted: Counter[int]) -> str:
        return " ".join(f"{n}x{bits}" for bits, n in sorted(counted.items()))

    operations = [kernel.operations[name] / kernel.events for name in ("add", "mul", "div", "sqrt", "fma")]
    times = [f"{m.name} {kernel.time(m):.4f}" for m in MACHINES if m.target == kernel.target]
    return (
        f"{kernel.name:24} {kernel.target:6} {kernel.storage:6} {ARITHMETIC[kernel.arithmetic]:6} "
        f"{kernel.registers:4} {kernel.spills:5} {kernel.local:5} {kernel.shared:6} {kernel.barriers:3} "
        f"{widths(kernel.loads):13} {widths(kernel.stores):13} "
        + "{:5g} {:5g} {:4g} {:4g} {:4g}".format(*operations)
        + f" {kernel.bytes:6g}  {', '.join(times)}"
    )


def main(everything: bool = False) -> int:
    """Print the report; 1 if a check failed."""
    print(f"Triton {triton.__version__}. Instructions (of the PTX), bytes and times are for one event.")
    print("Times are a model, no measurement: the larger of bytes by peak bandwidth and instructions by peak rate.")
    for machine in MACHINES:
        print(
            f"  {machine.name}: {machine.bandwidth} GB/s, {machine.fp64} and {machine.fp32} Tflop/s "
            f"in float64 and float32 ({machine.source})"
        )
    print(HEADER)
    problems: list[str] = []
    for kernel in report(everything):
        print(line(kernel), flush=True)
        if TARGETS[kernel.target].backend == "cuda":
            problems += check(kernel)
    for problem in problems:
        print("FAILED:", problem)
    return 1 if problems else 0
