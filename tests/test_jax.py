"""JAX: values against NumPy's, inside jit, grad, vmap and shard_map, and errors."""

import os
import subprocess
import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import fastcov as fc  # noqa: E402
from fastcov import dropin, waves  # noqa: E402
from fastcov.phasespace import psi2s_kkpipi  # noqa: E402


@fc.fused
def everything(p, r, s: fc.Scalar):
    v = fc.einsum("ij,j->i", fc.orbital(2, p, r), p + r)
    return {
        "vector": v,
        "cross": fc.einsum("ijkl,j,k,l->i", fc.levi_civita(), p, r, v),
        "scalar": s * fc.dot(p, r),
        "matrix": fc.orbital(2, p, r),
        "sum": fc.sum(s * fc.sqrt(fc.dot(p, p))),
        "sums": fc.sum(v),
        "constant": fc.sum(s / s),
    }


@fc.fused
def ratio(p, r):
    return fc.dot(p, r) * fc.sqrt(fc.dot(p, p)) / fc.dot(r, r)


@pytest.fixture(autouse=True)
def x64():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def momenta(*shape, seed=0):
    rng = np.random.default_rng([seed, *shape])
    p = rng.normal(scale=0.3, size=(*shape, 4))
    p[..., 3] = rng.uniform(1.5, 2.5, shape)
    return p


def assert_close(found, wanted, rtol=1e-12):
    found, wanted = jax.tree.leaves(found), jax.tree.leaves(wanted)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert isinstance(a, jax.Array)
        assert a.shape == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("options", [{}, {"components": "Ey", "order": "zExy"}, {"components": "x"}])
def test_values(options):
    p, r = momenta(6), momenta(6, seed=1)
    for args in ((p, r, 1.5), (p[0], r, r[:, 0]), (p[:, None], r, 2), (momenta(0), r[:1], 1.0)):
        on_jax = [jnp.asarray(a) if isinstance(a, np.ndarray) else a for a in args]
        assert_close(everything(*on_jax, **options), everything(*args, **options))
    columns = tuple(jnp.asarray(p.T))
    compiled = jax.jit(lambda *a: everything(*a, **options))
    assert_close(compiled(columns, jnp.asarray(r), 1.5), everything(tuple(p.T), r, 1.5, **options))


def test_every_wave():
    events = psi2s_kkpipi(20, seed=2)
    on_jax = [jnp.asarray(x) for x in events]
    bundle = fc.bundle(waves.phif243, waves.phif222, waves.phif223)
    wanted = bundle(*events)
    found = bundle(*on_jax)
    scale = np.abs(wanted).max(axis=-1, keepdims=True)
    np.testing.assert_allclose(found / scale, wanted / scale, atol=1e-11)


def test_dtypes():
    p, r = momenta(4), momenta(4, seed=1)
    single = jnp.asarray(p, jnp.float32), jnp.asarray(r, jnp.float32)
    result = ratio(*single)
    assert result.dtype == jnp.float32
    exact = ratio(*(np.asarray(x, np.float64) for x in single))
    np.testing.assert_allclose(result, exact, rtol=1e-5)
    in_double = ratio(*single, compute="float64")
    assert in_double.dtype == jnp.float32
    np.testing.assert_allclose(in_double, exact, rtol=1.2e-7)
    assert ratio(single[0], jnp.asarray(r)).dtype == jnp.float64
    assert ratio(jnp.asarray([[1, 0, 0, 3]]), r.tolist()).dtype == jnp.float64
    in_single = ratio(jnp.asarray(p), jnp.asarray(r), compute="float32")
    assert in_single.dtype == jnp.float64
    assert not np.array_equal(in_single, ratio(p, r))
    np.testing.assert_allclose(in_single, ratio(p, r), rtol=1e-5)


def test_without_64_bits():
    jax.config.update("jax_enable_x64", False)
    p = jnp.asarray(momenta(3))
    assert ratio(p, [0.0, 0.0, 0.0, 1.0]).dtype == jnp.float32
    assert everything(p, p + 1, 0.5)["sum"].dtype == jnp.float32
    with pytest.raises(ValueError, match="jax_enable_x64"):
        ratio(p, p, compute="float64")


