"""The functions whose tapes the build also compiles into straight-line code."""

from . import waves
from .dropin import _phif243 as posted_phif243
from .fused import Fused, bundle, fused


def functions() -> dict[str, Fused]:
    """The waves, their gradients, the bundles, and the drop-in's phif243, each by a name."""
    found = {wave.__name__: wave for wave in waves.all}
    found["phif243 bare"] = fused(waves.phif243, barrier=False)
    found[waves.phif243_of_vertices.__name__] = waves.phif243_of_vertices
    found |= {f"{name} vjp": function.vjp for name, function in list(found.items())}
    found["posted phif243"] = posted_phif243
    found["psi_phi_f"] = bundle(*waves.psi_phi_f)
    found["all"] = bundle(*waves.all)
    return found
