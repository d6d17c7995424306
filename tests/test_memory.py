"""What a call needs beyond its inputs and outputs, seen by the operating system."""

import subprocess
import sys
from pathlib import Path

import pytest

MIB = 1 << 20
SCRIPT = """
import sys
import numpy as np
import fastcov as fc
from fastcov import waves
from fastcov.phasespace import psi2s_kkpipi

def status(field):
    for line in open("/proc/self/status"):
        if line.startswith(field):
            return int(line.split()[1]) * 1024

events = int(sys.argv[2])
few = psi2s_kkpipi(1000)
momenta = [np.tile(p, (events // 1000, 1)) for p in few]
cases = {
    "call": lambda p: waves.phif243(*p),
    "out": lambda p: waves.phif243(*p, out=out[: len(p[0])]),
    "columns": lambda p: waves.phif243(*[tuple(x.T) for x in p]),
    "value_and_vjp": lambda p: waves.phif243.value_and_vjp(*p, cotangent=ones),
    "shared": lambda p: waves.phif243.vjp(few[0][0], *p[1:], cotangent=ones),
    "sum": lambda p: total(*p),
}
total = fc.fused(lambda kp, km, pip, pim: fc.sum(waves.phif243(kp, km, pip, pim)))
ones = np.ones(4)
out = np.ones((events, 4)) if sys.argv[1] == "out" else None
call = cases[sys.argv[1]]
call([p[:2] for p in momenta])  # trace
ones = np.broadcast_to(1.0, (events, 4))
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
result = call(momenta)
print(status("VmHWM") - before)
"""

OUTPUTS = {"call": 1, "out": 0, "columns": 1, "value_and_vjp": 5, "shared": 3, "sum": 0}  # arrays (events, 4)


def clear_refs():
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


@pytest.mark.skipif(not clear_refs(), reason="this system does not tell the peak memory of a part of a program")
@pytest.mark.parametrize(
    ("case", "events"),
    [("out", 8_000_000), *((case, 1_000_000) for case in ("call", "columns", "value_and_vjp", "shared", "sum"))],
)
def test_extra_memory(case, events):
    """At most 32 MiB, whatever the number of events."""
    command = [sys.executable, "-c", SCRIPT, case, str(events)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent)
    extra = int(run.stdout) - OUTPUTS[case] * events * 32
    assert -MIB < extra <= 32 * MIB
