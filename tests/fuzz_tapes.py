"""Mutated tapes through the loader and the CPU executor: `python fuzz_tapes.py --count 1000000`.

A mutant is refused with a ValueError, or it runs with the values of plain NumPy and writes nothing beside its outputs.
Run it on a build with AddressSanitizer to see what is read, too. A mutant depends on the seed and its number alone.
"""

import argparse
import json
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from tape_numpy import evaluate

from fastcov import waves
from fastcov.cpu import Program
from fastcov.opcodes import OPCODES
from fastcov.tape import Tape

EVENTS = 11
TAILS = {"scalar": (), "vector": (4,), "matrix": (4, 4)}
XYZE = (0, 1, 2, 3)
MARGIN = 16  # numbers before and after an output, which must stay as they are
NUMBERS = (-1, 0, 1, 2, 3, 4, 5, 63, 64, 255, 1024, 4095, 4096, 4097, 2**31 - 1, 2**31, -(2**31), 2**63, 10**30)
VALUES = (
    None,
    True,
    False,
    0.5,
    1e308,
    "",
    "vector",
    "scalar",
    "matrix",
    "event",
    "shared",
    "sum",
    "1/3",
    [],
    {},
    [[]],
)
CHARACTERS = '0123456789-+.eE,:[]{}" \\/untrfals\x00\u00e9'


def _every_opcode() -> Tape:
    """A tape that uses each operation, and each kind of input and output."""
    numbers = {op.name: op.number for op in OPCODES}
    code = [("load_vector", 0, 0), ("load_vector", 1, 1), ("load_scalar", 0, 2), ("load_scalar", 1, 3)]
    for op in OPCODES:
        if op.result and not op.name.startswith("load"):
            operands = [k % 2 if kind in "vs" else 1 for k, kind in enumerate(op.operands)]
            code.append((op.name, 2, *operands))
    code += [("store_scalar", 0, 2), ("store_scalar", 1, 2), ("store_vector", 2, 2), ("store_vector", 3, 1)]
    code += [("store_row", output, row, row % 3) for output in (4, 5) for row in range(4)]
    data = {
        "fastcov_tape": 1,
        "inputs": [
            ["p", "vector", "event"],
            ["q", "vector", "shared"],
            ["x", "scalar", "event"],
            ["y", "scalar", "shared"],
        ],
        "outputs": [[kind, total] for kind in TAILS for total in ("event", "sum")],
        "constants": ["1/3", "-2"],
        "vectors": 3,
        "scalars": 3,
        "code": [[numbers[name], *operands] for name, *operands in code],
    }
    return Tape.from_text(json.dumps(data))


SEEDS = [_every_opcode().text, waves.phif001.tape.text, waves.u_DD_1.tape.text, waves.phif021.vjp.tape.text]
PARSED = [json.loads(text) for text in SEEDS]


def mutant(seed: int, number: int) -> str:
    """The text of a tape, changed in one to four places."""
    rng = random.Random(seed << 40 | number)
    which = rng.randrange(len(SEEDS))
    if rng.random() < 0.3:
        text = SEEDS[which]
        for _ in range(rng.randint(1, 4)):
            text = _changed_text(rng, text)
        return text
    data = json.loads(SEEDS[which])
    for _ in range(rng.choice((1, 1, 2, 4))):
        _change_data(rng, data)
    return json.dumps(data)


