"""The Triton executor: tapes on NVIDIA GPUs or in Triton's interpreter. Importing it needs neither torch nor Triton."""

import importlib.util
from collections.abc import Sequence
from typing import Any

from ..tape import Tape

__all__ = ["available", "run"]

OLDEST = (3, 6)
INSTALL = "install fastcov[gpu]"
INTERPRET = "TRITON_INTERPRET=1 must be set before triton is imported"


def available(interpret: bool = False) -> tuple[bool, str]:
    """Whether tapes can run on a CUDA device, or in Triton's interpreter; and what is there, or why they cannot."""
    for module in ("torch", "triton"):
        if importlib.util.find_spec(module) is None:
            return False, f"{module} is not installed: {INSTALL}"
    import torch
    import triton
    import triton.language as tl

    if tuple(int(x) for x in triton.__version__.split(".")[:2]) < OLDEST:
        return False, f"Triton {triton.__version__} is older than {'.'.join(map(str, OLDEST))}"
    interpreted = not isinstance(tl.sum, triton.runtime.JITFunction)
    if interpret:
        return interpreted, f"the interpreter of Triton {triton.__version__}" if interpreted else INTERPRET
    if not torch.cuda.is_available():
        return False, "torch finds no CUDA device"
    if torch.version.hip is not None:
        return False, "torch is built for AMD devices, which are not supported"
    if interpreted:
        return False, "TRITON_INTERPRET=1 is set: kernels are interpreted"
    return True, f"{torch.cuda.get_device_name()}, Triton {triton.__version__}"


def run(
    tape: Tape,
    shape: tuple[int, ...],
    inputs: Sequence[Any],
    input_axes: Sequence[Any],
    outputs: Sequence[Any],
    output_axes: Sequence[Any],
    compute: str,
    interpret: bool = False,
) -> None:
    """Run a tape on torch tensors of one CUDA device, or of the CPU with `interpret`; see `launcher.run`.

    Raises ImportError where torch or Triton is missing, RuntimeError where this process cannot run the tape: no
    interpreter, an interpreter where a device is wanted, or a kernel that does not compile.
    """
    try:
        from . import launcher
    except ImportError as error:
        raise ImportError(f"the Triton executor needs torch and triton ({error}): {INSTALL}") from error
    launcher.run(tape, shape, inputs, input_axes, outputs, output_axes, compute, interpret)
