"""What the build writes as straight-line C: each operation, and the order of the statements."""

import random
from fractions import Fraction
from pathlib import Path

import pytest

from fastcov import shipped
from fastcov.opcodes import BY_NAME, OPCODES
from fastcov.tape import Input, Output, Tape

FUNCTIONS = shipped.functions()


@pytest.fixture(autouse=True)
def _path(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parent.parent / "cpu" / "codegen")


@pytest.mark.parametrize("op", OPCODES, ids=[op.name for op in OPCODES])
def test_every_operation(op):
    """One operation on distinct operands: it reads them, and gives its result or stores what it is to store."""
    import emit

    inputs = tuple(Input(f"i{n}", "vector" if n < 4 else "scalar", False) for n in range(8))
    loads = [(BY_NAME["load_vector"].number, n, n) for n in range(4)]
    loads += [(BY_NAME["load_scalar"].number, n, 4 + n) for n in range(4)]
    kind = {"store_scalar": "scalar", "store_row": "matrix"}.get(op.name, "vector")
    stores = [(BY_NAME.get(f"store_{kind}", op).number, 0, 0)]
    if kind == "matrix":
        stores = [(*stores[0][:2], n, n) for n in range(4)]
    places = {"v": range(4), "s": range(4), "i": [4 if op.name == "load_scalar" else 0]}
    operands = [places[letter][n] if letter in places else 0 for n, letter in enumerate(op.operands)]
    added = [(op.number, 7, *operands)] if op.result else []

    def written(rows):
        return emit.statements(Tape(inputs, (Output(kind, False),), (Fraction(3),), 8, 8, tuple(rows)))

    statements = written([*loads, *added, *stores])
    new = statements[len(loads) : -len(stores)]
    if op.name in ("component", "pack"):
        assert not new  # only another name
    elif not op.result:
        assert [one.operands for one in statements[-len(stores) :]] == [
            ("r4x",) if kind == "scalar" else tuple(f"r{n}{m}" for m in "xyzE") for n in range(len(stores))
        ]
    else:
        read = {value.rstrip("xyzE") for one in new for value in one.operands}
        known = {f"r{n if letter == 'v' else 4 + n}" for n, letter in enumerate(op.operands) if letter in "vs"}
        assert known <= read
        assert sum("take" in one.text for one in new) == op.name.startswith("load")


def graph(seed, count):
    from schedule import Statement

    rng = random.Random(seed)
    values, made = [], []
    for n in range(count):
        operands = rng.sample(values[-40:], min(len(values), rng.randrange(3)))
        results = tuple(f"r{n}{m}" for m in range(rng.choice([0, 1, 1, 1, 4])))
        made.append(Statement(f"statement {n}", results, tuple(operands), rng.choice([1, 4, 8, 24])))
        values += results
    return made


def most_live(order):
    unread = {value: set() for one in order for value in one.results}
    for one in order:
        for value in one.operands:
            unread[value].add(one)
    live, most = set(), 0
    for one in order:
        live |= {value for value in one.results if unread[value]}
        for value in one.operands:
            unread[value].discard(one)
        live -= {value for value in one.operands if not unread[value]}
        most = max(most, len(live))
    assert not live
    return most


@pytest.mark.parametrize("registers", [1, 8, 44])
@pytest.mark.parametrize("seed", range(5))
def test_every_statement_once_after_what_it_reads(seed, registers):
    from schedule import scheduled

    statements = graph(seed, 300)
    order = scheduled(statements, registers)
    assert sorted(order) == sorted(statements)
    made = set()
    for one in order:
        assert made.issuperset(one.operands)
        made.update(one.results)


def test_independent_chains_alternate():
    from schedule import Statement, scheduled

    chains = [Statement(f"{c}{n}", (f"{c}{n}",), (f"{c}{n - 1}",) if n else (), 4) for c in "ab" for n in range(5)]
    order = [one.text for one in scheduled(chains, 10)]
    assert order == [f"{c}{n}" for n in range(5) for c in "ab"]


def test_the_longest_chain_goes_first():
    from schedule import Statement, scheduled

    short = [Statement(f"s{n}", (f"s{n}",), (), 4) for n in range(4)]
    long = [Statement(f"l{n}", (f"l{n}",), (f"l{n - 1}",) if n else (), 4) for n in range(4)]
    assert scheduled([*short, *long], 10)[0].text == "l0"


@pytest.mark.parametrize("name", ["phif222", "psi_phi_f", "all"])
def test_few_values_are_live(name):
    """The longest chain first would fill any number of registers; the tape's own order needs few."""
    import emit
    from schedule import scheduled

    statements = emit.statements(FUNCTIONS[name].tape)
    limit = max(emit.REGISTERS, most_live(statements)) + 4
    assert most_live(scheduled(statements, emit.REGISTERS)) <= limit < most_live(scheduled(statements, 10_000))
