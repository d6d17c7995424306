"""Tapes: the text form, every reason to refuse one, what they cost, and how they print."""

import json
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tape_numpy import evaluate

from fastcov import waves
from fastcov.opcodes import BY_NAME, OPCODES
from fastcov.tape import LIMITS, Input, Output, Tape


def row(name, *operands):
    return [BY_NAME[name].number, *operands]


def good():
    """p (p.q x + 1/3) per event, the sum of p.q, and the outer product of q with itself and q, the data of a tape."""
    return {
        "fastcov_tape": 1,
        "inputs": [["p", "vector", "event"], ["q", "vector", "event"], ["x", "scalar", "shared"]],
        "outputs": [["vector", "event"], ["scalar", "sum"], ["matrix", "event"]],
        "constants": ["1/3", "-2"],
        "vectors": 3,
        "scalars": 2,
        "code": [
            row("load_vector", 0, 0),
            row("load_vector", 1, 1),
            row("load_scalar", 0, 2),
            row("dot", 1, 0, 1),
            row("store_scalar", 1, 1),
            row("mul", 1, 0, 0),
            row("add_constant", 0, 1, 0),
            row("vscale", 2, 0, 0),
            row("store_vector", 0, 2),
            *(row("store_row", 2, n, 1) for n in range(4)),
        ],
    }


def text(**changes):
    return json.dumps(good() | changes)


def with_row(line, *new):
    code = good()["code"]
    code[line : line + 1] = [list(r) for r in new]
    return text(code=code)


def test_round_trip():
    tape = Tape.from_text(text())
    assert json.loads(tape.text) == good()
    again = Tape.from_text(tape.text)
    assert again == tape
    assert hash(again) == hash(tape)
    assert again.text == tape.text
    assert tape != Tape.from_text(text(constants=["1/3", "2"]))
    assert tape != tape.text
    assert pickle.loads(pickle.dumps(tape)) == tape
    assert tape.inputs == (Input("p", "vector"), Input("q", "vector"), Input("x", "scalar", True))
    assert tape.outputs == (Output("vector"), Output("scalar", True), Output("matrix"))
    assert tape.constants == (Fraction(1, 3), Fraction(-2))


@pytest.mark.parametrize("wave", waves.all, ids=lambda w: w.__name__)
def test_waves_round_trip(wave):
    for tape in (wave.tape, wave.vjp.tape, wave.jacobian.tape):
        again = Tape.from_text(tape.text)
        assert (again, again.code, again.constants) == (tape, tape.code, tape.constants)


def test_opcodes_keep_their_numbers():
    """Saved tapes hold them: new operations come at the end."""
    names = [
        "load_vector",
        "load_scalar",
        "constant",
        "unit",
        "add",
        "sub",
        "mul",
        "div",
        "reciprocal",
        "sqrt",
        "neg",
        "add_constant",
        "mul_constant",
        "vadd",
        "vsub",
        "vneg",
        "vlower",
        "vscale",
        "vscale_constant",
        "vadd_scaled",
        "vsub_scaled",
        "dot",
        "cross",
        "component",
        "pack",
        "store_scalar",
        "store_vector",
        "store_row",
        "project",
    ]
    assert [op.name for op in OPCODES][: len(names)] == names
    assert [op.number for op in OPCODES] == list(range(len(OPCODES)))


def test_fingerprint():
    """Of the program: names do not count, everything else does."""
    tape = Tape.from_text(text())
    renamed = good()["inputs"]
    renamed[0][0] = "other"
    assert Tape.from_text(text(inputs=renamed)).fingerprint == tape.fingerprint
    renamed[0][2] = "shared"
    others = [
        text(inputs=renamed),
        text(constants=["1/3", "-3"]),
        text(vectors=4),
        text(outputs=[["vector", "sum"], ["scalar", "sum"], ["matrix", "event"]]),
        with_row(5, row("mul", 1, 0, 0), row("neg", 0, 1)),
    ]
    prints = {Tape.from_text(t).fingerprint for t in others} | {tape.fingerprint}
    assert len(prints) == 1 + len(others)


