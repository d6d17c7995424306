"""Which executor runs a call, and what is refused."""

import subprocess
import sys
import types

import numpy as np
import pytest

import fastcov as fc
from fastcov import dispatch, kernels


@fc.fused
def product(p, r, s: fc.Scalar = 1.0):
    return s * fc.dot(p, r)


@pytest.fixture
def momenta():
    rng = np.random.default_rng(0)
    return rng.normal(size=(5, 4)), rng.normal(size=(5, 4))


@pytest.fixture
def arrays_of(monkeypatch):
    """Make a library of arrays that have nothing but DLPack, and return its array type."""
    module = types.ModuleType("strange")

    class Array:
        def __init__(self, values):
            self.values = values

        def __dlpack__(self, **keywords):
            return self.values.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return self.values.__dlpack_device__()

    Array.__module__ = "strange"
    module.Array = Array
    module.from_dlpack = lambda x: Array(np.from_dlpack(x))
    monkeypatch.setitem(sys.modules, "strange", module)
    return Array


def test_backends():
    report = fc.backends()
    assert list(report) == ["cpu", "triton", "triton-interpret"]
    assert "instruction set" in report["cpu"]
    for name in ("triton", "triton-interpret"):
        there, words = kernels.available(name == "triton-interpret")
        assert report[name] == (words if there else f"not available: {words}")
    assert [line.split()[0] for line in str(report).splitlines()] == list(report)


def test_a_back_end_by_name(momenta):
    np.testing.assert_array_equal(product(*momenta, backend="cpu"), product(*momenta))
    with pytest.raises(ValueError, match="'cpu', 'triton', 'triton-interpret', not 'abacus'"):
        product(*momenta, backend="abacus")


@pytest.mark.parametrize("there", [False, True])
def test_arrays_never_leave_their_device(there, momenta, monkeypatch):
    monkeypatch.setattr(kernels, "available", lambda interpret=False: (there, "no device"))
    error = ValueError if there else RuntimeError
    with pytest.raises(error, match="takes arrays on cuda devices, not on cpu" if there else "no device"):
        product(*momenta, backend="triton")
    with pytest.raises(error, match="takes arrays on cpu devices, not on cuda" if there else "no device"):
        dispatch.executor("triton-interpret", "cuda")
    with pytest.raises(ValueError, match="'cpu' takes arrays on cpu devices, not on cuda"):
        dispatch.executor("cpu", "cuda")


def test_the_automatic_choice_goes_by_device():
    assert dispatch.executor(None, "cpu") == "cpu"
    assert dispatch.executor(None, "cuda") == "triton"
    with pytest.raises(RuntimeError, match="no back end runs on mps devices"):
        dispatch.executor(None, "mps")


def test_without_torch_or_triton_the_extra_is_named(monkeypatch):
    for module in ("torch", "triton"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "fastcov.kernels.launcher", raising=False)
    monkeypatch.delattr(kernels, "launcher", raising=False)
    with pytest.raises(ImportError, match=r"fastcov\[gpu\]"):
        kernels.run(product.tape, (1,), [], [], [], [], "d")


def test_mixed_libraries(momenta):
    torch = pytest.importorskip("torch")
    p, r = momenta
    with pytest.raises(TypeError, match="p of torch, r of numpy"):
        product(torch.from_numpy(p), r)
    with pytest.raises(TypeError, match="p of numpy, r of torch"):
        product(p, tuple(torch.from_numpy(r).T))
    with pytest.raises(TypeError, match="p: a list of arrays of torch"):
        product([torch.from_numpy(p[0])], p)
    with pytest.raises(TypeError, match="out must be a NumPy array"):
        product(p, r, out=torch.empty(5))
    jnp = pytest.importorskip("jax.numpy")
    with pytest.raises(TypeError, match="p of torch, r of jax"):
        product(torch.from_numpy(p), jnp.asarray(r))


def test_numbers_and_lists_go_with_any_library(momenta):
    torch = pytest.importorskip("torch")
    p, r = momenta
    wanted = product(p, r[0], 2.5)
    for s in (2.5, np.float64(2.5), torch.tensor(2.5)):
        found = product(torch.from_numpy(p), r[0].tolist(), s)
        np.testing.assert_array_equal(found.numpy(), wanted)
    found = product(torch.from_numpy(p).float(), (0.0, 0.0, 0.0, 1.0), 2)
    assert found.dtype is torch.float32
    np.testing.assert_array_equal(found.numpy(), product(p.astype(np.float32), (0.0, 0.0, 0.0, 1.0), 2))


def test_cuda_tensors_go_to_triton(momenta, monkeypatch):
    """Without a device: what would be launched."""
    torch = pytest.importorskip("torch")
    from fastcov import torch as on_torch

    calls = []
    monkeypatch.setattr(dispatch, "executor", lambda backend, device: "triton")
    monkeypatch.setattr(kernels, "run", lambda *args: calls.append(args))
    p = torch.from_numpy(momenta[0])
    how = on_torch.How(product.tape, torch.float64, "Exyz", "xy")
    given = on_torch.arrays.arguments(product.tape.inputs, [tuple(p.T), p, 2.0], on_torch._checked, torch.float64)
    (result,) = on_torch._executed(how, given)
    (tape, shape, inputs, input_axes, outputs, output_axes, compute, interpret) = calls[0]
    assert (tape, shape, compute, interpret) == (product.tape, (5,), "d", False)
    assert input_axes == [(1, 2, 3, 0)] * 3
    assert output_axes == [(0, 1, -1, -1)]
    assert [type(x) for x in inputs] == [tuple, torch.Tensor, torch.Tensor]
    assert outputs[0] is result


def test_dlpack_there_and_back(arrays_of, momenta):
    p, r = map(arrays_of, momenta)
    result = product(p, r)
    assert type(result) is arrays_of
    np.testing.assert_array_equal(result.values, product(*momenta))
    pair = fc.fused(lambda p, r: {"sum": p + r, "parts": fc.dot(p, r)})
    found = pair(p, r)
    assert {name: type(part) for name, part in found.items()} == {"sum": arrays_of, "parts": arrays_of}
    for rank in (2, 3):
        tensor = fc.dense(fc.orbital(rank, p, r))
        assert type(tensor) is arrays_of
        np.testing.assert_array_equal(tensor.values, fc.dense(fc.orbital(rank, *momenta)))
    out = arrays_of(np.full(5, np.nan))
    assert product(p, r, out=out) is out
    np.testing.assert_array_equal(out.values, product(*momenta))
    with pytest.raises(TypeError, match="p of strange, r of numpy"):
        product(p, momenta[1])


def test_import_leaves_other_libraries_alone():
    script = """
import sys, numpy as np, fastcov as fc
f = fc.fused(lambda p: fc.dot(p, p))
f(np.ones((2, 4))), f.vjp(np.ones((2, 4)), cotangent=np.ones(2))
assert not {"torch", "jax", "triton", "fastcov.torch", "fastcov.jax"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_torch_is_imported_without_its_compiler():
    pytest.importorskip("torch")
    script = """
import sys, torch, fastcov as fc
f = fc.fused(lambda p: fc.dot(p, p))
f(torch.ones(2, 4, requires_grad=True)).sum().backward()
assert not {"torch._dynamo", "jax", "triton"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
