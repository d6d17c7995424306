"""einsum: the specification, the metric, and contractions that shorten by structure."""

from fractions import Fraction
from math import factorial, prod

import numpy as np
import pytest
import tape_exact
from numpy.polynomial.legendre import Legendre

import fastcov as fc
from fastcov import contract, reference
from fastcov.graph import Graph
from fastcov.tensors import Projector, Side

EPS = np.finfo(float).eps
METRIC = np.diag([-1.0, -1, -1, 1])
rng = np.random.default_rng(8)


def time_like(count, mass=(0.5, 2.0)):
    p = rng.normal(size=(count, 4)) / 3
    p[:, 3] = np.sqrt(np.sum(p[:, :3] ** 2, axis=1) + rng.uniform(*mass, count) ** 2)
    return p


N = 6
P, Q, R, K = (time_like(N) for _ in range(4))


def assert_close(got, wanted, tolerance=1e-12):
    assert got.shape == wanted.shape
    scale = np.max(np.abs(wanted), axis=tuple(range(1, wanted.ndim)), keepdims=True)
    assert np.all(np.abs(got - wanted) <= tolerance * scale)


def size(function):
    """Operations on vectors and scalars other than loads and stores."""
    counts = fc.fused(function).cost.operations
    return sum(n for name, n in counts.items() if not name.startswith(("load", "store")))


# The specification


@pytest.mark.parametrize(
    ("spec", "operands", "error", "words"),
    [
        ("ij,j", "tv", ValueError, r"no '->'"),
        ("ij->ij", "tv", ValueError, "has 1 operands, 2 were given"),
        ("ij,j,k->ik", "tv", ValueError, "has 3 operands, 2 were given"),
        ("ij,jk->ik", "tv", ValueError, r"operand 1 has rank 1, but 'jk' .* has 2 indices"),
        ("i,j->ij", "tv", ValueError, r"operand 0 has rank 2, but 'i' .* has 1 indices"),
        ("ij,i->i", "tv", ValueError, r"index 'i' of operand 0 .* repeated and also in the output"),
        ("ii,i->", "tv", ValueError, r"index 'i' of operand 0 .* occurs 3 times"),
        ("ij,j->", "tv", ValueError, r"index 'i' of operand 0 .* neither repeated nor in the output"),
        ("ij,k->ik", "tv", ValueError, r"index 'j' of operand 0 .* neither repeated nor in the output"),
        ("ij,k->ijkm", "tv", ValueError, r"output index 'm' is in no operand"),
        ("ij,k->iijk", "tv", ValueError, r"output index 'i' occurs twice"),
        ("i.,j->i", "tv", ValueError, r"operand 0, 'i\.' .* an index is one letter"),
        ("...ij,j->i", "tv", ValueError, r"operand 0, '\.\.\.ij' .* an index is one letter"),
        ("ij,1->ij1", "tv", ValueError, r"operand 1, '1' .* an index is one letter"),
        ("ij,\u03bc->ij\u03bc", "tv", ValueError, "an index is one letter"),
        ("ij,k->ijk->", "tv", ValueError, r"output 'ijk->' .* an index is one letter"),
        (("ij", "j"), "tv", TypeError, "spec must be a text such as 'ij,j->i', not tuple"),
    ],
)
@pytest.mark.parametrize("on_arrays", [False, True])
def test_bad_specification(spec, operands, error, words, on_arrays):
    def call(p):
        made = {"t": fc.transverse(p), "v": p}
        return fc.einsum(spec, *(made[o] for o in operands))

    with pytest.raises(error, match=words):
        call(P) if on_arrays else fc.fused(call)(P)


def test_spaces_do_not_matter():
    assert np.array_equal(
        fc.dense(fc.einsum(" i j , j -> i ", fc.transverse(P), Q)), fc.dense(fc.einsum("ij,j->i", fc.transverse(P), Q))
    )


def test_bad_operand():
    with pytest.raises(TypeError, match="operand 1 must be a tensor or a 4-vector, not str"):
        fc.fused(lambda p: fc.einsum("i,i->", p, "p"))(P)
    with pytest.raises(ValueError, match="metric must be 'lorentz' or None, not 'euclid'"):
        fc.einsum("i,i->", P, Q, metric="euclid")


