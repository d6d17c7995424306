"""How many threads a run may use."""

import math
import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def default_threads() -> int:
    """Return the number of processors this process may use, at most the first number of OMP_NUM_THREADS.

    Respects the processor affinity and, on Linux, the quota of the control group.
    """
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = [_quota(), _requested()]
    return max(1, min([count] + [limit for limit in limits if limit]))


def _quota() -> int:
    """The quota of the control group in whole processors, 0 where there is none."""
    try:
        quota, period = _QUOTA.read_text().split()
        return math.ceil(int(quota) / int(period))
    except (OSError, ValueError):
        return 0


def _requested() -> int:
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first) if first.isdecimal() else 0