def _changed_text(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    end = min(len(text), at + rng.choice((0, 1, 1, 2, 8, 100)))
    new = rng.choice(("", rng.choice(CHARACTERS), str(rng.choice(NUMBERS)), text[at:end] * 2))
    return text[:at] + new + text[end:]


def _change_data(rng: random.Random, data: dict[str, Any]) -> None:
    if rng.random() < 0.8 and isinstance(data.get("code"), list) and data["code"]:
        _change_code(rng, data["code"])
        return
    place: Any = data
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = rng.choice(keys)
        inner = place[key]
        if not isinstance(inner, (dict, list)) or not inner or rng.random() < 0.2:
            break
        place = inner
    match rng.randrange(4):
        case 0:
            place[key] = rng.choice(NUMBERS)
        case 1:
            place[key] = rng.choice(VALUES)
        case 2:
            del place[key]
        case 3 if isinstance(place, list):
            place.insert(key, inner)


def _change_code(rng: random.Random, code: list[Any]) -> None:
    line = rng.randrange(len(code))
    row = code[line]
    match rng.randrange(6):
        case 0:
            del code[line]
        case 1:
            code.insert(line, code[rng.randrange(len(code))])
        case 2:
            other = rng.randrange(len(code))
            code[line], code[other] = code[other], row
        case 3:
            op = rng.choice(OPCODES)
            code.insert(line, [op.number, *(rng.randrange(5) for _ in op.result + op.operands)])
        case _ if isinstance(row, list) and row:
            row = code[line] = list(row)
            row[rng.randrange(len(row))] = rng.choice((rng.randrange(8), rng.randrange(30), rng.choice(NUMBERS)))


def try_text(text: str) -> str:
    """What became of a tape: "refused" or "ran". Raises for anything else."""
    try:
        tape = Tape.from_text(text)
    except ValueError:
        return "refused"
    rng = np.random.default_rng(len(text))
    inputs = [rng.normal(size=TAILS[i.kind] if i.shared else (EVENTS, *TAILS[i.kind])) for i in tape.inputs]
    guarded = []
    for output in tape.outputs:
        shape = (*(() if output.summed else (EVENTS,)), *TAILS[output.kind])
        memory = np.full(int(np.prod(shape)) + 2 * MARGIN, -7.0)
        guarded.append((memory, memory[MARGIN:-MARGIN].reshape(shape)))
    Program(tape).run((EVENTS,), inputs, XYZE, [view for _, view in guarded], XYZE, "d", 1)
    full = [np.broadcast_to(x, (EVENTS, *TAILS[i.kind])) for x, i in zip(inputs, tape.inputs, strict=True)]
    wanted = evaluate(tape, [*full, np.zeros(EVENTS)][: len(full)]) if full else None
    for n, (memory, view) in enumerate(guarded):
        if not (np.all(memory[:MARGIN] == -7) and np.all(memory[-MARGIN:] == -7)):
            raise AssertionError(f"output {n}: something was written beside it")
        if wanted is not None and not tape.outputs[n].summed and not np.array_equal(view, wanted[n], equal_nan=True):
            raise AssertionError(f"output {n} differs from NumPy")
    return "ran"


def fuzz(seed: int, numbers: range, report: Callable[[int], None] = lambda number: None) -> Counter[str]:
    """How many of the mutants were refused and ran; `report` is told each number before it is tried."""
    counts: Counter[str] = Counter()
    for number in numbers:
        report(number)
        try:
            counts[try_text(mutant(seed, number))] += 1
        except Exception as error:
            error.add_note(f"fuzz_tapes.mutant({seed}, {number})")
            raise
    return counts


def _work(seed: int, numbers: range, at: Any, results: Any) -> None:
    results.put(fuzz(seed, numbers, lambda number: setattr(at, "value", number)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    results = spawn.SimpleQueue()
    start = time.monotonic()
    workers = []
    for n in range(options.workers):
        at = spawn.Value("q", -1, lock=False)
        numbers = range(n, options.count, options.workers)
        worker = spawn.Process(target=_work, args=(options.seed, numbers, at, results))
        worker.start()
        workers.append((worker, at))
    failed = 0
    for worker, at in workers:
        worker.join()
        if worker.exitcode:
            failed = 1
            print(f"exit status {worker.exitcode} at fuzz_tapes.mutant({options.seed}, {at.value})")
    total: Counter[str] = Counter()
    while not results.empty():
        total += results.get()
    counts = ", ".join(f"{count:,} {what}" for what, count in sorted(total.items()))
    print(f"{total.total():,} mutated tapes in {time.monotonic() - start:.0f} s: {counts}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