# The metric


def test_repeated_indices_take_the_metric():
    tensor = fc.orbital(2, P, Q)
    dense = reference.orbital(2, P, Q)
    assert_close(fc.dense(fc.einsum("ij,j->i", tensor, R)), np.einsum("nij,jk,nk->ni", dense, METRIC, R))
    assert_close(fc.dense(fc.einsum("i,i->", P, Q)), np.einsum("ni,ij,nj->n", P, METRIC, Q))


def test_the_result_does_not_depend_on_where_indices_sit():
    t, u, v = fc.orbital(3, P, Q), fc.transverse(R), K
    wanted = fc.dense(fc.einsum("ijk,jl,k->il", t, u, v))
    for a in (t, fc.lower(t)):
        for b in (u, fc.lower(u)):
            for c in (v, fc.lower(v)):
                got = fc.dense(fc.einsum("ijk,jl,k->il", a, b, c))
                for axis, tensor in ((-2, a), (-1, b)):
                    if tensor not in (t, u):
                        got = np.moveaxis(np.moveaxis(got, axis, -1) * np.diag(METRIC), -1, axis)
                assert np.array_equal(got, wanted)


def test_lower():
    dense = fc.dense(fc.orbital(3, P, Q))
    assert np.array_equal(fc.dense(fc.lower(fc.orbital(3, P, Q))), reference.lower(dense, 3))
    assert np.array_equal(fc.dense(fc.lower(P)), P * np.diag(METRIC))
    assert np.array_equal(fc.dense(fc.lower(fc.metric())), METRIC)
    with pytest.raises(ValueError, match="the indices of t are lower, lower, not all upper"):
        fc.dense(fc.lower(fc.lower(fc.transverse(P))))
    with pytest.raises(ValueError, match="cannot add tensors with indices upper, upper and lower, lower"):
        fc.dense(fc.transverse(P) + fc.lower(fc.metric()))


def test_without_the_metric_it_is_numpy_einsum():
    operands = fc.orbital(3, P, Q), fc.transverse(R), fc.projector(2, K), P
    dense = [fc.dense(o) for o in operands[:3]] + [P]
    for spec in ("abc,bd,daef,e->cf", "aab,cd,efbg,g->cdef", "abc,cd,efab,f->de", "aab,bc,ddce,e->"):
        got = fc.dense(fc.einsum(spec, *operands, metric=None))
        inputs, output = spec.split("->")
        wanted = np.einsum(",".join("n" + w for w in inputs.split(",")) + "->n" + output, *dense)
        assert_close(got, wanted, 1e-11)


def test_without_the_metric_lower_indices_count_as_they_stand():
    t = fc.transverse(P)
    up, down = fc.dense(t), fc.dense(fc.lower(t))
    for a, x in ((t, up), (fc.lower(t), down)):
        for b, y in ((Q, Q), (fc.lower(Q), Q * np.diag(METRIC))):
            assert_close(fc.dense(fc.einsum("ij,j->i", a, b, metric=None)), np.einsum("nij,nj->ni", x, y))
    assert_close(fc.dense(fc.einsum("ii->", t, metric=None)), np.einsum("nii->n", up))


def test_sums_without_the_metric_through_two_momenta():
    """The parity that they bring moves through transverse metrics: g~(p) D g~(q) = g~(p) g~(Dq) D."""
    a, b, c = fc.transverse(P), fc.transverse(Q), fc.transverse(R)
    x, y, z = (fc.dense(t) for t in (a, b, c))
    got = fc.dense(fc.einsum("ij,jk,kl->il", a, b, c, metric=None))
    assert_close(got, np.einsum("nij,njk,nkl->nil", x, y, z))
    assert_close(fc.dense(fc.einsum("ij,jk,ki->", a, b, c, metric=None)), np.einsum("nij,njk,nki->n", x, y, z))
    assert_close(fc.dense(fc.einsum("ij,ji->", a, a, metric=None)), np.einsum("nij,nji->n", x, x))


