"""Covariant tensors for partial-wave analysis: spin projectors and orbital tensors, contracted event by event."""

import sys

from .dense import dense
from .dispatch import backends
from .formalism import (
    Q0,
    barrier,
    breakup2,
    dot,
    einsum,
    levi_civita,
    lower,
    metric,
    orbital,
    projector,
    scale_qftpp,
    sqrt,
    transverse,
)
from .fused import Fused, bundle, fused, sum
from .stream import stream
from .tape import Tape
from .tensors import Scalar, Tensor

__all__ = [
    "Q0",
    "Fused",
    "Scalar",
    "Tape",
    "Tensor",
    "backends",
    "barrier",
    "breakup2",
    "bundle",
    "dense",
    "dot",
    "einsum",
    "fused",
    "levi_civita",
    "lower",
    "metric",
    "orbital",
    "projector",
    "scale_qftpp",
    "sqrt",
    "stream",
    "sum",
    "transverse",
]

if "torch" in sys.modules:  # programs saved by torch may contain the operator that this module registers
    from . import torch  # noqa: F401


def __getattr__(name: str) -> str:
    if name == "__version__":  # importlib.metadata is slow to import
        from importlib.metadata import version

        return version("fastcov")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
