"""torch: values, derivatives of every order by every route, capture of programs, and errors."""

import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.autograd import forward_ad, gradcheck, gradgradcheck  # noqa: E402
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap  # noqa: E402

import fastcov as fc  # noqa: E402
import fastcov.torch  # noqa: E402
from fastcov import waves  # noqa: E402
from fastcov.phasespace import psi2s_kkpipi  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # of its own parts

F64 = torch.float64
SIGNS = torch.tensor([-1.0, -1.0, -1.0, 1.0], dtype=F64)


@fc.fused
def amplitude(p, r, s: fc.Scalar):
    v = fc.einsum("ij,j->i", fc.orbital(2, p, r), p + r)
    return {"vector": v, "scalar": s * fc.dot(p, r), "sum": fc.sum(s * s * fc.sqrt(fc.dot(p, p)))}


@fc.fused
def matrix(p, r):
    return fc.orbital(2, p, r), fc.sum(p), fc.sum(fc.orbital(2, p, r))


@fc.fused
def ratio(p, r):
    return fc.dot(p, r) * fc.sqrt(fc.dot(p, p)) / fc.dot(r, r)


@fc.fused
def likelihood(p, r, s: fc.Scalar):
    return fc.sum(s * s * s * fc.dot(p, r) * fc.sqrt(fc.dot(p, p)))


@pytest.fixture(autouse=True)
def uncompiled(poisoned_results, monkeypatch):
    """Let torch.compile pass over the numpy.empty of the tests, as it does with NumPy's own, which is no Python."""
    for place in ("numpy.empty", "fastcov.cpu._executor.empty"):
        monkeypatch.setattr(place, torch.compiler.disable(np.empty))


def dot(a, b):
    return (a * b * SIGNS).sum(-1)


def plain_ratio(p, r):
    return dot(p, r) * dot(p, p).sqrt() / dot(r, r)


def plain_likelihood(p, r, s):
    return (s**3 * dot(p, r) * dot(p, p).sqrt()).sum()


def momenta(*shape, seed=0, dtype=F64):
    rng = np.random.default_rng([seed, *shape])
    p = rng.normal(scale=0.3, size=(*shape, 4))
    p[..., 3] = rng.uniform(1.5, 2.5, shape)
    return torch.from_numpy(p).to(dtype)


def flat(result):
    if isinstance(result, dict):
        result = tuple(result.values())
    if isinstance(result, (tuple, list)):
        return [part for one in result for part in flat(one)]
    return [result]


def assert_close(result, wanted, **tolerance):
    for a, b in zip(flat(result), flat(wanted), strict=True):
        torch.testing.assert_close(a, b, **(tolerance or {"rtol": 1e-11, "atol": 1e-11}))


