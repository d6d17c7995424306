"""Covariant tensors for partial-wave analysis: spin projectors and orbital tensors, contracted event by event."""

from importlib.metadata import version

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
    sqrt,
    transverse,
)
from .fused import Fused, bundle, fused, sum
from .tape import Tape
from .tensors import Scalar, Tensor

__version__ = version("fastcov")

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
    "sqrt",
    "sum",
    "transverse",
]
