"""Random amplitudes against dense NumPy, and the symmetries that every amplitude has."""

from fractions import Fraction
from functools import reduce
from itertools import pairwise, permutations
from string import ascii_lowercase
from typing import NamedTuple

import numpy as np
import tape_exact
from hypothesis import assume, given
from hypothesis import strategies as st
from tape_numpy import evaluate

import fastcov as fc
from fastcov import reference, waves
from fastcov.phasespace import psi2s_kkpipi

EVENTS = 3
VECTORS = 4
EPS = np.finfo(float).eps
ROUNDINGS = 1000  # that may add up in one amplitude, relative to the sum of the absolute values of its terms


def momenta(seed, count=VECTORS, events=EVENTS):
    """Time-like momenta, not far from rest."""
    rng = np.random.default_rng(seed)
    p = rng.normal(size=(count, events, 4))
    p[..., 3] = np.sqrt(np.sum(p[..., :3] ** 2, axis=-1) + rng.uniform(0.5, 2, (count, events)) ** 2)
    return p


class Dense(NamedTuple):
    """Components of a tensor and, beside them, the size of what was added up to make them."""

    value: np.ndarray
    size: np.ndarray
    lower: tuple[bool, ...]


def exact(value, lower=None):
    value = np.asarray(value, dtype=float)
    return Dense(value, np.abs(value), (False,) * (value.ndim - 1) if lower is None else lower)