def assert_equal(result, wanted):
    for a, b in zip(flat(result), flat(wanted), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


# Values


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("options", [{}, {"components": "Ey", "order": "zExy"}, {"compute": "float32", "threads": 1}])
def test_values_are_those_of_numpy(dtype, options):
    p, r = momenta(7, dtype=dtype), momenta(7, seed=1, dtype=dtype)
    for function, args in ((amplitude, (p, r, 1.25)), (amplitude, (p[0], r, r[:, 0])), (matrix, (p, r))):
        result = function(*args, **options)
        wanted = function(*(a.numpy() if isinstance(a, torch.Tensor) else a for a in args), **options)
        assert_equal(result, wanted)
        assert all(part.dtype is dtype and part.is_contiguous() for part in flat(result))


def test_layouts():
    p, r = momenta(6), momenta(6, seed=1)
    wanted = ratio(p.numpy(), r.numpy())
    strided = torch.zeros(12, 8, dtype=F64)[::2, ::2]
    strided.copy_(p)
    columns = tuple(p.T.contiguous())
    negated = torch.view_as_complex(torch.stack((p, -p), -1)).conj().imag
    assert negated.is_neg()
    for given in (strided, columns, p.flip(0).flip(0), negated, p.clone().requires_grad_(), torch.nn.Parameter(p)):
        assert_equal(ratio(given, r).detach(), wanted)
    assert_equal(ratio(p[:, None], r), ratio(p.numpy()[:, None], r.numpy()))
    assert_equal(ratio(p.tolist(), r), wanted)
    assert ratio(momenta(0), r[:1]).shape == (0,)


def unusual_tensors(x):
    left = []
    for transform in (grad, torch.func.functionalize):
        transform(lambda x: (left.append(x), x.sum())[1])(x)
    return {
        "of a transform that is over": left[0],
        "of a functionalization that is over": left[1],
        "functional": torch._to_functional_tensor(x),
        "negative": torch.view_as_complex(torch.stack((x, -x), -1)).conj().imag,
        "parameter": torch.nn.Parameter(x),
        "made in inference mode": torch.inference_mode()(x.clone)(),
        "zero": torch._efficientzerotensor(x.shape, dtype=x.dtype),
    }


@pytest.mark.parametrize("kind", unusual_tensors(momenta(4)))
def test_unusual_tensors_are_not_taken_for_memory(kind):
    scaled = fc.fused(lambda p, r: fc.dot(p, r) * r)
    p, r = momenta(4), momenta(4, seed=1)
    scaled(p, r)
    x = unusual_tensors(p)[kind]
    p = torch.zeros_like(p) if kind == "zero" else p
    for wanted, found in (((p, r), (x, r)), ((r, p), (r, x))):
        assert torch.equal(scaled(*found), scaled(*wanted))
    leaf = r.clone().requires_grad_()
    cases = [((p, x), (p, p))]
    if kind != "made in inference mode":  # which torch cannot save for backward
        cases.append(((x, r), (p, r)))
    for case in cases:
        found, wanted = [torch.autograd.grad(scaled(a, leaf), leaf, cotangent)[0] for a, cotangent in case]
        assert torch.equal(found, wanted)


def test_a_saved_tensor_that_changes_raises():
    p, r = momenta(3).requires_grad_(), momenta(3, seed=1)
    ratio(momenta(3), r)
    result = ratio(p, r)
    r.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_mixed_dtypes_promote_and_gradients_keep_theirs():
    p, r = momenta(3).requires_grad_(), momenta(3, dtype=torch.float32).requires_grad_()
    result = ratio(p, r)
    assert result.dtype is torch.float64
    gradients = torch.autograd.grad(result.sum(), (p, r))
    assert [g.dtype for g in gradients] == [torch.float64, torch.float32]
    assert ratio(r, 2 * r).dtype is torch.float32
    assert amplitude(r, r, 2.0)["scalar"].dtype is torch.float32
    (gradient,) = torch.autograd.grad(ratio(r, 2 * r).sum(), r)
    assert gradient.dtype is torch.float32


def test_bundle_is_one_tensor():
    events = [torch.from_numpy(x) for x in psi2s_kkpipi(5, seed=1)]
    bundle = fc.bundle(waves.phif001, waves.phif201)
    assert_equal(bundle(*events), bundle(*(x.numpy() for x in events)))
    inputs = [x.clone().requires_grad_() for x in events]
    whole = torch.autograd.grad(bundle(*inputs).square().sum(), inputs)
    single = torch.autograd.grad(sum(w(*inputs).square().sum() for w in (waves.phif001, waves.phif201)), inputs)
    assert_close(whole, single)
    small = [x[:2].clone().requires_grad_() for x in events]
    assert gradcheck(lambda *x: bundle(*x, components="xy"), small, check_forward_ad=True, check_batched_grad=True)


def test_results_are_written_to_out():
    p, r = momenta(4), momenta(4, seed=1)
    out = torch.full((4,), torch.nan, dtype=F64)
    version = out._version
    assert ratio(p, r, out=out) is out
    assert_equal(out, ratio(p, r))
    assert out._version > version
    for bad, error, words in (
        (torch.empty(3, dtype=F64), ValueError, "shape"),
        (torch.empty(4), ValueError, "dtype"),
        (torch.empty(1, dtype=F64).expand(4), ValueError, "share memory"),
        (p[:, 0], ValueError, "overlaps an input"),
        (np.empty(4), TypeError, "tensor"),
        (torch.empty(4, dtype=F64, device="meta"), ValueError, "meta"),
        (torch.empty(4, dtype=F64, requires_grad=True), RuntimeError, "differentiated"),
    ):
        with pytest.raises(error, match=words):
            ratio(p, r, out=bad)
    with pytest.raises(RuntimeError, match="out="):
        ratio(p.clone().requires_grad_(), r, out=out)
    q = p.clone()
    same = fc.fused(lambda p, r: p - r)
    assert_equal(same(q, r, out=q), p - r)
    both = fc.bundle(ratio, ratio)
    several = torch.empty(4, dtype=F64), torch.empty(4, dtype=F64)
    assert both(p, r, out=several) is several
    assert_equal(torch.stack(several), both(p, r))


def test_errors_are_those_of_numpy():
    p, r = momenta(3), momenta(3)
    for args in ((p[:, :3], r), (p, r[:2]), ((p[:, 0],) * 3, r), ((p[:, 0], p[:2, 0], p[:, 0], p[:, 0]), r)):
        to_numpy = [tuple(c.numpy() for c in a) if isinstance(a, tuple) else a.numpy() for a in args]
        with pytest.raises(ValueError) as wanted:  # noqa: PT011  the message is what is compared
            ratio(*to_numpy)
        for tensors in (args, [a if isinstance(a, tuple) else a.clone().requires_grad_() for a in args]):
            with pytest.raises(ValueError) as found:  # noqa: PT011
                ratio(*tensors)
            assert str(found.value) == str(wanted.value)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float16, torch.bfloat16, torch.complex128])
