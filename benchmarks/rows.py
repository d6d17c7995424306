"""The rows of the benchmarks: what is called on what, checked against the dense reference before it is timed."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from peers import Peer
from problems import BUNDLES, PROBLEMS, VJPS, WAVES, arguments, output

from fastcov.cpu import Program, default_threads

FEW, MANY = 800_000, 8_000_000
SIZES = (1, 100, 10_000, 80_000)
ALL = default_threads()
ARITHMETIC = (("float64", "float64"), ("float32", "float64"), ("float32", "float32"))
LARGE_PEERS = ("Numba prange, fastmath", "torch.compile")  # that are fast enough for MANY events
LARGE_JAX = ("JAX jit", "six vectors", "columns", "float64")  # one is enough: it copies what it is given

INTERPRETED = "fastcov, interpreted"

CHECKED_EVENTS = 200
# Of the event's largest component. float32 storage: the rounding of the result. float32 arithmetic: the condition of
# p^2 at the thresholds is of the order 1e3.
TOLERANCE = {("float64", "float64"): 1e-11, ("float32", "float64"): 1.2e-7, ("float32", "float32"): 1e-3}
DIFFERENCES = 1e-6  # of the reference's derivatives

SAMPLE_SECONDS = 0.02


class Disagreement(AssertionError):
    """A result that differs from the reference: its time means nothing."""


@dataclass(frozen=True)
class Row:
    problem: str
    who: str
    dtype: str
    arithmetic: str
    events: int
    threads: int
    layout: str = "packed"
    output: str = "given"  # or "new": allocated by the call
    peer: Peer | None = None
    short: bool = False

    @property
    def key(self) -> tuple:
        return (
            *(self.problem, self.who, self.dtype, self.arithmetic),
            *(self.events, self.threads, self.layout, self.output),
        )

    @property
    def tolerance(self) -> float:
        return max(TOLERANCE[self.dtype, self.arithmetic], DIFFERENCES if self.problem in VJPS else 0)

    @property
    def bytes_per_event(self) -> int:
        """Of the inputs and outputs, however often a peer goes through memory in between."""
        return PROBLEMS[self.problem].function.tape.cost(np.dtype(self.dtype).itemsize).bytes

    def prepare(self) -> Callable[[], Any]:
        """The call to time. Raises Disagreement unless its result is right."""
        inputs = arguments(self.problem, self.events, self.dtype, self.layout)
        if self.peer:
            run = self.peer.prepare(*inputs)
        else:
            run = self._interpreted(inputs) if self.who == INTERPRETED else self._fused(inputs)
        self._check(run())
        return run

    def _fused(self, inputs: tuple) -> Callable[[], Any]:
        options: dict[str, Any] = {} if self.threads == ALL else {"threads": self.threads}
        if self.arithmetic == "float32":
            options["compute"] = "float32"
        problem = PROBLEMS[self.problem]
        function = problem.function.with_defaults(**options)
        positional = inputs[: len(inputs) - len(problem.named)]
        named = dict(zip(problem.named, inputs[len(positional) :], strict=True))
        if self.output == "new":
            return lambda: function(*positional, **named)
        result = function(*positional, **named)
        if isinstance(result, tuple):
            named["out"] = tuple(output(part.shape, self.dtype, n) for n, part in enumerate(result))
        else:
            named["out"] = output(result.shape, self.dtype)
        return lambda: function(*positional, **named)

    def _interpreted(self, inputs: tuple) -> Callable[[], Any]:
        """The tape through the interpreter, also where there is straight-line code for it."""
        program = Program(PROBLEMS[self.problem].function.tape, interpret=True)
        result = output((self.events, 4), self.dtype)
        axes, arithmetic = (0, 1, 2, 3), {"float64": "d", "float32": "f"}[self.arithmetic]

        def run() -> np.ndarray:
            program.run((self.events,), inputs, axes, [result], axes, arithmetic, self.threads)
            return result

        return run

    def _check(self, result: Any) -> None:
        if isinstance(result, tuple):
            parts = [np.asarray(part) for part in result]
            got = np.stack(parts, axis=-1 if parts[0].ndim == 1 else 0)  # columns, or one array for each input
        else:
            got = np.asarray(result)
        some = np.unique(np.linspace(0, self.events - 1, CHECKED_EVENTS).astype(int))
        packed = arguments(self.problem, self.events, self.dtype, "packed")
        wanted = PROBLEMS[self.problem].reference(*(v[some] for v in packed))
        if got.dtype != self.dtype or got.shape != (*wanted.shape[:-2], self.events, 4):
            raise Disagreement(f"{self.key}: result of shape {got.shape}, {got.dtype}")
        error = np.max(np.abs(got[..., some, :] - wanted), axis=-1) / np.max(np.abs(wanted), axis=-1)
        if not np.max(error) <= self.tolerance:
            raise Disagreement(
                f"{self.key}: an event differs from the reference by {np.max(error):.1e} of its largest component"
            )


def calls_per_sample(run: Callable[[], Any]) -> int:
    start = time.perf_counter()
    run()
    return max(1, int(SAMPLE_SECONDS / (time.perf_counter() - start)))


def sample(run: Callable[[], Any], calls: int) -> float:
    """Seconds of one call, averaged over `calls`. The pause lets other libraries' threads stop spinning."""
    time.sleep(0.005)
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


