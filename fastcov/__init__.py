"""Covariant tensors for partial-wave analysis: spin projectors and orbital tensors, contracted event by event."""

from importlib.metadata import version

from .dispatch import backends
from .formalism import dot, einsum, levi_civita, lower, metric, orbital, projector, sqrt, transverse
from .fused import Fused, fused, sum
from .tape import Tape
from .tensors import Scalar, Tensor

__version__ = version("fastcov")

__all__ = [
    "Fused",
    "Scalar",
    "Tape",
    "Tensor",
    "backends",
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