def test_dtypes_that_are_refused(dtype):
    with pytest.raises(TypeError, match=f"r: tensors of {dtype}"):
        ratio(momenta(2), torch.ones((2, 4), dtype=dtype))


def test_other_errors():
    p = momenta(2)
    with pytest.raises(TypeError, match="sparse"):
        ratio(p, p.to_sparse())
    with pytest.raises(TypeError, match="list of arrays of torch"):
        ratio([p[0], p[1]], p)
    with pytest.raises(ValueError, match=r"p on cpu, r on meta"):
        ratio(p, p.to("meta"))
    with pytest.raises(ValueError, match="backend"):
        ratio(p, p, backend="cuda")
    with pytest.raises(ValueError, match="one number for all events"):
        fc.fused(_with_runtime_scalar)(p, a=p[:, 0])
    with pytest.raises(ValueError, match="inputs"):
        torch.ops.fastcov.run([p], ratio.tape.text, F64)
    with pytest.raises(ValueError, match="not a tape"):
        torch.ops.fastcov.run([p, p], "{}", F64)
    result = ratio(p.clone().requires_grad_(), p)
    with pytest.raises(RuntimeError, match="shape"):
        result.backward(torch.ones(3, dtype=F64))


def _with_runtime_scalar(p, *, a: fc.Scalar):
    return a * p


def test_one_bad_event_spoils_no_other():
    p, r = momenta(3), momenta(3, seed=1)
    p[1] = torch.tensor([0.0, 0.0, 1.0, 1.0])
    p.requires_grad_()
    (gradient,) = torch.autograd.grad(amplitude(p, r, 1.0)["vector"].sum(), p)
    finite = torch.isfinite(gradient).all(-1)
    assert finite.tolist() == [True, False, True]


# Derivatives by backward and by dual numbers