def test_errors():
    p = jnp.asarray(momenta(3))
    with pytest.raises(ValueError, match=r"p: a 4-vector has shape \(\.\.\., 4\), not \(3, 3\)"):
        ratio(p[:, :3], p)
    with pytest.raises(ValueError, match=r"do not broadcast: p \(3,\), r \(2,\)"):
        ratio(p, p[:2])
    with pytest.raises(TypeError, match="r: dtype bfloat16"):
        ratio(p, p.astype(jnp.bfloat16))
    with pytest.raises(TypeError, match="r: dtype complex128"):
        ratio(p, p.astype(complex))
    with pytest.raises(ValueError, match="backend 'cpu' does not take JAX arrays"):
        ratio(p, p, backend="cpu")
    with pytest.raises(ValueError, match="immutable"):
        ratio(p, p, out=p[:, 0])
    with pytest.raises(TypeError, match="p of numpy, r of jax"):
        ratio(momenta(3), p)
    with pytest.raises(TypeError, match="list of arrays of jax"):
        ratio([p[0]], p)


def test_gradients_are_those_of_the_derivative_tape():
    p, r = momenta(5), momenta(5, seed=1)
    c = momenta(5, seed=2)

    def pulled(p, r, s):
        return (everything(p, r, s)["vector"] * c).sum() + everything(p, r, s)["sum"]

    cotangent = {
        "vector": c,
        "cross": np.zeros((5, 4)),
        "scalar": np.zeros(5),
        "matrix": np.zeros((5, 4, 4)),
        "sum": 1.0,
        "sums": np.zeros(4),
        "constant": 0.0,
    }
    wanted = everything.vjp(p, r, 1.5, cotangent=cotangent)
    on_jax = jnp.asarray(p), jnp.asarray(r)
    assert_close(jax.jit(jax.grad(pulled, argnums=(0, 1, 2)))(*on_jax, 1.5), wanted)
    assert_close(everything.vjp(*on_jax, 1.5, cotangent=jax.tree.map(jnp.asarray, cotangent)), wanted)
    shared = everything.vjp(p, r[0], 1.5, cotangent=cotangent)
    assert_close(jax.grad(pulled, argnums=(0, 1, 2))(on_jax[0], on_jax[1][0], 1.5), shared)
    tangent = ratio.jvp(p, r, tangents=(r, None))
    assert_close(jax.jvp(lambda p: ratio(p, on_jax[1]), on_jax[:1], on_jax[1:])[1], tangent)
    assert_close(ratio.jvp(*on_jax, tangents=(on_jax[1], None)), tangent)


@pytest.mark.parametrize("third", [lambda f: jax.jacfwd(jax.hessian(f)), lambda f: jax.jacrev(jax.jacrev(jax.grad(f)))])
def test_third_derivatives(third):
    p, r = momenta(), momenta(seed=1)

    def plain(p):
        signs = jnp.array([-1, -1, -1, 1])

        def dot(a, b):
            return (a * b * signs).sum()

        return dot(p, r) * jnp.sqrt(dot(p, p)) / dot(r, r)

    found, wanted = (jax.jit(third(f))(jnp.asarray(p)) for f in (lambda p: ratio(p, jnp.asarray(r)), plain))
    assert_close(found, wanted, rtol=1e-11)


def test_vmap():
    p, r = momenta(3), momenta(6, seed=1)
    sums = jax.vmap(lambda p: everything(p, jnp.asarray(r), 1.5)["sums"])(jnp.asarray(p))
    assert_close(sums, np.stack([everything(one, r, 1.5)["sums"] for one in p]))
    gradients = jax.vmap(jax.grad(ratio), (0, None))(jnp.asarray(p), jnp.asarray(r[0]))
    assert_close(gradients, ratio.vjp(p, np.tile(r[0], (3, 1)), cotangent=np.ones(3))[0])