BAD = {
    "no JSON": ("{", "not a tape"),
    "nothing": ("", "not a tape"),
    "no text": (None, "not a tape"),
    "bytes that are no text": (b"\xff\xfe\xfa", "not a tape"),
    "too deep": ("[" * 100_000, "not a tape"),
    "a list": ("[1]", "no 'fastcov_tape' version"),
    "no version": (json.dumps({"code": []}), "no 'fastcov_tape' version"),
    "later version": (text(fastcov_tape=2), "format version 2; this fastcov reads version 1"),
    "other version": (text(fastcov_tape="1"), "format version '1'"),
    "version true": (text(fastcov_tape=True), "format version True"),
    "version 1.0": (text(fastcov_tape=1.0), "format version 1.0"),
    "no code": (json.dumps({k: v for k, v in good().items() if k != "code"}), "KeyError: 'code'"),
    "no inputs": (json.dumps({k: v for k, v in good().items() if k != "inputs"}), "KeyError: 'inputs'"),
    "code no list": (text(code=5), "not a tape"),
    "row no list": (text(code=[5]), "not a tape"),
    "row a text": (text(code=["abc"]), "not a row of integers"),
    "inputs no list": (text(inputs=7), "not a tape"),
    "input too short": (text(inputs=[["p", "vector"]]), "unpack"),
    "input too long": (text(inputs=[["p", "vector", "event", 1]]), "unpack"),
    "input kind": (text(inputs=[["p", "matrix", "event"]]), "is no input"),
    "input kind a list": (text(inputs=[["p", [], "event"]]), "is no input"),
    "input name": (text(inputs=[[3, "vector", "event"]]), "is no input"),
    "input flag": (text(inputs=[["p", "vector", "often"]]), "'often' is neither 'event' nor 'shared'"),
    "output kind": (text(outputs=[["tensor", "event"]]), "is no output"),
    "output kind a list": (text(outputs=[[[], "event"]]), "not a tape"),
    "output flag": (text(outputs=[["vector", "shared"]]), "'shared' is neither 'event' nor 'sum'"),
    "constant a number": (text(constants=[0.5, "1"]), "constant 0.5 is no text"),
    "constant a decimal": (text(constants=["0.5", "1"]), "constant '0.5' is no text"),
    "constant NaN": (text(constants=["nan", "1"]), "constant 'nan' is no text"),
    "constant with a blank": (text(constants=["1/3\n", "1"]), "is no text"),
    "constant in other digits": (text(constants=["\u0663", "1"]), "is no text"),
    "constant over zero": (text(constants=["1/0", "1"]), "constant 1/0 has no value"),
    "constant too large": (text(constants=["1" + "0" * 400, "1"]), "out of the range of float64"),
    "constant too long": (text(constants=["1" * 3000, "1"]), "is no text"),
    "negative registers": (text(vectors=-1), "vectors = -1, not a number"),
    "registers no number": (text(scalars="2"), "scalars = '2', not a number"),
    "registers a float": (text(scalars=2.0), "scalars = 2.0, not a number"),
    "registers true": (text(scalars=True), "scalars = True, not a number"),
    "too many registers": (text(vectors=LIMITS["registers"] + 1), "vectors = 4097"),
    "too many inputs": (text(inputs=[["p", "vector", "event"]] * 1025), "more than 1024 inputs"),
    "too many outputs": (text(outputs=[["scalar", "event"]] * 1025), "more than 1024 outputs"),
    "too many constants": (text(constants=["1"] * 65537), "more than 65536 constants"),
    "empty row": (with_row(3, []), "operation 3, .*not a row of integers"),
    "float in a row": (with_row(3, row("dot", 1, 0, 1.0)), "operation 3, .*not a row of integers"),
    "true in a row": (with_row(3, row("dot", 1, 0, True)), "not a row of integers"),
    "null in a row": (with_row(3, row("dot", 1, 0, None)), "not a row of integers"),
    "unknown opcode": (with_row(3, [len(OPCODES), 1, 0, 1]), "unknown opcode"),
    "negative opcode": (with_row(3, [-1, 1, 0, 1]), "unknown opcode"),
    "operand missing": (with_row(3, row("dot", 1, 0)), "dot takes 2 operands"),
    "operand too many": (with_row(3, row("dot", 1, 0, 1, 1)), "dot takes 2 operands"),
    "read before written": (with_row(0), "operation 2, .*register v0 is read before it is written"),
    "scalar read before written": (with_row(3), "register s1 is read before it is written"),
    "register beyond": (with_row(3, row("dot", 1, 0, 3)), "register v3 is read before"),
    "register negative": (with_row(3, row("dot", 1, 0, -1)), "register v-1 is read before"),
    "register huge": (with_row(3, row("dot", 1, 0, 10**30)), "is read before"),
    "result beyond": (with_row(3, row("dot", 2, 0, 1)), "register s2 is out of range"),
    "result negative": (with_row(3, row("dot", -1, 0, 1)), "register s-1 is out of range"),
    "result is operand": (with_row(5, row("mul", 1, 0, 1)), "register s1 is read and written"),
    "result is vector operand": (with_row(7, row("vscale", 0, 0, 0)), "register v0 is read and written"),
    "input beyond": (with_row(0, row("load_vector", 0, 3)), "operand i3 is out of range"),
    "input negative": (with_row(0, row("load_vector", 0, -1)), "operand i-1 is out of range"),
    "scalar as vector": (with_row(0, row("load_vector", 0, 2)), "input 2 is no vector"),
    "vector as scalar": (with_row(2, row("load_scalar", 0, 0)), "input 0 is no scalar"),
    "constant beyond": (with_row(6, row("add_constant", 0, 1, 2)), "operand k2 is out of range"),
    "component beyond": (with_row(6, row("component", 0, 0, 4)), "operand c4 is out of range"),
    "unit negative": (with_row(7, row("unit", 2, -1)), "operand c-1 is out of range"),
    "output beyond": (with_row(8, row("store_vector", 3, 2)), "operand o3 is out of range"),
    "vector into a scalar": (with_row(8, row("store_vector", 1, 2)), "output 1 is no vector"),
    "scalar into a vector": (with_row(4, row("store_scalar", 0, 1)), "output 0 is no scalar"),
    "vector into a matrix": (with_row(8, row("store_vector", 2, 2)), "output 2 is no vector"),
    "row into a vector": (with_row(8, row("store_row", 0, 0, 2)), "output 0 is no matrix"),
    "row beyond": (with_row(12, row("store_row", 2, 4, 1)), "operand c4 is out of range"),
    "stored twice": (with_row(8, row("store_vector", 0, 2), row("store_vector", 0, 2)), "output 0 is stored twice"),
    "row stored twice": (with_row(12, row("store_row", 2, 2, 1)), "output 2 is stored twice"),
    "row missing": (with_row(12), "output 2 is not completely stored"),
    "not stored": (with_row(4), "output 1 is not completely stored"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tape(case):
    bad, words = BAD[case]
    with pytest.raises(ValueError, match=words):
        Tape.from_text(bad)


def test_too_much_code():
    code = ([row("load_vector", 0, 0)] * (LIMITS["code"] + 1),)
    with pytest.raises(ValueError, match="more than 1048576 code"):
        Tape((Input("p", "vector"),), (), (), 1, 0, *code)


TAPE_TEXT = waves.phif021.tape.text


@given(st.integers(0, len(TAPE_TEXT) - 1), st.integers(1, 3), st.sampled_from([*'0123456789,-[]"', "", "1e9", "null"]))
def test_a_mutated_tape_is_refused_or_runs(place, length, new):
    """Whatever passes the checks can be executed."""
    try:
        tape = Tape.from_text(TAPE_TEXT[:place] + new + TAPE_TEXT[place + length :])
    except ValueError:
        return
    inputs = [np.ones((3, 4)) if one.kind == "vector" else np.ones(3) for one in tape.inputs]
    assert len(evaluate(tape, inputs)) == len(tape.outputs)


def test_cost():
    cost = Tape.from_text(text()).cost()
    assert cost.bytes == 8 * (
        4 + 4 + 4 + 16
    )  # p, q, the vector and the matrix; the shared and the summed are not per event
    assert cost.flops == 7 + 1 + 1 + 4
    assert cost.operations == {
        "load_vector": 2,
        "load_scalar": 1,
        "dot": 1,
        "store_scalar": 1,
        "mul": 1,
        "add_constant": 1,
        "vscale": 1,
        "store_vector": 1,
        "store_row": 4,
    }
    assert (cost.vectors, cost.scalars) == (3, 2)
    assert Tape.from_text(text()).cost(itemsize=4).bytes == cost.bytes / 2
    assert str(cost).splitlines() == [
        "224 bytes and 13 floating-point operations per event",
        "3 vector and 2 scalar registers",
        "1 add_constant, 1 dot, 1 load_scalar, 2 load_vector, 1 mul, "
        "4 store_row, 1 store_scalar, 1 store_vector, 1 vscale",
    ]


def test_flops_of_every_opcode():
    """Counted from the expressions of the table."""
    signs = {"+": 1, "-": 1, "*": 1, "/": 1}
    for op in OPCODES:
        expression = op.meaning.partition("=")[2] if op.name == "cross" else op.meaning
        if op.name == "cross":
            assert op.flops == 6 * 3 + 4 * 5
        elif op.name in ("neg", "vneg", "vlower") or op.name.startswith(
            ("load", "store", "pack", "comp", "unit", "const")
        ):
            assert op.flops == 0
        elif op.name == "sqrt":
            assert op.flops == 1
        else:
            each, _, once = expression.replace("1 / a", "/").partition(" with s = ")
            count = [sum(signs.get(c, 0) for c in part) for part in (each, once)]
            assert op.flops == count[0] * (4 if op.result == "v" else 1) + count[1]


def test_prints():
    tape = Tape.from_text(text())
    assert str(tape).splitlines() == [
        "input 0: p, vector",
        "input 1: q, vector",
        "input 2: x, scalar shared",
        "output 0: vector",
        "output 1: scalar summed",
        "output 2: matrix",
        "v0 = load_vector i0",
        "v1 = load_vector i1",
        "s0 = load_scalar i2",
        "s1 = dot v0 v1",
        "store_scalar o1 s1",
        "s1 = mul s0 s0",
        "s0 = add_constant s1 1/3",
        "v2 = vscale s0 v0",
        "store_vector o0 v2",
        *(f"store_row o2 c{n} v1" for n in range(4)),
    ]
    assert repr(tape) == "<Tape: 3 inputs, 3 outputs, 13 operations>"


def test_a_tape_runs_as_it_says():
    """The executor against plain NumPy, in the order of the text."""
    rng = np.random.default_rng(2)
    p = rng.normal(size=(4, 100, 4)) + np.array([0, 0, 0, 5])
    assert np.array_equal(waves.phif222(*p), evaluate(waves.phif222.tape, p)[0])