@pytest.mark.parametrize("seed", range(6))
def test_gradcheck_with_random_masks_and_layouts(seed):
    rng = np.random.default_rng(seed)
    p, r, s = momenta(3, seed=seed), momenta(3, seed=seed + 1), torch.rand((), dtype=F64) + 1
    if rng.random() < 0.5:
        p = torch.stack((p, p), -1)[..., 0]
    if rng.random() < 0.5:
        r = r[0].clone()
    inputs = (p, r, s)
    mask = rng.random(3) < 0.6
    mask[rng.integers(3)] = True
    for x, required in zip(inputs, mask, strict=True):
        x.requires_grad_(bool(required))
    expanded = bool(rng.integers(2))

    def checked(p, r, s):
        if expanded:
            p, s = p[:1].expand(3, 4), s.expand(3)
        return tuple(amplitude(p, r, s).values())

    every = {"check_batched_grad": True, "check_forward_ad": True, "check_batched_forward_grad": True}
    assert gradcheck(checked, inputs, **every)
    assert gradgradcheck(checked, inputs, check_fwd_over_rev=True, check_batched_grad=True)


@pytest.mark.parametrize("options", [{}, {"components": "xy"}, {"components": "Ezy", "order": "Exyz"}])
@pytest.mark.parametrize("columns", [False, True])
def test_gradcheck_of_matrices_and_columns(options, columns):
    p, r = momenta(2).requires_grad_(), momenta(1, seed=1).requires_grad_()

    def checked(p, r):
        return matrix(tuple(p.unbind(-1)) if columns else p, r, **options)

    assert gradcheck(checked, (p, r), check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(checked, (p, r), check_fwd_over_rev=True)


def test_gradcheck_of_columns_shared_by_all_events():
    p, r = momenta(2).requires_grad_(), momenta(seed=1).requires_grad_()
    assert gradcheck(lambda p, r: matrix(p, tuple(r)), (p, r), check_forward_ad=True)


def test_outputs_without_cotangent_do_not_matter():
    p, r = momenta(3).requires_grad_(), momenta(3, seed=1)
    p.data[0] = torch.tensor([1.0, 0.0, 0.0, 0.0])  # p^2 < 0: the square root is NaN
    (gradient,) = torch.autograd.grad(amplitude(p, r, 1.0)["scalar"].sum(), p)
    assert_close(gradient, r * SIGNS)


def test_the_gradient_of_what_is_shared_is_a_sum_in_the_tape():
    p, r = momenta(1000), momenta(seed=1).requires_grad_()
    (gradient,) = torch.autograd.grad(ratio(p, r).sum(), r)
    assert_equal(gradient, ratio.vjp(p.numpy(), r.detach().numpy(), cotangent=np.ones(1000))[1])


def test_a_cotangent_without_strides_is_not_copied(monkeypatch):
    p = momenta(4).requires_grad_()
    scale = fc.fused(lambda p: fc.dot(p, p) * p)
    scale(p)
    seen = []
    run = fastcov.torch._run_usual
    monkeypatch.setattr(fastcov.torch, "_run_usual", lambda how, x: seen.append(x[-1].stride()) or run(how, x))
    scale(p).sum().backward()
    assert seen[-1] == (0, 0)
    assert_equal(p.grad, scale.vjp(p.detach(), cotangent=torch.ones(4, 4, dtype=F64))[0])


def third_by_backward(f, x):
    first = torch.autograd.grad(f(x), x, create_graph=True)[0]
    second = torch.autograd.grad((first * x.detach()).sum(), x, create_graph=True)[0]
    return torch.autograd.grad((second * x.detach()).sum(), x)[0]


def third_by_duals(f, x):
    """Forward over reverse over reverse."""
    t = x.detach().clone()
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, t)
        first = torch.autograd.grad(f(dual), dual, create_graph=True)[0]
        tangent = forward_ad.unpack_dual(first).tangent
        return torch.autograd.grad((tangent * t).sum(), x)[0]


def third_by_func(outer, middle, inner):
    def third(f, x):
        t = x.detach()
        return torch.einsum("ijk,j,k->i", outer(middle(inner(f)))(t), t, t)

    return third