def test_shard_map_on_eight_devices():
    script = """
import jax, numpy as np, fastcov as fc
import jax.numpy as jnp
from functools import partial
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
jax.config.update("jax_enable_x64", True)
try:
    from jax import shard_map
except ImportError:
    from jax.experimental.shard_map import shard_map
devices = jax.devices()
assert len(devices) == 8
mesh = Mesh(np.array(devices), ("events",))

@fc.fused
def f(p, r, s: fc.Scalar):
    return s * fc.dot(p, r) * p, fc.sum(s * s * fc.dot(p, r))

rng = np.random.default_rng(0)
p, r = rng.normal(size=(2, 64, 4))
split = NamedSharding(mesh, P("events"))
on_jax = jax.device_put(p, split), jax.device_put(r, split), jnp.asarray(1.5)

@jax.jit
@partial(shard_map, mesh=mesh, in_specs=(P("events"), P("events"), P()), out_specs=(P("events"), P("events"), P()))
def sharded(p, r, s):
    vector, total = f(p, r, s)
    return vector, total[None], jax.lax.psum(total, "events")

vector, per_shard, total = sharded(*on_jax)
wanted, wanted_total = f(p, r, 1.5)
np.testing.assert_allclose(vector, wanted, rtol=1e-13)
np.testing.assert_allclose(per_shard, [f(p[n : n + 8], r[n : n + 8], 1.5)[1] for n in range(0, 64, 8)], rtol=1e-12)
np.testing.assert_allclose(total, wanted_total, rtol=1e-12)
gradients = jax.grad(lambda *args: sharded(*args)[2], argnums=(0, 2))(*on_jax)
pulled = f.vjp(p, r, 1.5, cotangent=(np.zeros((64, 4)), 1.0))
np.testing.assert_allclose(gradients[0], pulled[0], rtol=1e-12)
np.testing.assert_allclose(gradients[1], pulled[2], rtol=1e-12)
vector, total = jax.jit(f)(*on_jax)
assert len(vector.sharding.device_set) == 8
np.testing.assert_allclose(vector, wanted, rtol=1e-13)
np.testing.assert_allclose(total, wanted_total, rtol=1e-12)
"""
    flags = "--xla_force_host_platform_device_count=8"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)


TENSORS = {
    "scalar": lambda p, r: fc.dot(p, r),
    "matrix": lambda p, r: fc.orbital(2, p, r),
    "rank 3": lambda p, r: fc.orbital(3, p, r),
    "rank 6": lambda p, r: fc.projector(3, p) * fc.dot(r, r),
    "constant": lambda p, r: fc.einsum("abc,d->abcd", fc.orbital(3, p, r), r) * 0,
    "posted T4_cov": lambda p, r: dropin.T4_cov(p, r),
}


@pytest.mark.parametrize("name", TENSORS)
def test_dense(name):
    p, r = momenta(5), momenta(5, seed=1)
    on_jax = jnp.asarray(p), jnp.asarray(r)

    def components(p, r):
        return fc.dense(TENSORS[name](p, r))

    wanted = components(p, r)
    found = components(*on_jax)
    assert isinstance(found, jax.Array)
    assert found.dtype == wanted.dtype == np.float64
    assert_close(found, wanted)
    assert_close(jax.jit(components)(*on_jax), wanted)
    assert_close(jax.vmap(components)(*on_jax), wanted)
    narrow = components(*(x.astype("float32") for x in on_jax))
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, wanted, rtol=1e-4, atol=1e-4 * np.max(np.abs(wanted)))


def test_dense_is_differentiable():
    p, r = jnp.asarray(momenta(5)), jnp.asarray(momenta(5, seed=1))
    weights = np.random.default_rng(1).normal(size=(len(p), 4, 4, 4))

    def number(p, r):
        return (fc.dense(fc.orbital(3, p, r)) * weights).sum()

    _, tangent = jax.jvp(number, (p, r), (r, p))
    by_p, by_r = jax.grad(number, (0, 1))(p, r)
    assert tangent == pytest.approx(float((by_p * r).sum() + (by_r * p).sum()), rel=1e-9)
    step = 1e-6
    difference = (number(p + step * r, r + step * p) - number(p - step * r, r - step * p)) / (2 * step)
    assert tangent == pytest.approx(float(difference), rel=1e-6)


@pytest.mark.filterwarnings("error")
def test_dense_without_64_bits():
    jax.config.update("jax_enable_x64", False)
    p, r = momenta(5), momenta(5, seed=1)
    found = fc.dense(fc.orbital(3, jnp.asarray(p, "float32"), jnp.asarray(r, "float32")))
    assert found.dtype == np.float32
    wanted = fc.dense(fc.orbital(3, p, r))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.max(np.abs(wanted)))
