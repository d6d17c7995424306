"""Does a test fail when a line is wrong? `python mutations.py` makes each of the changes below and sees.

Each change is made in a copy of the source tree, C is built again there, and the tests named for it are run. The exit
status is that of a failure if a change survives its tests, if it does not fit the source any more, or if the tests fail
without it. Needs the packages that the build and the tests need.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
NOT_COPIED = (".*", "build", "dist", "__pycache__", "*.egg-info", "*.so", "_executor.c", "opcodes.h", "straight.h")
PLACES = {"fastcov": "fastcov", "kernels": "fastcov/kernels", "cpu": "fastcov/cpu"}
SECONDS = 600
PATIENCE, LEAST_SECONDS = 10, 60  # so many times as long as without the mutation: it hangs
STRAIGHT = "phif001,phif021,phif201,phif222,phif243,phif021 vjp"  # enough for the tests of straight-line code below

CONTRACT = ("test_contract.py", "test_tensors.py")
DERIVATIVE = ("test_derivative.py",)
GRAPH = ("test_graph.py", "test_polynomial.py")
DEEP = ("test_deep.py",)
ASSEMBLE = ("test_assemble.py",)
TAPE = ("test_tape.py",)
CPU = ("test_cpu.py",)
EMITTED = (
    "test_straight.py::test_bits_of_the_interpreter[phif222]",
    "test_straight.py::test_bits_of_the_interpreter[phif021 vjp]",
    "test_straight.py::test_layouts",
    "test_straight.py::test_chosen_components",
    "test_straight.py::test_order_of_components",
)
INTERPRETED_BOUNDS = ("test_bounds.py", "-k", "interpreted")
STRAIGHT_BOUNDS = ("test_bounds.py", "-k", "straight and wave")
SCHEDULE = ("test_codegen.py",)
FORK = ("test_processes.py", "-k", "fork")
KERNELS = ("test_kernels.py",)


class Mutation(NamedTuple):
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.file}: {' '.join(self.old.split())}  ->  {' '.join(self.new.split())}"


MUTATIONS = [
    # The algebra
    Mutation("fastcov/contract.py", "sign = -1 if spin % 2 else 1", "sign = 1", CONTRACT),
    Mutation("fastcov/contract.py", "c /= -(2 * spin + 1 - 2 * k)", "c /= -(2 * spin + 3 - 2 * k)", CONTRACT),
    Mutation(
        "fastcov/contract.py",
        "Fraction(-(2 * spin + 1), 2 * spin - 1)",
        "Fraction(2 * spin + 1, 2 * spin - 1)",
        CONTRACT,
    ),
    Mutation(
        "fastcov/contract.py",
        "return [(polynomial.constant(3), [])]",
        "return [(polynomial.constant(4), [])]",
        CONTRACT,
    ),
    Mutation("fastcov/contract.py", "-2 if flipped else 4", "2 if flipped else 4", CONTRACT),
    Mutation("fastcov/contract.py", "(-1) ** small.spin", "(-1) ** big.spin", CONTRACT),
    Mutation("fastcov/contract.py", "sign *= (-1) ** (len(slots) - k)", "sign *= (-1) ** k", CONTRACT),
    Mutation("fastcov/contract.py", "weight = -factorial(len(common))", "weight = factorial(len(common))", CONTRACT),
    Mutation("fastcov/contract.py", "sign *= (-1) ** (k - n)", "sign *= 1", CONTRACT),
    Mutation(
        "fastcov/contract.py",
        "(polynomial.constant(2), [Vector(u, a)",
        "(polynomial.constant(1), [Vector(u, a)",
        CONTRACT,
    ),
    Mutation(
        "fastcov/contract.py",
        "(_inverse_square(p), -1), [Vector(p, slot)",
        "(_inverse_square(p), 1), [Vector(p, slot)",
        CONTRACT,
    ),
    Mutation(
        "fastcov/contract.py",
        "q = b.p.graph.vlower(b.p) if b.p is not None and a.flipped else b.p",
        "q = b.p",
        CONTRACT,
    ),
    Mutation("fastcov/contract.py", "a.flipped != b.flipped", "a.flipped", CONTRACT),
    Mutation(
        "fastcov/contract.py",
        "(first, partner)))), rest] += many * ways",
        "(first, partner)))), rest] += ways",
        CONTRACT,
    ),
    Mutation(
        "fastcov/contract.py",
        "slot not in left.open or slot not in right.open",
        "slot not in left.open and slot not in right.open",
        CONTRACT,
    ),
    Mutation("fastcov/contract.py", "node = graph.vlower(v) if metric.flipped else v", "node = v", CONTRACT),
    Mutation("fastcov/contract.py", "end = graph.vlower(p) if flipped else p", "end = p", CONTRACT),
    Mutation("fastcov/contract.py", "if counts[letter] > 2:", "if counts[letter] > 3:", CONTRACT),
    # Derivatives
    Mutation("fastcov/derivative.py", "scalar(b, graph.neg(c))", "scalar(b, c)", DERIVATIVE),
    Mutation("fastcov/derivative.py", "graph.neg(graph.mul(part, node))", "graph.mul(part, node)", DERIVATIVE),
    Mutation(
        "fastcov/derivative.py",
        "scalar(a, graph.neg(graph.mul(c, graph.mul(node, node))))",
        "scalar(a, graph.neg(graph.mul(c, node)))",
        DERIVATIVE,
    ),
    Mutation(
        "fastcov/derivative.py",
        "scalar(a, graph.div(c, graph.scaled(node, 2)))",
        "scalar(a, graph.div(c, node))",
        DERIVATIVE,
    ),
    Mutation("fastcov/derivative.py", "(v, (u, w), 1)", "(v, (u, w), -1)", DERIVATIVE),
    Mutation(
        "fastcov/derivative.py",
        "graph.scaled(graph.neg(_along(graph, p, v)), factor)",
        "graph.scaled(_along(graph, p, v), factor)",
        DERIVATIVE,
    ),
    Mutation(
        "fastcov/derivative.py",
        "vector(p, graph.neg(_along(graph, p, c)), node)",
        "vector(p, _along(graph, p, c), node)",
        DERIVATIVE,
    ),
    Mutation(
        "fastcov/derivative.py",
        "return graph.vsub(graph.vscaled(dv, f), turned)",
        "return graph.vadd(graph.vscaled(dv, f), turned)",
        DERIVATIVE,
    ),
    Mutation("fastcov/derivative.py", "lowered = graph.vlower(c)", "lowered = c", DERIVATIVE),
    Mutation("fastcov/derivative.py", "graph.scaled(graph.dot(a, d(a)), 2)", "graph.dot(a, d(a))", DERIVATIVE),
    Mutation(
        "fastcov/derivative.py",
        "graph.vlower(graph.pack(*self.components[node]))",
        "graph.pack(*self.components[node])",
        DERIVATIVE,
    ),
    Mutation("fastcov/derivative.py", "total or one.shared", "total", DERIVATIVE),
    Mutation("fastcov/derivative.py", "vector(b, graph.neg(s), c)", "vector(b, s, c)", DERIVATIVE),
    # Nodes and coefficients
    Mutation("fastcov/polynomial.py", "min(p, powers[n]) if p > 0 else max(p, powers[n])", "min(p, powers[n])", GRAPH),
    Mutation("fastcov/polynomial.py", "sign = -1 if polynomials[0][first] < 0 else 1", "sign = 1", GRAPH),
    Mutation("fastcov/polynomial.py", "c / value for m, c", "c for m, c", GRAPH),
    Mutation("fastcov/graph.py", "self.power(self.reciprocal(a), -exponent)", "self.power(a, -exponent)", GRAPH),
    Mutation("fastcov/graph.py", "product = part if a.args[0] == 3 else self.neg(part)", "product = part", GRAPH),
    Mutation("fastcov/graph.py", "if spelt else self.digest()", 'if spelt else self.id.to_bytes(4, "big")', DEEP),
    Mutation("fastcov/assemble.py", "set(product.args) == {p, v}", "p in product.args", ASSEMBLE),
    Mutation("fastcov/assemble.py", 'product.op == "dot" and uses[product] == 1', 'product.op == "dot"', ASSEMBLE),
    Mutation("fastcov/assemble.py", 'along.op == "mul" and uses[along] == 1', 'along.op == "mul"', ASSEMBLE),
    Mutation("fastcov/assemble.py", '"vsub" if op == "vadd" else "vadd"', "op", ASSEMBLE),
    Mutation("fastcov/assemble.py", '"vscale" and uses[node] == 1', '"vscale"', ASSEMBLE),
    Mutation("cpu/block.h", "(cx * ax + cy * ay)) * b[k];", "(cx * ax + cy * ay)) / b[k];", CPU),
    Mutation("fastcov/assemble.py", "parts.append(Fraction(1, 2**900))", "parts.append(Fraction(1, 2**1100))", DEEP),
    Mutation("fastcov/graph.py", " and is_ordinary(a.args[1] * value)", "", DEEP),
    Mutation("fastcov/graph.py", "self.add(self.neg(b), a) if a.args[0]", "self.add(b, a) if a.args[0]", GRAPH),
    Mutation("fastcov/graph.py", '(v.op == "cross" and p in v.args)', '(v.op == "cross")', GRAPH),
    Mutation("fastcov/graph.py", "sign = -sign", "sign = 1", GRAPH),
    Mutation("fastcov/graph.py", '"vadd" if weight > 0 else "vsub"', '"vadd"', GRAPH),
    Mutation(
        "fastcov/graph.py",
        'return factor, self._node("transverse"',
        'return Fraction(1), self._node("transverse"',
        GRAPH,
    ),
    Mutation("fastcov/graph.py", 'self._node("mul", *sorted((a, b), key=_key))', 'self._node("mul", a, b)', GRAPH),
    # Tapes
    Mutation("fastcov/tape.py", "or not written[kind][x]", "", TAPE),
    Mutation("fastcov/tape.py", "if kind == op.result and x == row[1]:", "if False:", TAPE),
    Mutation("fastcov/tape.py", "if place in stored:", "if False:", TAPE),
    Mutation("fastcov/tape.py", 'type(data["fastcov_tape"]) is not int or ', "", TAPE),
    Mutation("fastcov/tape.py", "len(row) != 1 + len(op.result)", "len(row) < 1 + len(op.result)", TAPE),
    Mutation("fastcov/tape.py", "missing := wanted - stored", "missing := stored - wanted", TAPE),
    Mutation("fastcov/opcodes.py", '"s", "ss", 1, "a / b"', '"s", "ss", 2, "a / b"', TAPE),
    Mutation("cpu/_executor.pyx", "if not 0 <= x < limits[kind]:", "if x >= limits[kind]:", CPU),
    # The interpreter
    Mutation(
        "cpu/block.h",
        "(E(a) * E(b) - Z(a) * Z(b)) - (X(a) * X(b) + Y(a) * Y(b))",
        "E(a) * E(b) - Z(a) * Z(b) - X(a) * X(b) - Y(a) * Y(b)",
        CPU,
    ),
    Mutation("cpu/block.h", "d[i] = a[i] - s * c[i]", "d[i] = a[i] + s * c[i]", CPU),
    Mutation("cpu/block.h", "(az * yE - ay * zE) - aE * yz", "(az * yE - ay * zE) + aE * yz", CPU),
    Mutation("cpu/block.h", "d[k] = -a[k]", "d[k] = (REAL)0 - a[k]", CPU),
    Mutation("cpu/block.h", "m == op->operands[0]", "m >= op->operands[0]", CPU),
    Mutation("cpu/block.h", "lanes[m * BLOCK + l] += (double)", "lanes[m * BLOCK + l] = (double)", CPU),
    Mutation("cpu/block.h", "(w->events + LANES - 1) / LANES", "w->events / LANES", CPU),
    Mutation("cpu/memory.h", "places[i][l] = (REAL)event[i];", "places[i][l] = (REAL)event[3 - i];", CPU),
    Mutation(
        "cpu/memory.h",
        "for (; l + COUNT <= events; l += COUNT) {\n        MEMORY(reals) rows[4];\n        MEMORY(read_events)",
        "for (; l < events; l += COUNT) {\n        MEMORY(reals) rows[4];\n        MEMORY(read_events)",
        INTERPRETED_BOUNDS,
    ),
    Mutation("cpu/memory.h", "to[1] = HIGH(low_even, low_odd);", "to[1] = LOW(high_even, high_odd);", CPU),
    Mutation(
        "cpu/executor.h",
        "even &= strides[last] == strides[d] * j->shape[d];",
        "even = strides[last] == strides[d] * j->shape[d];",
        CPU,
    ),
    Mutation("cpu/executor.h", "o->packed &= o->columns[0].strides[last] == event || j->shape[last] == 1;", "", CPU),
    Mutation("cpu/executor.h", "        if (count & 1)\n", "", CPU),
    Mutation("cpu/_executor.pyx", "and not _forked", "", FORK),
    Mutation("fastcov/locks.py", "os.register_at_fork(after_in_child=_renew)", "pass", FORK),
    # Straight-line code
    Mutation("cpu/straight_line.h", "if (o->order[i] != i)", "if (0)", EMITTED),
    Mutation(
        "cpu/straight_line.h",
        "const ptrdiff_t stop = end - (end - first) % LANES;",
        "const ptrdiff_t stop = end;",
        STRAIGHT_BOUNDS,
    ),
    Mutation("cpu/straight_line.h", "same &= fits && c->strides[0] == 0;", "same &= fits;", EMITTED),
    Mutation(
        "cpu/straight_line.h",
        "const char *data = c->data + event * c->strides[0];",
        "const char *data = c->data;",
        EMITTED,
    ),
    Mutation("cpu/straight_line.h", "        if (!c->data)\n            continue;\n", "", EMITTED),
    Mutation("cpu/straight_line.h", "copy[from.operand->order[i]] = rows[i];", "copy[i] = rows[i];", EMITTED),
    Mutation("cpu/straight_line.h", "copy[to.operand->order[i]]", "copy[i]", EMITTED),
    Mutation("cpu/codegen/emit.py", "lambda a, s, b: a - s * b,", "lambda a, s, b: a + s * b,", EMITTED),
    Mutation(
        "cpu/codegen/emit.py",
        "(a[3] * b[3] - a[2] * b[2]) - (a[0] * b[0] + a[1] * b[1])",
        "a[3] * b[3] - a[2] * b[2] - a[0] * b[0] - a[1] * b[1]",
        EMITTED,
    ),
    Mutation("cpu/codegen/emit.py", "(z * yE - y * zE) - E * yz,", "(z * yE - y * zE) + E * yz,", EMITTED),
    Mutation("cpu/codegen/emit.py", "return -x, -y, -z, energy", "return -x, -y, -z, -energy", EMITTED),
    Mutation(
        "cpu/codegen/emit.py",
        "(REAL){float(tape.constants[x]).hex()}",
        "(REAL){float(tape.constants[x]):.15g}",
        EMITTED,
    ),
    Mutation("cpu/codegen/schedule.py", "if live >= registers:", "if live > 99 * registers:", SCHEDULE),
    Mutation("cpu/codegen/schedule.py", "ahead[n], -n)", "-n)", SCHEDULE),
    # The GPU's kernel, interpreted
    Mutation(
        "kernels/tape_kernel.py",
        "result = (ae * be - az * bz) - (ax * bx + ay * by)",
        "result = ae * be - az * bz - ax * bx - ay * by",
        KERNELS,
    ),
    Mutation("kernels/tape_kernel.py", "(ax - factor * bx,", "(ax + factor * bx,", KERNELS),
    Mutation("kernels/tape_kernel.py", "(ay * xz - ax * yz) - az * xy,", "(ay * xz - ax * yz) + az * xy,", KERNELS),
    Mutation("kernels/tape_kernel.py", "tl.where(inside, value, 0.0)", "value", KERNELS),
    Mutation("kernels/tape_kernel.py", "pointers[C[i]] + event * 2", "pointers[C[i]] + event", KERNELS),
]


def is_built(mutation: Mutation) -> bool:
    return mutation.file.startswith("cpu/")


def copy_tree(target: Path) -> None:
    shutil.copytree(ROOT, target, ignore=shutil.ignore_patterns(*NOT_COPIED))


def build(tree: Path) -> bool:
    """Put the package into tree/site."""
    command = [sys.executable, "setup.py", "--quiet", "build", "--build-lib", "site"]
    environment = os.environ | {"FASTCOV_STRAIGHT": STRAIGHT}
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, check=False).returncode == 0


def passes(tree: Path, tests: tuple[str, ...], seconds: float = SECONDS) -> bool:
    """Whether the tests pass with the package in tree/site. A crash and a hang, after so long, are failures."""
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(tree / "site")}
    if tests == KERNELS:
        environment["TRITON_INTERPRET"] = "1"
    try:
        done = subprocess.run(
            command, cwd=tree / "tests", env=environment, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def seconds_without(sound: Path, tests: tuple[str, ...]) -> float | None:
    """How long the tests take on the unchanged tree, or None if they fail."""
    start = time.monotonic()
    return time.monotonic() - start if passes(sound, tests) else None


def outcome(mutation: Mutation, sound: Path, seconds: float) -> str:
    """ "caught", or what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        copy_tree(tree)
        file = tree / mutation.file
        text = file.read_text()
        if mutation.old not in text:
            return "NOT FOUND"
        changed = text.replace(mutation.old, mutation.new, 1)
        if is_built(mutation):
            file.write_text(changed)
            if not build(tree):
                return "NOT BUILT"
        else:
            shutil.copytree(sound / "site", tree / "site")
            package, _, name = mutation.file.partition("/")
            (tree / "site" / PLACES[package] / name).write_text(changed)
        return "SURVIVED" if passes(tree, mutation.tests, seconds) else "caught"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutations whose line has one of these in it")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    chosen = [m for m in MUTATIONS if not options.words or any(word in str(m) for word in options.words)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        sound = Path(folder) / "tree"
        copy_tree(sound)
        if not build(sound):
            sys.exit("the unchanged tree does not build")
        selections = sorted({m.tests for m in chosen})
        seconds = dict(zip(selections, pool.map(lambda tests: seconds_without(sound, tests), selections), strict=True))
        for tests in selections:
            if seconds[tests] is None:
                sys.exit(f"fails without a mutation: {' '.join(tests)}")
        limits = {tests: max(PATIENCE * seconds[tests], LEAST_SECONDS) for tests in selections}
        outcomes = []
        words = pool.map(lambda m: outcome(m, sound, limits[m.tests]), chosen)
        for mutation, word in zip(chosen, words, strict=True):
            print(f"{word:9} {mutation}", flush=True)
            outcomes.append(word)
    print(f"{outcomes.count('caught')} of {len(outcomes)} mutations caught")
    return int(outcomes.count("caught") < len(outcomes))


if __name__ == "__main__":
    sys.exit(main())