@pytest.mark.parametrize(
    "third",
    [
        third_by_backward,
        third_by_duals,
        third_by_func(jacrev, jacrev, jacrev),
        third_by_func(jacfwd, jacfwd, jacfwd),
        third_by_func(jacfwd, jacrev, jacfwd),
        third_by_func(jacrev, jacfwd, jacrev),
    ],
    ids=["backward", "duals", "rev", "fwd", "mixed", "mixed too"],
)
def test_third_derivatives_are_differences_of_second_ones(third):
    r = momenta(3, seed=2)
    x = momenta(seed=1).requires_grad_()
    t = x.detach().clone()

    def f(x):
        return (amplitude(x, r, 1.5)["vector"] ** 2).sum() + likelihood(r, x, 1.5)

    def second(x):
        x = x.clone().requires_grad_()
        first = torch.autograd.grad(f(x), x, create_graph=True)[0]
        return torch.autograd.grad((first * t).sum(), x)[0]

    h = 1e-4
    wanted = (second(t + h * t) - second(t - h * t)) / (2 * h)
    assert_close(third(f, x), wanted, rtol=1e-6, atol=1e-6)


def test_backward_through_the_tangents_of_duals():
    p, r, t = momenta(3).requires_grad_(), momenta(3, seed=1), momenta(3, seed=2)

    def through(f):
        with forward_ad.dual_level():
            tangent = forward_ad.unpack_dual(f(forward_ad.make_dual(p, t), r)).tangent
            return torch.autograd.grad(tangent.sum(), p)

    assert_close(through(ratio), through(plain_ratio))


# torch.func


@pytest.mark.parametrize(
    "transformed",
    {
        "grad": lambda f, p, r: grad(lambda p: f(p, r).sum())(p),
        "vjp": lambda f, p, r: vjp(f, p, r)[1](p[..., 0]),
        "jvp": lambda f, p, r: jvp(f, (p, r), (r, p)),
        "jvp of one": lambda f, p, r: jvp(lambda p: f(p, r), (p,), (r,)),
        "jvp of jvp": lambda f, p, r: jvp(lambda p: jvp(lambda p: f(p, r), (p,), (r,))[1], (p,), (p,)),
        "grad of jvp": lambda f, p, r: grad(lambda p: jvp(lambda r: f(p, r), (r,), (p,))[1].sum())(p),
        "jacrev": lambda f, p, r: jacrev(f, argnums=(0, 1))(p, r),
        "jacfwd": lambda f, p, r: jacfwd(f, argnums=(0, 1))(p, r),
        "hessian": lambda f, p, r: hessian(lambda p, r: f(p, r).sum(), argnums=(0, 1))(p, r),
        "vmap": lambda f, p, r: vmap(f)(p, r),
        "vmap of one": lambda f, p, r: vmap(f, (None, 0))(p, r),
        "vmap of axis 1": lambda f, p, r: vmap(f, (1, None), 1)(p.expand(5, 3, 4), r[0]),
        "vmap of vmap": lambda f, p, r: vmap(vmap(f, (0, None)), (None, 0))(p, r),
        "vmap of grad": lambda f, p, r: vmap(grad(f), (0, None))(p, r[0]),
        "grad of vmap": lambda f, p, r: grad(lambda r: vmap(lambda p: f(p, r))(p).sum())(r[0]),
        "vmap of hessian": lambda f, p, r: vmap(hessian(f))(p, r),
    }.items(),
    ids=lambda case: case[0],
)
def test_transforms(transformed):
    p, r = momenta(3), momenta(3, seed=1)
    assert_close(transformed[1](ratio, p, r), transformed[1](plain_ratio, p, r))


@pytest.mark.parametrize(
    "transformed",
    [
        lambda f, p, r, s: grad(f, argnums=(0, 1, 2))(p, r, s[0]),
        lambda f, p, r, s: hessian(f, argnums=(0, 2))(p, r, s[0]),
        lambda f, p, r, s: vmap(f, (None, None, 0))(p, r, s),
        lambda f, p, r, s: vmap(grad(f, argnums=(1, 2)), (None, None, 0))(p, r, s),
        lambda f, p, r, s: grad(lambda p, s: vmap(f, (None, None, 0))(p, r, s).square().sum(), argnums=(0, 1))(p, s),
        lambda f, p, r, s: jacfwd(grad(f, argnums=(0, 2)), argnums=(1, 2))(p[0], r, s[0]),
    ],
)
def test_transforms_of_sums(transformed):
    p, r, s = momenta(3), momenta(3, seed=1), torch.rand(2, dtype=F64) + 1
    assert_close(transformed(likelihood, p, r, s), transformed(plain_likelihood, p, r, s))