def fastcov_rows() -> list[Row]:
    def row(
        problem: str,
        arithmetic: tuple[str, str],
        events: int = FEW,
        threads: int = ALL,
        who: str = "fastcov",
        **more: Any,
    ) -> Row:
        return Row(problem, who, *arithmetic, events, threads, **more)

    both, f64, f32 = sorted({1, ALL}), ARITHMETIC[0], ARITHMETIC[2]
    main = [
        row(problem, arithmetic, threads=threads, layout=layout, short=threads == ALL and layout == "packed")
        for problem in ("six vectors", "four momenta")
        for arithmetic in ARITHMETIC
        for layout in ("packed", "columns")
        for threads in both
    ]
    large = [row(problem, a, MANY) for problem in ("six vectors", "four momenta", "wave phif243") for a in ARITHMETIC]
    interpreted = [
        row(problem, a, events, threads, INTERPRETED, short=a == f64 and events == FEW and threads == ALL)
        for problem in ("six vectors", "four momenta")
        for a in ARITHMETIC
        for events, threads in ((80_000, ALL), (FEW, ALL), (MANY, ALL), (FEW, 1))
    ]
    sizes = [row("six vectors", a, events, output="new") for a in (f64, f32) for events in (*SIZES, FEW)]
    posted = [row("posted", a, short=a == f64) for a in (f64, f32)]
    waves = [row(name, a, short=a == f64 and name == "wave phif243") for name in WAVES for a in (f64, f32)]
    bundles = [
        row(name, a, threads=threads, short=a == f64 and threads == ALL)
        for name in BUNDLES
        for a in ARITHMETIC
        for threads in both
    ]
    derivatives = [row(name, a, short=a == f64) for name in VJPS for a in (f64, f32)]
    return main + interpreted + large + sizes + posted + waves + bundles + derivatives


def peer_rows(peers: list[Peer]) -> list[Row]:
    def row(peer: Peer, dtype: str, events: int) -> Row:
        return Row(peer.form, peer.name, dtype, dtype, events, ALL, peer.layout, peer.output, peer)

    rows = []
    for peer in peers:
        for dtype in peer.dtypes:
            rows.append(row(peer, dtype, min(FEW, peer.events or FEW)))
            if peer.name in LARGE_PEERS or (peer.name, peer.form, peer.layout, dtype) == LARGE_JAX:
                rows.append(row(peer, dtype, MANY))
            if peer.form == "six vectors" and peer.events is None:
                rows += [row(peer, dtype, events) for events in SIZES]
    return rows


def partner(peer_row: Row, rows: list[Row]) -> Row | None:
    """fastcov's row for the same problem and arithmetic, on as many events or, for a peer that is too slow, on FEW."""

    def distance(row: Row) -> tuple[bool, ...]:
        return row.events != peer_row.events, row.layout != peer_row.layout, row.output != peer_row.output

    same = [
        row
        for row in rows
        if row.who == "fastcov"
        and (row.problem, row.dtype, row.arithmetic) == (peer_row.problem, peer_row.dtype, peer_row.arithmetic)
        and row.threads == ALL
        and row.events in (peer_row.events, FEW)
    ]
    return min(same, key=distance, default=None)