def test_constants():
    g, e = fc.metric(), fc.levi_civita()
    assert fc.einsum("ii->", g) == 4
    assert fc.einsum("ij,ij->", g, g) == 4
    assert fc.einsum("ii->", g, metric=None) == -2
    assert fc.einsum("ij,jk,ki->", g, g, g, metric=None) == -2
    assert fc.einsum("abcd,abcd->", e, e) == -24
    assert fc.einsum("abcd,ab->cd", e, g).terms == {}
    assert np.array_equal(fc.dense(fc.einsum("ij,jk->ik", g, g)), METRIC)
    assert np.array_equal(fc.dense(fc.einsum("ij,jk->ik", g, g, metric=None)), np.eye(4))
    assert np.array_equal(fc.dense(fc.einsum("abce,abcd->de", e, e)), -6 * METRIC)


def test_components_of_constants_around_an_epsilon():
    """Nothing covariant describes them: refused."""
    with pytest.raises(ValueError, match="needs a 4-vector among the operands"):
        fc.einsum("abcd,de->abce", fc.levi_civita(), fc.metric(), metric=None)


# Levi-Civita


def test_epsilon():
    upper = -reference.levi_civita()
    assert np.array_equal(fc.dense(fc.levi_civita()), upper)
    assert np.array_equal(fc.dense(fc.lower(fc.levi_civita())), reference.levi_civita())
    assert fc.dense(fc.lower(fc.levi_civita()))[0, 1, 2, 3] == 1
    low = [v * np.diag(METRIC) for v in (P, Q, R, K)]
    e = fc.levi_civita()
    assert_close(fc.dense(fc.einsum("abcd,b->acd", e, P)), np.einsum("abcd,nb->nacd", upper, low[0]))
    assert_close(fc.dense(fc.einsum("abcd,b,a->cd", e, P, Q)), np.einsum("abcd,nb,na->ncd", upper, low[0], low[1]))
    assert_close(fc.dense(fc.einsum("abcd,d,a,b->c", e, P, Q, R)), np.einsum("abcd,nd,na,nb->nc", upper, *low[:3]))
    assert_close(fc.dense(fc.einsum("abcd,d,b,c,a->", e, P, Q, R, K)), np.einsum("abcd,nd,nb,nc,na->n", upper, *low))


@pytest.mark.parametrize(
    "spec", ["abcd,efgh->abcdefgh", "abcd,afgh->bcdfgh", "abcd,ebgd->aceg", "abcd,ecad->be", "abcd,bcda->"]
)
def test_pairs_of_epsilons(spec):
    e, dense = fc.levi_civita(), -reference.levi_civita()
    product = fc.einsum(spec, e, e)
    got = fc.dense(product) if spec.partition("->")[2] else float(product)
    assert np.array_equal(got, reference.einsum(spec, dense, dense))


@pytest.mark.parametrize(
    ("spec", "vectors"),
    [
        ("abcd,efgd,a->bcefg", (P,)),
        ("mabc,bcde,a->mde", (P,)),
        ("abcd,cdef,b->aef", (P,)),
        ("mabc,cdef,a,b,d->mef", (P, Q, R)),
        ("mabc,cdef,b,a,f->mde", (P, Q, R)),
        ("abcd,defg,a,g->bcef", (P, Q)),
        ("abcd,befg,c->adefg", (P,)),
        ("abcd,eafg,d,b,g->cef", (P, Q, R)),
    ],
)
def test_pairs_of_epsilons_with_vectors(spec, vectors):
    """Signs depend on how many slots of each are open, and where the common ones are."""
    e, dense = fc.levi_civita(), -reference.levi_civita()
    assert_close(fc.dense(fc.einsum(spec, e, e, *vectors)), reference.einsum(spec, dense, dense, *vectors))


def test_a_pair_of_epsilons_is_no_epsilon():
    """Minus the determinant of metrics: dot products, no cross product."""
    e = fc.levi_civita()
    amplitude = fc.fused(lambda p, q, r: fc.einsum("mabc,a,cbsl,s,l->m", e, p, e, q, r))
    assert "cross" not in amplitude.cost.operations
    eps = -reference.levi_civita()
    assert_close(amplitude(P, Q, R), reference.einsum("mabc,a,cbsl,s,l->m", eps, P, eps, Q, R))