def test_vmap_over_a_number_that_is_shared_by_nature():
    scaled = fc.fused(_with_runtime_scalar)
    p, a = momenta(3), torch.rand(2, dtype=F64)
    assert_close(vmap(lambda a: scaled(p, a=a))(a), a[:, None, None] * p)
    assert_close(grad(lambda a: vmap(lambda a: scaled(p, a=a))(a).sum())(a), p.sum().expand(2))


@pytest.mark.parametrize("vectorize", [False, True])
def test_the_older_functional_interface(vectorize):
    from torch.autograd.functional import hessian as older_hessian
    from torch.autograd.functional import jacobian

    p, r, s = momenta(3), momenta(3, seed=1), torch.rand((), dtype=F64)
    assert_close(jacobian(ratio, (p, r), vectorize=vectorize), jacobian(plain_ratio, (p, r)))
    assert_close(older_hessian(likelihood, (p, r, s), vectorize=vectorize), older_hessian(plain_likelihood, (p, r, s)))
    forward = {"strategy": "forward-mode"} if vectorize else {}
    assert_close(jacobian(likelihood, (p, r, s), vectorize=vectorize, **forward), jacobian(plain_likelihood, (p, r, s)))


def test_the_derivatives_of_fused_functions_take_tensors():
    p, r = momenta(3), momenta(3, seed=1)
    c = momenta(3, seed=2)[:, 0]
    for name, keywords in (
        ("vjp", {"cotangent": c}),
        ("value_and_vjp", {"cotangent": c}),
        ("jvp", {"tangents": (r, None)}),
        ("jacobian", {}),
    ):
        derived = getattr(ratio, name)
        in_numpy = {
            k: tuple(x if x is None else x.numpy() for x in v) if isinstance(v, tuple) else v.numpy()
            for k, v in keywords.items()
        }
        assert_equal(derived(p, r, **keywords), derived(p.numpy(), r.numpy(), **in_numpy))
    assert gradcheck(lambda p: ratio.vjp(p, r, cotangent=c), (p.clone().requires_grad_(),))


# Capture


def fused_again():
    """A function that nothing has called yet."""

    @fc.fused
    def fresh(p, r):
        return fc.einsum("ij,j->i", fc.orbital(2, p, r), p + r), fc.sum(fc.dot(p, r))

    return fresh


class Model(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.r = torch.nn.Parameter(momenta(seed=3))
        self.function = function

    def forward(self, p):
        vector, total = self.function(p, self.r)
        some, _ = self.function((p[:, 0], p[:, 1], p[:, 2], p[:, 3]), p + self.r, components="Ex", order="xyzE")
        return 2 * vector, total, some


@pytest.mark.parametrize("requires_grad", [(True, False), (True, True), (False, False)])
@pytest.mark.parametrize(
    ("tape", "options"),
    [
        (ratio.tape, ()),
        (matrix.tape, ("Exyz", "xy", "f")),
        (fc.bundle(ratio, ratio).tape, ("xyzE", "xyzE", "d", True, 1, "cpu")),
    ],
)
def test_opcheck(tape, options, requires_grad):
    inputs = [momenta(3), momenta(seed=1)]
    for x, required in zip(inputs, requires_grad, strict=True):
        x.requires_grad_(required)
    torch.library.opcheck(torch.ops.fastcov.run.default, (inputs, tape.text, F64, *options))
    halved = [x.detach().to(torch.float32) for x in inputs]
    torch.library.opcheck(torch.ops.fastcov.run.default, (halved, tape.text, torch.float32, *options))


def test_compile_makes_one_graph_for_all_sizes():
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("aot_eager")
    function = fused_again()
    model = Model(function)
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=counter)
    for n in (5, 7, 100):
        p = momenta(n).requires_grad_()
        found, wanted = compiled(p), model(p)
        assert_equal([x.detach() for x in found], [x.detach() for x in wanted])
        parameters = p, model.r
        gradients = [torch.autograd.grad(sum(x.sum() for x in result), parameters) for result in (found, wanted)]
        assert_equal(*gradients)
    assert counter.frame_count == 1
    operators = [node for graph in counter.graphs for node in graph.graph.nodes if "fastcov" in str(node.target)]
    assert len(operators) == 2


