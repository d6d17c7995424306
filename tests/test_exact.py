"""The exact waves against identities that hold without any rounding, and against the dense reference."""

from fractions import Fraction

import exact
import numpy as np
import pytest

from fastcov import reference
from fastcov.phasespace import psi2s_kkpipi

DEGREES = {"phif243": 7, "phif201": 3}
EVENTS = 20


@pytest.fixture(scope="module")
def momenta():
    return psi2s_kkpipi(EVENTS, seed=3)


@pytest.fixture(scope="module", params=DEGREES)
def wave(request, momenta):
    """Name, and the exact result of each event."""
    function = getattr(exact, request.param)
    return request.param, [function(*(p[n] for p in momenta)) for n in range(EVENTS)]


def minkowski(a, b):
    return a[3] * b[3] - a[0] * b[0] - a[1] * b[1] - a[2] * b[2]


def test_agrees_with_the_reference(wave, momenta):
    name, results = wave
    wanted = np.array([[float(x) for x in result.value] for result in results])
    error = np.abs(reference.waves[name](*momenta, barrier=False) - wanted).max(axis=1)
    assert np.all(error <= 1e-12 * np.abs(wanted).max(axis=1))


def test_is_homogeneous(wave):
    """Euler: the sum over inputs of x df/dx is the degree times f."""
    name, results = wave
    for result in results:
        for value, row in zip(result.value, result.derivative, strict=True):
            assert sum(x * d for x, d in zip(result.inputs, row, strict=True)) == DEGREES[name] * value


def test_is_transverse(wave, momenta):
    """phif243 is orthogonal to psi, phif201 to f."""
    name, results = wave
    parents = momenta if name == "phif243" else momenta[2:]
    for n, result in enumerate(results):
        parent = [sum(Fraction(p[n, component]) for p in parents) for component in range(4)]
        assert minkowski(parent, result.value) == 0


def test_derivatives_are_central_differences(wave):
    """In exact arithmetic the step can be so small that its square is nothing."""
    name, results = wave
    step = Fraction(1, 2**100)
    result = results[0]
    for n in range(16):
        ends = []
        for sign in (1, -1):
            inputs = list(result.inputs)
            inputs[n] += sign * step
            ends.append(getattr(exact, name)(*(inputs[k : k + 4] for k in range(0, 16, 4))).value)
        for up, down, row in zip(*ends, result.derivative, strict=True):
            largest = max(abs(d) for d in row)
            assert abs((up - down) / (2 * step) - row[n]) < Fraction(1, 2**150) * largest


def test_condition_number(wave, momenta):
    """At least the degree times the largest component, and as homogeneous as the wave itself."""
    name, results = wave
    degree = DEGREES[name]
    for n, result in enumerate(results):
        assert result.condition() >= degree * max(abs(x) for x in result.value)
        doubled = getattr(exact, name)(*(2 * p[n] for p in momenta))
        assert doubled.condition() == 2**degree * result.condition()


def test_single_precision_inputs_are_exact(momenta):
    narrow = [p[0].astype(np.float32) for p in momenta]
    assert exact.phif201(*narrow) == exact.phif201(*(p.astype(np.float64) for p in narrow))
