"""The CPU executor: any tape over blocks of events, vectorised within a block, threads over chunks of blocks."""

from ._executor import Program, instruction_set, instruction_sets
from .threads import default_threads

__all__ = ["Program", "default_threads", "instruction_set", "instruction_sets"]