def test_compile_of_events_that_are_selected():
    torch._dynamo.reset()
    function = fused_again()

    def selected(p, r):
        chosen = p[:, 0] > 0
        return function(p[chosen], r[chosen])

    p, r = momenta(9), momenta(9, seed=1)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        assert_equal(torch.compile(selected, fullgraph=True, backend="aot_eager")(p, r), selected(p, r))


def test_compile_with_numbers_options_and_derivatives():
    torch._dynamo.reset()
    p, r = momenta(5), momenta(5, seed=1)
    function = fc.fused(lambda p, r: fc.dot(p, r) * r)
    bundle = fc.bundle(ratio, ratio)

    def several(s):
        scaled = amplitude(p, r, s, components="yE", threads=1, backend="cpu")
        return scaled, bundle(p, r), function.jacobian(p, r), function.jvp(p, r, tangents=(r, None))

    compiled = torch.compile(several, fullgraph=True, dynamic=True, backend="aot_eager")
    for s in (1.5, 2.5, 3):
        assert_equal(compiled(s), several(s))


def test_compile_with_inductor():
    torch._dynamo.reset()
    function = fused_again()
    compiled = torch.compile(lambda p, r: function.vjp(p * 2, r, cotangent=(r, 1.0)), fullgraph=True)
    p, r = momenta(5), momenta(5, seed=1)
    assert_equal(compiled(p, r), function.vjp(p * 2, r, cotangent=(r, 1.0)))


@pytest.mark.parametrize(
    "transformed",
    [
        lambda f, p, r: grad(lambda p: f(p, r).sum())(p),
        lambda f, p, r: jvp(lambda p: f(p, r), (p,), (r,))[1],
        lambda f, p, r: vmap(lambda p: f(p, r))(p),
    ],
)
def test_transforms_that_cannot_see_through_the_operator_raise(transformed):
    p, r = momenta(3), momenta(3, seed=1)
    torch._dynamo.reset()
    compiled = torch.compile(lambda p, r: transformed(ratio, p, r), backend="aot_eager")
    with pytest.raises(Exception, match=r"transforms of torch\.func do not see through"):
        compiled(p, r)
    with pytest.raises(RuntimeError, match=r"transforms of torch\.func do not see through"):
        transformed(lambda p, r: torch.ops.fastcov.run([p, r], ratio.tape.text, F64)[0], p, r)
    over = torch.compile(ratio, backend="aot_eager")
    assert_close(transformed(over, p, r), transformed(plain_ratio, p, r))


def test_duals_reach_the_operator():
    p, r, t = momenta(3), momenta(3, seed=1), momenta(3, seed=2)

    def tangent(f):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(f(forward_ad.make_dual(p, t), r)).tangent

    wanted = tangent(ratio)
    assert_equal(tangent(lambda p, r: torch.ops.fastcov.run([p, r], ratio.tape.text, F64)[0]), wanted)
    assert_equal(tangent(torch.compile(ratio, backend="aot_eager")), wanted)


