"""Compiles the kernel for a tape and the layouts of its arrays; needs Triton, but neither torch nor a GPU."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from ..tape import Tape
from .program import Layout, Program, live_numbers, lower
from .tape_kernel import sum_kernel, tape_kernel

# No multiply-add; no flushing of subnormal numbers in Triton's library functions; all registers, since ptxas left to
# itself spills some to fit more blocks on a multiprocessor.
OPTIONS = {"enable_fp_fusion": False, "enable_reflect_ftz": False, "maxnreg": 255}
# How many numbers per event one kernel may hold, by the type of the arithmetic: 255 registers of 32 bits, less some for
# addresses and for division.
LIMITS = {"d": 112, "f": 224}
# Events and warps of a block, by the type of the arithmetic, for tapes with up to so many numbers alive at once.
BLOCKS: dict[str, tuple[tuple[float, int, int], ...]] = {
    "d": ((12, 256, 4), (math.inf, 128, 4)),
    "f": ((24, 256, 4), (math.inf, 128, 4)),
}
# Block sums that one program adds up, how many of them at a time, and its warps.
SUM_GROUP, SUM_BLOCK, SUM_WARPS = 4096, 256, 4

_ARITHMETIC = {"f": tl.float32, "d": tl.float64}


class Plan(NamedTuple):
    """A tape made ready for one set of layouts: the kernel's program, its constexprs, events and warps of a block."""

    program: Program
    constexprs: dict[str, Any]
    block: int
    warps: int


def plan(tape: Tape, layouts: Sequence[Layout], compute: str) -> Plan:
    """layouts: of each input, then of each output. compute: "f" or "d", the type of the arithmetic."""
    program = lower(tape, layouts, compute)
    live = live_numbers(tape)
    block, warps = next((block, warps) for most, block, warps in BLOCKS[compute] if live <= most)
    columns = dict(zip(("OP", "A", "B", "C", "D"), zip(*program.rows, strict=True), strict=True))
    constexprs = {**columns, "CONSTANTS": program.constants, "DTYPE": _ARITHMETIC[compute], "BLOCK": block}
    return Plan(program, constexprs, block, warps)


def compile_tape(tape: Tape, planned: Plan, target: GPUTarget) -> Any:
    """The kernel compiled for a target, which need not be present.

    Raises RuntimeError, naming the tape, the target and Triton's version, where Triton fails.
    """
    program = planned.program
    signature: dict[str, Any] = {
        "n": "i64",
        "pointers": tuple("*" + dtype for dtype, _ in program.pointers),
        "strides": ("i64",) * program.strides,
        "values": ("fp64",) * program.values,
        **dict.fromkeys(planned.constexprs, "constexpr"),
    }
    aligned = {(1, i): [["tt.divisibility", 16]] for i, (_, packed) in enumerate(program.pointers) if packed}
    try:
        source = ASTSource(tape_kernel, signature, planned.constexprs, aligned)
        return triton.compile(source, target=target, options={"num_warps": planned.warps, **OPTIONS})
    except Exception as error:
        raise RuntimeError(
            f"the kernel of tape {tape.fingerprint[:12]} ({len(tape.code)} operations, {len(tape.inputs)} inputs, "
            f"{len(tape.outputs)} outputs) does not compile for {target.backend} {target.arch} under "
            f"Triton {triton.__version__}: {error}"
        ) from error


def compile_sum(target: GPUTarget) -> Any:
    constexprs = {"GROUP": SUM_GROUP, "BLOCK": SUM_BLOCK}
    signature = {"terms": "*fp64", "sums": "*fp64", "n": "i64", **dict.fromkeys(constexprs, "constexpr")}
    source = ASTSource(sum_kernel, signature, constexprs)
    return triton.compile(source, target=target, options={"num_warps": SUM_WARPS, **OPTIONS})