def test_nested_epsilons():
    e, eps = fc.levi_civita(), -reference.levi_civita()
    got = fc.dense(fc.einsum("mabc,a,b,cdsl,d,s,l->m", e, P, Q, e, P, Q, R))
    assert_close(got, reference.einsum("mabc,a,b,cdsl,d,s,l->m", eps, P, Q, eps, P, Q, R), 1e-11)


def test_epsilon_with_a_symmetric_tensor():
    e = fc.levi_civita()
    for tensor in (fc.metric(), fc.transverse(P), fc.orbital(2, P, Q)):
        assert np.array_equal(fc.dense(fc.einsum("abcd,cd->ab", e, tensor)), np.zeros_like(fc.dense(tensor)))
    assert np.array_equal(fc.dense(fc.einsum("aabc->bc", e)), np.zeros((4, 4)))


# Contractions that shorten by structure


@pytest.mark.parametrize("spin", [1, 2, 3, 4, 5, 6])
def test_projectors_absorb(spin):
    """P P = (-1)^L P, P t = (-1)^L t, without one operation more."""
    a, b, c = "abcdef"[:spin], "ghijkl"[:spin], "mnopqr"[:spin]

    def twice(p, r):
        P = fc.projector(spin, p)
        return fc.einsum(f"{a}{b},{b}{c},{','.join(a)},{','.join(c)}->", P, P, *[r] * spin, *[p * 2 + r] * spin)

    def once(p, r):
        P = fc.projector(spin, p) * (-1) ** spin
        return fc.einsum(f"{a}{c},{','.join(a)},{','.join(c)}->", P, *[r] * spin, *[p * 2 + r] * spin)

    assert fc.fused(twice).tape == fc.fused(once).tape

    def bound(p, r, k):
        return fc.einsum(f"{a}{b},{b},{','.join(a)}->", fc.projector(spin, p), fc.orbital(spin, p, r), *[k] * spin)

    def free(p, r, k):
        return fc.einsum(f"{a},{','.join(a)}->", fc.orbital(spin, p, r), *[k] * spin) * (-1) ** spin

    assert fc.fused(bound).tape == fc.fused(free).tape


@pytest.mark.parametrize(("small", "big"), [(1, 2), (1, 3), (2, 3), (2, 4), (3, 4)])
def test_a_projector_absorbs_a_smaller_one(small, big):
    """P^(l) on l indices of P^(L) of the same momentum: (-1)^l P^(L)."""
    a, b, c = "abcd"[:big], "efgh"[:big], "ijkl"[:small]

    def both(p, r, k):
        spec = f"{c}{a[:small]},{a}{b},{','.join(c + a[small:])},{','.join(b)}->"
        return fc.einsum(spec, fc.projector(small, p), fc.projector(big, p), *[r] * big, *[k] * big)

    def one(p, r, k):
        P = fc.projector(big, p) * (-1) ** small
        return fc.einsum(f"{a}{b},{','.join(a)},{','.join(b)}->", P, *[r] * big, *[k] * big)

    assert fc.fused(both).tape == fc.fused(one).tape


def test_a_transverse_metric_is_absorbed():
    """By a projector of its momentum, and by an epsilon that its momentum is bound to."""

    def projected(p, r, k):
        return fc.einsum("xa,abcd,x,b,c,d->", fc.transverse(p), fc.projector(2, p), r, k, k, r)

    def plain(p, r, k):
        return fc.einsum("abcd,a,b,c,d->", fc.projector(2, p), r, k, k, r)

    assert fc.fused(projected).tape == fc.fused(plain).tape

    def bound(p, r, k):
        return fc.einsum("xa,abcd,b,c,d->x", fc.transverse(p), fc.levi_civita(), p, r, k)

    def free(p, r, k):
        return fc.einsum("abcd,b,c,d->a", fc.levi_civita(), p, r, k)

    assert fc.fused(bound).tape == fc.fused(free).tape


def test_an_epsilon_has_no_trace():
    function = fc.fused(lambda p, q: fc.einsum("aabc,b,c->", fc.levi_civita(), p, q))
    assert np.array_equal(function(P, Q), np.zeros(N))
    assert function.cost.flops == 0