def dense_einsum(spec, operands, plain):
    """The contraction of components, written from the rule in the documentation."""
    words, output = spec.split("->")
    words = words.split(",")
    seen = {}
    extra = []
    names = iter("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    position = {}
    for n, (word, operand) in enumerate(zip(words, operands, strict=True)):
        letters = list(word)
        for k, letter in enumerate(word):
            position[letter] = operand.lower[k]
            if letter in seen and not plain and seen[letter] == operand.lower[k]:
                letters[k] = next(names)
                extra.append(letter + letters[k])
            seen.setdefault(letter, operand.lower[k])
        words[n] = "".join(letters)
    spec = ",".join(["..." + w for w in words] + extra) + "->..." + output
    metric = np.diag([-1.0, -1, -1, 1])
    value = np.einsum(spec, *[o.value for o in operands], *[metric] * len(extra), optimize="greedy")
    size = np.einsum(spec, *[o.size for o in operands], *[np.eye(4)] * len(extra), optimize="greedy")
    return Dense(value, size, tuple(position[letter] for letter in output))


# A description of a tensor is (kind, ...); `engine` and `dense` read it, one with symbols or arrays, one in components.


def combined(weights, vectors):
    total = None
    for weight, vector in zip(weights, vectors, strict=True):
        if weight:
            part = vector if weight == 1 else vector * weight
            total = part if total is None else total + part
    return total


def engine(description, vectors):
    match description:
        case ("vector", weights):
            return combined(weights, vectors)
        case ("metric",):
            return fc.metric()
        case ("epsilon",):
            return fc.levi_civita()
        case ("transverse", p):
            return fc.transverse(combined(p, vectors))
        case ("projector", spin, p):
            return fc.projector(spin, combined(p, vectors))
        case ("orbital", spin, p, r):
            return fc.orbital(spin, combined(p, vectors), combined(r, vectors))
        case ("lower", inner):
            return fc.lower(engine(inner, vectors))
        case ("scaled", number, (a, b), inner):
            return fc.dot(combined(a, vectors), combined(b, vectors)) * number * engine(inner, vectors)
        case ("sum", number, one, other):
            return engine(one, vectors) - number * engine(other, vectors)
        case ("einsum", spec, operands, plain):
            parts = [engine(o, vectors) for o in operands]
            return fc.einsum(spec, *parts, metric=None if plain else "lorentz")
    raise AssertionError(description)


def dense(description, vectors):
    match description:
        case ("vector", weights):
            return exact(np.tensordot(weights, vectors, 1))
        case ("metric",):
            return exact(np.broadcast_to(reference.metric(), (EVENTS, 4, 4)))
        case ("epsilon",):
            return exact(np.broadcast_to(-reference.levi_civita(), (EVENTS, 4, 4, 4, 4)))
        case ("transverse", p):
            return exact(reference.transverse(np.tensordot(p, vectors, 1)))
        case ("projector", spin, p):
            p = np.tensordot(p, vectors, 1)
            return exact(np.stack([reference.projector(spin, one) for one in p]))
        case ("orbital", spin, p, r):
            p, r = np.tensordot(p, vectors, 1), np.tensordot(r, vectors, 1)
            tensor = exact(reference.orbital(spin, p, r))
            length = np.sqrt(np.abs(reference.dot(p, p)))
            span = np.sqrt(np.sum(p**2, -1)) / length
            scale = (np.sqrt(np.sum(r**2, -1)) * span**2) ** spin
            return tensor._replace(size=tensor.size + scale.reshape(-1, *(1,) * spin))
        case ("lower", inner):
            inner = dense(inner, vectors)
            rank = inner.value.ndim - 1
            return inner._replace(value=reference.lower(inner.value, rank), lower=(True,) * rank)
        case ("scaled", number, (a, b), inner):
            inner = dense(inner, vectors)
            a, b = np.tensordot(a, vectors, 1), np.tensordot(b, vectors, 1)
            shape = (-1,) + (1,) * (inner.value.ndim - 1)
            factor = (reference.dot(a, b) * float(number)).reshape(shape)
            size = (np.sum(np.abs(a * b), -1) * abs(float(number))).reshape(shape)
            return inner._replace(value=inner.value * factor, size=inner.size * size)
        case ("sum", number, one, other):
            one, other = dense(one, vectors), dense(other, vectors)
            value = one.value - float(number) * other.value
            return one._replace(value=value, size=one.size + abs(float(number)) * other.size)
        case ("einsum", spec, operands, plain):
            return dense_einsum(spec, [dense(o, vectors) for o in operands], plain)
    raise AssertionError(description)


NUMBERS = st.sampled_from([1, -1, 2, Fraction(1, 3), -2.5])
COMBINATIONS = st.lists(st.sampled_from([0, 0, 1, -1, 2]), min_size=VECTORS, max_size=VECTORS).filter(any).map(tuple)
TIME_LIKE = st.lists(st.sampled_from([0, 1, 1, 3]), min_size=VECTORS, max_size=VECTORS).filter(any).map(tuple)


@st.composite
def tensors(draw, rank):
    """A description of a tensor of this rank, all indices upper."""
    kinds = {
        0: ["orbital"],
        1: ["vector", "vector", "orbital"],
        2: ["orbital", "transverse", "metric", "projector", "sum"],
        3: ["orbital"],
        4: ["orbital", "epsilon", "projector", "sum"],
        6: ["projector"],
        8: ["projector"],
    }[rank]
    kind = draw(st.sampled_from(kinds))
    if draw(st.integers(0, 5)) == 5:
        inner = draw(tensors(rank))
        return "scaled", draw(NUMBERS), (draw(COMBINATIONS), draw(COMBINATIONS)), inner
    match kind:
        case "vector":
            return kind, draw(COMBINATIONS)
        case "orbital":
            return kind, rank, draw(TIME_LIKE), draw(COMBINATIONS)
        case "transverse":
            return kind, draw(TIME_LIKE)
        case "projector":
            return kind, rank // 2, draw(TIME_LIKE)
        case "sum":
            return kind, draw(NUMBERS), draw(tensors(rank)), draw(tensors(rank))
    return (kind,)


@st.composite
def contractions(draw, rank_limit, ranks=(0, 1, 1, 2, 2, 3, 4, 4, 6, 8), budget=12):
    """A description of an einsum of up to four operands whose output has at most this rank."""
    operands, words = [], []
    total = 0
    for _ in range(draw(st.integers(1, 4))):
        fitting = [r for r in ranks if total + r <= budget]
        if not fitting:
            break
        rank = draw(st.sampled_from(fitting))
        total += rank
        operand = draw(tensors(rank))
        if draw(st.booleans()):
            operand = ("lower", operand)
        operands.append(operand)
        words.append(rank)
    slots = draw(st.permutations(range(total)))
    pairs = draw(st.integers(max(0, (total - rank_limit + 1) // 2), total // 2))
    names = [""] * total
    for n in range(pairs):
        names[slots[2 * n]] = names[slots[2 * n + 1]] = ascii_lowercase[n]
    free = []
    for n, slot in enumerate(slots[2 * pairs :]):
        names[slot] = ascii_lowercase[pairs + n]
        free.append(names[slot])
    letters = iter(names)
    spec = ",".join("".join(next(letters) for _ in range(rank)) for rank in words)
    return "einsum", f"{spec}->{''.join(free)}", tuple(operands), draw(st.booleans())


def assert_close(got, wanted):
    assert got.shape == wanted.value.shape
    largest = wanted.size.max(axis=tuple(range(1, wanted.size.ndim)), keepdims=True)
    assert np.all(np.abs(got - wanted.value) <= ROUNDINGS * EPS * largest)


def evaluated(description, vectors):
    """What a fused function makes of it."""
    return fc.fused(lambda a, b, c, d: engine(description, [a, b, c, d]))(*vectors)


def needs_a_vector(description):
    """Whether it sums components of constant tensors, an epsilon among them, as they stand: see test_contract.py."""
    words = repr(description)
    return (
        "epsilon" in words
        and "True" in words
        and not any(k in words for k in ("vector", "orbital", "transverse", "projector", "scaled"))
    )


@given(contractions(rank_limit=2), st.integers(0, 2**32 - 1))
def test_random_contractions(description, seed):
    assume(not needs_a_vector(description))
    vectors = momenta(seed)
    assert_close(evaluated(description, vectors), dense(description, vectors))


@given(contractions(rank_limit=2, ranks=(1, 2, 2, 4), budget=8), st.data())
def test_contractions_of_contractions(inner, data):
    """An einsum of the result of an einsum, whose free indices may be of both positions."""
    assume(not needs_a_vector(inner))
    rank = len(inner[1].partition("->")[2])
    letters = "abcd"[:rank]
    others = data.draw(st.lists(tensors(1), min_size=rank, max_size=rank))
    plain = data.draw(st.booleans())
    keep = data.draw(st.integers(0, rank))
    spec = ",".join([letters, *letters[keep:]]) + "->" + letters[:keep]
    description = ("einsum", spec, (inner, *others[keep:]), plain)
    vectors = momenta(data.draw(st.integers(0, 1000)))
    assert_close(evaluated(description, vectors), dense(description, vectors))


@given(contractions(rank_limit=4, ranks=(0, 1, 2, 3, 4), budget=8), st.integers(0, 2**32 - 1))
def test_random_tensors_on_arrays(description, seed):
    """The same through fc.dense, also of ranks that no fused function returns."""
    vectors = momenta(seed)
    if needs_a_vector(description):
        return
    tensor = engine(description, [fc.einsum("a->a", v) for v in vectors])
    if isinstance(tensor, Fraction):
        assert float(tensor) == dense(description, vectors).value[0]
        return
    got, wanted = fc.dense(tensor), dense(description, vectors)
    assert_close(np.broadcast_to(got, wanted.value.shape), wanted)


# Expressions of scalars and vectors, in exact arithmetic


class Dual:
    """A rational number and its derivative along the tangents."""

    def __init__(self, value, slope=0):
        self.value, self.slope = Fraction(value), Fraction(slope)

    def __add__(self, other):
        return Dual(self.value + other.value, self.slope + other.slope)

    def __sub__(self, other):
        return Dual(self.value - other.value, self.slope - other.slope)

    def __mul__(self, other):
        return Dual(self.value * other.value, self.value * other.slope + self.slope * other.value)

    def __truediv__(self, other):
        value = self.value / other.value
        return Dual(value, (self.slope - value * other.slope) / other.value)


def minkowski(a, b):
    return a[3] * b[3] - a[0] * b[0] - a[1] * b[1] - a[2] * b[2]


def cross(a, b, c):
    """epsilon^m_{nrs} a^n b^r c^s by the sum over permutations, epsilon_{xyzE} = +1."""
    total = [Dual(0)] * 4
    for m, n, r, s in permutations(range(4)):
        sign = np.linalg.det(np.eye(4)[[m, n, r, s]])
        term = a[n] * b[r] * c[s] * Dual(round(sign))
        total[m] = total[m] + term if m == 3 else total[m] - term  # the free index raised
    return total


def symbolic(expression, symbols):
    def of(part):
        return symbolic(part, symbols)

    match expression:
        case ("input", name):
            return symbols[name]
        case ("number", value):
            return fc.dot(symbols["p"], symbols["p"]) * 0 + value
        case ("+", a, b):
            return of(a) + of(b)
        case ("-", a, b):
            return of(a) - of(b)
        case ("*", a, b):
            return of(a) * of(b)
        case ("/", a, b):
            return of(a) / of(b)
        case ("**", a, n):
            return of(a) ** n
        case ("dot", a, b):
            return fc.dot(of(a), of(b))
        case ("sum", a, b):
            return fc.einsum("i,i->", of(a), of(b), metric=None)
        case ("transverse", a, b):
            return fc.einsum("ij,j->i", fc.transverse(of(a)), of(b))
        case ("cross", a, b, c):
            return fc.einsum("ijkl,j,k,l->i", fc.levi_civita(), of(a), of(b), of(c))
    raise AssertionError(expression)


def rational(expression, values):
    def of(part):
        return rational(part, values)

    match expression:
        case ("input", name):
            return values[name]
        case ("number", value):
            return Dual(value)
        case ("+" | "-" | "*" | "/" as op, a, b):
            a, b = of(a), of(b)
            function = {"+": Dual.__add__, "-": Dual.__sub__, "*": Dual.__mul__, "/": Dual.__truediv__}[op]
            if isinstance(a, list):
                return [function(x, y) for x, y in zip(a, b if isinstance(b, list) else [b] * 4, strict=True)]
            return [function(a, y) for y in b] if isinstance(b, list) else function(a, b)
        case ("**", a, n):
            base, total = of(a), Dual(1)
            for _ in range(abs(n)):
                total = total * base
            return total if n >= 0 else Dual(1) / total
        case ("dot", a, b):
            return minkowski(of(a), of(b))
        case ("sum", a, b):
            x, y, z, e = (m * n for m, n in zip(of(a), of(b), strict=True))
            return x + y + z + e
        case ("transverse", a, b):
            p, v = of(a), of(b)
            along = minkowski(p, v) / minkowski(p, p)
            return [m - along * n for m, n in zip(v, p, strict=True)]
        case ("cross", a, b, c):
            return cross(of(a), of(b), of(c))
    raise AssertionError(expression)


SMALL = st.fractions(-6, 6, max_denominator=4)
DEPTH = 4  # of an expression


def expressions(depth):
    """The strategies of scalars and of vectors."""
    scalars = st.one_of(
        st.sampled_from([("input", "x"), ("input", "y")]),
        st.tuples(st.just("number"), SMALL),
    )
    vectors = st.sampled_from([("input", name) for name in "pqr"])
    for _ in range(depth):
        scalars, vectors = (
            st.one_of(
                scalars,
                st.tuples(st.sampled_from("+-*/"), scalars, scalars),
                st.tuples(st.just("**"), scalars, st.integers(-2, 3)),
                st.tuples(st.sampled_from(["dot", "sum"]), vectors, vectors),
            ),
            st.one_of(
                vectors,
                st.tuples(st.sampled_from("+-"), vectors, vectors),
                st.tuples(st.just("*"), scalars, vectors),
                st.tuples(st.sampled_from("*/"), vectors, scalars),
                st.tuples(st.just("transverse"), vectors, vectors),
                st.tuples(st.just("cross"), vectors, vectors, vectors),
            ),
        )
    return scalars, vectors


SCALARS, FOUR_VECTORS = expressions(DEPTH)
INPUTS = {"p": 4, "q": 4, "r": 4, "x": 0, "y": 0}


def drawn_inputs(rng):
    """Small integers, the vectors' energies such that sums of them are not light-like by chance."""
    draw = {name: [Fraction(int(n)) for n in rng.integers(-9, 10, size or 1)] for name, size in INPUTS.items()}
    for name in "pqr":
        draw[name][3] += 41
    return [v if INPUTS[name] else v[0] + 13 for name, v in draw.items()]


@given(st.one_of(SCALARS, FOUR_VECTORS), st.integers(0, 10**6))
def test_random_expressions(expression, seed):
    """The tape, its vjp and its jvp are the expression and its derivatives: not nearly, but exactly."""
    rng = np.random.default_rng(seed)
    point, tangents = drawn_inputs(rng), drawn_inputs(rng)
    duals = {
        name: [Dual(*pair) for pair in zip(v, t, strict=True)] if INPUTS[name] else Dual(v, t)
        for name, v, t in zip(INPUTS, point, tangents, strict=True)
    }
    try:
        wanted = rational(expression, duals)
    except ZeroDivisionError:
        assume(False)
    wanted = wanted if isinstance(wanted, list) else [wanted]

    def function(p, q, r, x: fc.Scalar, y: fc.Scalar):
        return symbolic(expression, {"p": p, "q": q, "r": r, "x": x, "y": y})

    fused = fc.fused(function)
    try:
        tape = fused.tape
    except ZeroDivisionError:
        assume(False)

    def components(value):
        return np.atleast_1d(value).tolist()

    try:
        (value,) = tape_exact.evaluate(tape, point)
        (pushed,) = tape_exact.evaluate(fused.jvp.tape, [*point, *tangents])
        cotangent = [Fraction(int(n)) for n in rng.integers(-9, 10, len(wanted))]
        seeded = cotangent if tape.outputs[0].kind == "vector" else cotangent[0]
        pulled = tape_exact.evaluate(fused.vjp.tape, [*point, seeded])
    except ZeroDivisionError:
        assume(False)
    assert components(value) == [w.value for w in wanted]
    assert components(pushed) == [w.slope for w in wanted]
    total = sum(np.sum(np.multiply(g, t)) for g, t in zip(pulled, tangents, strict=True))
    assert total == sum(c * w.slope for c, w in zip(cotangent, wanted, strict=True))
    arrays = [np.array(v, dtype=float) for v in point]
    with np.errstate(all="ignore"):
        assert np.array_equal(fused(*arrays), evaluate(tape, arrays)[0], equal_nan=True)


def parts_of(expression):
    """The expression and what it is made of."""
    yield expression
    for part in expression[1:]:
        if isinstance(part, tuple):
            yield from parts_of(part)


def sums(scalars, vectors):
    """Of three or four terms: in what order they are added up shows."""
    terms = st.one_of(
        st.tuples(st.just("*"), scalars, vectors),
        st.tuples(st.just("transverse"), vectors, vectors),
    )
    return st.lists(terms, min_size=3, max_size=4).map(lambda terms: reduce(lambda a, b: ("+", a, b), terms))


SUMS = sums(*expressions(1))


@given(st.one_of(SUMS, st.tuples(st.just("dot"), SUMS, SUMS)), st.integers(0, 10**6))
def test_the_same_bits_alone_and_beside_its_parts(expression, seed):
    """Whatever else is needed, also where that keeps operations apart that would be one: zeros with their signs."""
    parts = list(dict.fromkeys(parts_of(expression)))
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(parts))
    arrays = [np.array(v, dtype=float) * rng.uniform(0.5, 1.5) for v in drawn_inputs(rng)]  # zeros stay zeros

    def fused(*expressions):
        def function(p, q, r, x: fc.Scalar, y: fc.Scalar):
            return tuple(symbolic(e, {"p": p, "q": q, "r": r, "x": x, "y": y}) for e in expressions)

        return fc.fused(function)

    try:
        with np.errstate(all="ignore"):
            alone, together = fused(expression), fused(*(parts[n] for n in order))
            cotangent = rng.normal(size=np.shape(alone(*arrays)[0]))
            pairs = [(alone(*arrays)[0], together(*arrays)[list(order).index(0)])]
            gradients = alone.vjp(*arrays, cotangent=(cotangent,))
            pairs += zip(gradients, alone.value_and_vjp(*arrays, cotangent=(cotangent,))[1], strict=True)
    except ZeroDivisionError:
        assume(False)
    for a, b in pairs:
        assert np.array_equal(a, b, equal_nan=True)
        assert np.array_equal(np.signbit(a), np.signbit(b)) or np.any(np.isnan(a))


# Symmetries


def boost(rng):
    u = rng.normal(size=3)
    u *= rng.uniform(0, 1.5) / np.linalg.norm(u)
    gamma = np.sqrt(1 + u @ u)
    matrix = np.eye(4)
    matrix[:3, :3] += np.outer(u, u) / (1 + gamma)
    matrix[:3, 3] = matrix[3, :3] = u
    matrix[3, 3] = gamma
    rotation = np.eye(4)
    rotation[:3, :3] = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    rotation[:3, :3] *= np.sign(np.linalg.det(rotation))
    return rotation @ matrix


@given(contractions(rank_limit=1, ranks=(1, 2, 2, 3, 4), budget=10), st.integers(0, 2**32 - 1))
def test_covariance(description, seed):
    """A boost and a rotation of all momenta transform a scalar not at all and a vector as the momenta."""
    kind, spec, operands, _ = description
    description = kind, spec, operands, False
    vectors = momenta(seed)
    matrix = boost(np.random.default_rng(seed))
    at_rest, moved = (evaluated(description, v) for v in (vectors, vectors @ matrix.T))
    size = max(dense(description, v).size.max() for v in (vectors, vectors @ matrix.T))
    wanted = at_rest
    if wanted.ndim == 2:
        lower = dense(description, vectors).lower[0]
        flip = np.diag(reference.metric()) if lower else np.ones(4)
        wanted = ((at_rest * flip) @ matrix.T) * flip
    assert np.max(np.abs(moved - wanted)) <= 10 * ROUNDINGS * EPS * size


WAVES = (*waves.all, waves.phif4)
BATCH = psi2s_kkpipi(300, seed=17)


@given(st.sampled_from(WAVES), st.permutations(range(40)), st.sets(st.integers(1, 299), max_size=12))
def test_events_do_not_know_each_other(wave, order, cuts):
    """Permuting events permutes results, splitting a batch anywhere changes nothing, to the bit."""
    whole = wave(*BATCH)
    assert np.array_equal(wave(*[p[order] for p in BATCH]), whole[order])
    edges = [0, *sorted(cuts), 300]
    parts = [wave(*[p[a:b] for p in BATCH]) for a, b in pairwise(edges)]
    assert np.array_equal(np.concatenate(parts), whole)


@st.composite
def layouts(draw):
    """A function that gives an array (N, 4) another place in memory."""
    steps = draw(st.tuples(st.sampled_from([1, 2, 3, -1, -2]), st.sampled_from([1, 2, -1])))
    offset, shift = draw(st.integers(0, 3)), draw(st.integers(0, 7))
    byte_order, fortran = draw(st.sampled_from("<<>")), draw(st.booleans())
    frozen, columns = draw(st.booleans()), draw(st.booleans())

    def moved(a):
        shape = tuple(n * abs(step) + offset for n, step in zip(a.shape, steps, strict=True))
        dtype = a.dtype.newbyteorder(byte_order)
        memory = np.zeros(shape[0] * shape[1] * a.itemsize + shift, np.uint8)
        wide = np.ndarray(shape, dtype, memory.data, shift, order="F" if fortran else "C")
        cut = tuple(slice(offset, None, abs(step)) for step in steps)
        view = wide[cut][: len(a), :4][tuple(slice(None, None, 1 if step > 0 else -1) for step in steps)]
        view[...] = a
        if frozen:
            view.flags.writeable = False
        return tuple(view.T) if columns else view

    return moved


@given(
    st.sampled_from(WAVES), st.tuples(*[layouts()] * 4), st.sampled_from(["f4", "f8"]), st.sampled_from([1, 2, 70, 300])
)
def test_layouts(wave, moves, dtype, count):
    plain = [p[:count].astype(dtype) for p in BATCH]
    wanted = wave(*plain)
    got = wave(*[move(p) for move, p in zip(moves, plain, strict=True)])
    assert got.dtype == wanted.dtype
    assert np.array_equal(got, wanted)