@pytest.mark.parametrize("strict", [False, True])
def test_export_round_trip_in_a_new_process(strict, tmp_path):
    model = Model(fused_again())
    sizes = {"p": {0: torch.export.Dim("events")}}
    program = torch.export.export(model, (momenta(3),), dynamic_shapes=sizes, strict=strict)
    torch.export.save(program, tmp_path / "program.pt2")
    p = momenta(11)
    torch.save((p, [x.detach() for x in model(p)]), tmp_path / "wanted.pt")
    script = (
        "import torch, fastcov\n"
        "p, wanted = torch.load('wanted.pt')\n"
        "found = torch.export.load('program.pt2').module()(p)\n"
        "assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)


def test_dispatch_modes_see_the_operator():
    seen = []

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    p, r = momenta(3), momenta(3, seed=1)
    with Mode():
        ratio(p, r)
        result = ratio(p.clone().requires_grad_(), r)
    assert seen.count("fastcov.run.default") == 2
    assert result.requires_grad


def test_fake_and_meta_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        p = mode.from_tensor(momenta(3).requires_grad_())
        result = matrix(p, p, components="xy")[0]
        assert (result.shape, result.stride(), result.requires_grad) == ((3, 2, 2), (4, 2, 1), True)
        assert torch.autograd.grad(result.sum(), p)[0].shape == (3, 4)
    assert ratio(momenta(3).to("meta"), momenta(3).to("meta")).shape == (3,)


def test_make_fx_records_transforms():
    from torch.fx.experimental.proxy_tensor import make_fx

    def transformed(p, r):
        return hessian(lambda p: ratio(p, r).sum())(p), jvp(lambda p: ratio(p, r), (p,), (r,))[1]

    graph = make_fx(transformed, tracing_mode="symbolic")(momenta(3), momenta(3, seed=1))
    assert any("fastcov" in str(node.target) for node in graph.graph.nodes)
    p, r = momenta(3, seed=2), momenta(3, seed=3)
    assert_close(graph(p, r), transformed(p, r))


def test_subclasses_and_modes_that_change_defaults():
    class Own(torch.Tensor):
        pass

    p, r = momenta(3), momenta(3, seed=1)
    wanted = ratio(p, r)
    assert_equal(ratio(p.as_subclass(Own), r).as_subclass(torch.Tensor), wanted)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        halved = ratio(p.float(), r.float())
    assert_equal(halved, ratio(p.float(), r.float()))
    with torch.inference_mode():
        assert_equal(ratio(p, r), wanted)
    with torch.device("meta"):
        assert amplitude(p, r, 2.0)["sum"].device.type == "cpu"


def test_functions_travel():
    p, r = momenta(3).requires_grad_(), momenta(3, seed=1)
    wanted = ratio(p, r)
    for function in (pickle.loads(pickle.dumps(ratio)), copy.deepcopy(ratio)):
        assert_equal(function(p, r).detach(), wanted.detach())


# Triton's interpreter, which has to be switched on before Triton is imported


def test_gradcheck_in_the_interpreter_of_triton():
    pytest.importorskip("triton")
    script = """
import numpy as np, torch, fastcov as fc
from torch.autograd import gradcheck, gradgradcheck

@fc.fused(backend="triton-interpret")
def f(p, r, s: fc.Scalar):
    return fc.dot(p, r) * s * p, fc.sum(fc.dot(p, p))

rng = np.random.default_rng(0)
p, r = (torch.from_numpy(rng.normal(size=shape)).requires_grad_() for shape in ((2, 4), (4,)))
s = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
assert gradcheck(f, (p, r, s), check_forward_ad=True)
assert gradgradcheck(f, (p, r, s))
arrays = p.detach().numpy()[::-1], np.broadcast_to(r.detach().numpy(), (2, 4)), 1.5
for a, b in zip(f(*arrays), f(*arrays, backend="cpu"), strict=True):
    assert isinstance(a, np.ndarray) and np.array_equal(a, b)
with_columns = f(tuple(p.detach().T), r.detach(), 1.5), f(p.detach(), r.detach(), 1.5)
assert all(torch.equal(a, b) for a, b in zip(*with_columns, strict=True))
"""
    subprocess.run([sys.executable, "-c", script], env={**os.environ, "TRITON_INTERPRET": "1"}, check=True)