@pytest.mark.parametrize("spin", [1, 2, 3, 4, 5, 6])
def test_trace_of_a_projector(spin):
    a = "abcdef"[:spin]
    trace = fc.fused(lambda p: fc.einsum(f"{a}{a}->", fc.projector(spin, p)))
    assert np.array_equal(trace(P), np.full(N, (-1.0) ** spin * (2 * spin + 1)))
    assert trace.cost.flops == 0


@pytest.mark.parametrize("spin", [2, 3, 4, 5, 6])
def test_traces_and_the_momentum_vanish(spin):
    a = "abcdef"[:spin]

    def trace(p, r):
        return fc.einsum(",".join([a, "ab", *a[2:]]) + "->", fc.orbital(spin, p, r), fc.metric(), *[r] * (spin - 2))

    def along(p, r):
        return fc.einsum(",".join([a, *a]) + "->", fc.orbital(spin, p, r), p, *[r] * (spin - 1))

    for amplitude in map(fc.fused, (trace, along)):
        assert amplitude.cost.flops == 0
        assert np.array_equal(amplitude(P, Q), np.zeros(N))


def test_cost_of_the_main_job():
    """T4 with t1 and t2: a chain of projections and dot products, no tensor."""

    def phif243(psi, r4, phi, r1, f, r2):
        T4, t1, t2 = fc.orbital(4, psi, r4), fc.orbital(1, phi, r1), fc.orbital(2, f, r2)
        return fc.einsum("ijkl,j,kl->i", T4, t1, t2)

    assert size(phif243) <= 110
    assert_close(fc.fused(phif243)(P, Q, R, K, P + K, Q - R), reference.phif243_six(P, Q, R, K, P + K, Q - R), 1e-11)


def test_p4_on_seven_vectors():
    def seven(p, *r):
        return fc.einsum("abcdefgh,b,c,d,e,f,g,h->a", fc.projector(4, p), *r)

    names = [time_like(2) for _ in range(8)]
    amplitude = fc.fused(lambda p, a, b, c, d, e, f, g: seven(p, a, b, c, d, e, f, g))
    assert sum(amplitude.cost.operations.values()) <= 600
    dense = reference.projector(4, names[0])
    assert_close(amplitude(*names), reference.einsum("abcdefgh,b,c,d,e,f,g,h->a", dense, *names[1:]), 1e-11)


# The tensors of the formalism, through contractions


@pytest.mark.parametrize("spin", [1, 2, 3, 4, 5, 6])
def test_legendre(spin):
    """t~(r) . t~(k) = L! / (2L-1)!! (r~^2 k~^2)^(L/2) P_L(cos theta), the sign of the metric for odd L."""
    a = "abcdef"[:spin]
    product = fc.fused(lambda p, r, k: fc.einsum(f"{a},{a}->", fc.orbital(spin, p, r), fc.orbital(spin, p, k)))
    mass = 1.7
    r, k = rng.normal(size=(2, 40, 3))
    cosine = np.sum(r * k, 1) / np.sqrt(np.sum(r * r, 1) * np.sum(k * k, 1))
    weight = factorial(spin) / prod(range(1, 2 * spin, 2)) * (-1) ** spin
    lengths = np.sqrt(np.sum(r * r, 1) * np.sum(k * k, 1)) ** spin
    wanted = weight * lengths * Legendre.basis(spin)(cosine)
    still = np.zeros((40, 1))
    four = [np.hstack([x, rng.normal(size=(40, 1))]) for x in (r, k)]
    got = product(np.hstack([still, still, still, still + mass]), *four)
    assert np.all(np.abs(got - wanted) <= 100 * EPS * np.abs(weight) * lengths)


@pytest.mark.parametrize("spin", [5, 6])
def test_high_spin_with_different_vectors(spin):
    """By polarisation: the projector on mixed vectors against orbital tensors, which are sums over states here."""
    p, r, k = P[:2], Q[:2], R[:2]
    a, b = "abcdef"[:spin], "ghijkl"[:spin]
    for rs in range(spin + 1):
        left = [r] * rs + [k] * (spin - rs)
        got = fc.dense(fc.einsum(f"{a}{b},{','.join(a)},{','.join(b)}->", fc.projector(spin, p), *left, *[k] * spin))
        tensor = reference.orbital(spin, p, k) * (-1) ** spin
        assert_close(got, reference.einsum(f"{a},{','.join(a)}->", tensor, *left), 1e-10)


