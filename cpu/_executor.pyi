from collections.abc import Sequence
from typing import Any, Literal

from fastcov.tape import Tape

Axes = tuple[int, int, int, int]

class Program:
    tape: Tape
    compiled: bool
    def __init__(self, tape: Tape, interpret: bool = False) -> None: ...
    def run(
        self,
        shape: tuple[int, ...],
        inputs: Sequence[Any],
        input_axes: Axes,
        outputs: Sequence[Any],
        output_axes: Axes,
        compute: Literal["d", "f"] = "d",
        threads: int | None = None,
    ) -> None: ...
    def call(self, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None: ...

def instruction_set(name: str | None = None) -> str: ...
def instruction_sets() -> tuple[str, ...]: ...
