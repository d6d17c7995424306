"""Random amplitudes against dense NumPy, and the symmetries that every amplitude has."""

from fractions import Fraction
from string import ascii_lowercase
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

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
        rank = draw(st.sampled_from([r for r in ranks if total + r <= budget]))
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