@pytest.mark.parametrize("spin", [5, 6])
def test_high_spin_is_idempotent_and_symmetric(spin):
    a, b, c = "abcdef"[:spin], "ghijkl"[:spin], "mnopqr"[:spin]

    def contracted(p, q, r, k, turn=False):
        vectors, others = (q, r, r, q, q, r)[:spin], (k, k, r, k, r, r)[:spin]
        if turn:
            vectors, others = others[::-1], vectors[::-1]
        return fc.einsum(f"{a}{c},{','.join(a)},{','.join(c)}->", fc.projector(spin, p), *vectors, *others)

    amplitude = fc.fused(lambda p, q, r, k: contracted(p, q, r, k))
    assert amplitude.tape == fc.fused(lambda p, q, r, k: contracted(p, q, r, k, turn=True)).tape
    p, q, r, k = (x[:3] for x in (P, Q, R, K))
    vectors, others = (q, r, r, q, q, r)[:spin], (k, k, r, k, r, r)[:spin]
    half = fc.dense(fc.einsum(f"{a}{b},{','.join(a)}->{b}", fc.projector(spin, p), *vectors))
    other = fc.dense(fc.einsum(f"{b}{c},{','.join(c)}->{b}", fc.projector(spin, p), *others))
    assert_close((-1) ** spin * amplitude(p, q, r, k), reference.einsum(f"{b},{b}->", half, other), 1e-10)
    for n in range(spin - 1):
        assert_close(half, np.swapaxes(half, 1 + n, 2 + n), 1e-13)
    largest = np.max(np.abs(half))
    assert np.max(np.abs(reference.einsum(f"aa{b[2:]}->{b[2:]}", half))) <= 1e-12 * largest
    assert np.max(np.abs(reference.einsum(f"{b},g->{b[1:]}", half, p))) <= 1e-12 * largest


def test_exact_contraction():
    """In rational arithmetic nothing is left to a tolerance: t~4 on mixed vectors is its closed form."""
    p, r, a, b, c, d = ([Fraction(int(x)) for x in rng.integers(-9, 9, 4)] for _ in range(6))
    p[3] += 20
    amplitude = fc.fused(lambda p, r, a, b, c, d: fc.einsum("ijkl,i,j,k,l->", fc.orbital(4, p, r), a, b, c, d))

    def dot(x, y):
        return x[3] * y[3] - x[0] * y[0] - x[1] * y[1] - x[2] * y[2]

    def g(x, y):
        return dot(x, y) - dot(x, p) * dot(y, p) / dot(p, p)

    four = [a, b, c, d]
    wanted = prod(g(x, r) for x in four)
    for i, j in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)):
        k, l = (n for n in range(4) if n not in (i, j))  # noqa: E741
        wanted -= g(r, r) * g(four[i], four[j]) * g(four[k], r) * g(four[l], r) / 7
        wanted += g(r, r) ** 2 * g(four[i], four[j]) * g(four[k], four[l]) / 70
    assert tape_exact.evaluate(amplitude.tape, [p, r, *four]) == [wanted]


def test_pairing_weights():
    """Those of eqs. (20-22), as printed there."""
    weights = {
        1: [Fraction(-1)],
        2: [Fraction(1, 2), Fraction(-1, 3)],
        3: [Fraction(-1, 6), Fraction(1, 15)],
        4: [Fraction(1, 24), Fraction(-1, 84), Fraction(1, 105)],
    }
    for spin, wanted in weights.items():
        assert [contract.pairing_weight(spin, inside) for inside in range(spin // 2 + 1)] == wanted
    assert [contract.orbital_weight(4, k) for k in range(3)] == [1, Fraction(-1, 7), Fraction(1, 35)]


def test_number_of_pairings():
    p = Graph().input(0, "p", True)
    for spin, wanted in ((2, 2 + 1), (3, 6 + 9), (4, 24 + 72 + 9)):
        slots = tuple(range(2 * spin))
        projector = Projector(spin, p, Side((), slots[:spin]), Side((), slots[spin:]))
        assert contract.pairing_count(projector) == wanted
        assert len(contract.expand_projector(projector)) == wanted
