"""Contraction: products of structured tensors, their repeated indices worked off on the labels.

Three kinds of steps, repeated until no index is repeated:

1. A vector walks. It contracts with a vector to a dot product, through a metric to a projected vector, into a
   projector or an epsilon as one of their bound vectors. Metrics of one momentum compose, projectors of one momentum
   absorb each other: P P = +-P, P g~ = P, and the trace over one pair of indices lowers the spin by one.
2. A projector or epsilon with a single open index left is a vector: it becomes one node, added up over the terms that
   differ in nothing else.
3. Only what is stuck is expanded, the cheapest factor first: a projector into its pairings, a metric between two
   momenta into g - p p / p^2, a pair of epsilons into minus the determinant of metrics.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import count, permutations
from math import factorial

from . import polynomial
from .graph import Graph, Node
from .polynomial import Polynomial
from .tensors import (
    Epsilon,
    Factor,
    Factors,
    Metric,
    Projector,
    Side,
    Tensor,
    Terms,
    Vector,
    add_term,
    common_graph,
    ordered_epsilon,
    relabelled,
    renamed,
    split_vector,
)

Replacement = list[tuple[Polynomial, list[Factor]]]
UNIT = polynomial.constant(1)


def parse(spec: str, ranks: list[int]) -> tuple[list[str], str]:
    """The operands' letters and the output's of an einsum.

    Raises ValueError, naming the operand, for anything that is no sum over pairs of indices.
    """
    inputs, arrow, output = spec.replace(" ", "").partition("->")
    if not arrow:
        raise ValueError(f"einsum: spec {spec!r} has no '->': the output indices must be given")
    letters = inputs.split(",")
    if len(letters) != len(ranks):
        raise ValueError(f"einsum: spec {spec!r} has {len(letters)} operands, {len(ranks)} were given")
    for n, (word, rank) in enumerate(zip(letters, ranks, strict=True)):
        if word and not (word.isascii() and word.isalpha()):
            raise ValueError(f"einsum: operand {n}, {word!r} in {spec!r}: an index is one letter")
        if len(word) != rank:
            raise ValueError(f"einsum: operand {n} has rank {rank}, but {word!r} in {spec!r} has {len(word)} indices")
    if output and not (output.isascii() and output.isalpha()):
        raise ValueError(f"einsum: output {output!r} in {spec!r}: an index is one letter")
    counts = Counter("".join(letters))
    for n, word in enumerate(letters):
        for letter in word:
            index = f"einsum: index {letter!r} of operand {n} in {spec!r}"
            if counts[letter] > 2:
                raise ValueError(f"{index} occurs {counts[letter]} times")
            if counts[letter] == 2 and letter in output:
                raise ValueError(f"{index} is repeated and also in the output")
            if counts[letter] == 1 and letter not in output:
                raise ValueError(f"{index} is neither repeated nor in the output")
    for letter in output:
        if letter not in counts:
            raise ValueError(f"einsum: output index {letter!r} is in no operand of {spec!r}")
        if output.count(letter) > 1:
            raise ValueError(f"einsum: output index {letter!r} occurs twice in {spec!r}")
    return letters, output


def einsum(spec: str, operands: list[Tensor], plain: bool = False) -> Tensor:
    """The contraction of tensors; `plain` sums components as they stand instead of with the metric."""
    letters, output = parse(spec, [t.rank for t in operands])
    graph = common_graph(*operands)
    free = {letter: n for n, letter in enumerate(output)}
    fresh = count(len(output))
    first: dict[str, tuple[int, bool]] = {}
    lower = dict.fromkeys(output, False)
    links: list[Factor] = []
    parts: list[Terms] = []
    for word, tensor in zip(letters, operands, strict=True):
        names: list[int] = []
        for letter, low in zip(word, tensor.lower, strict=True):
            if letter in free:
                names.append(free[letter])
                lower[letter] = low
            elif letter not in first:
                first[letter] = next(fresh), low
                names.append(first[letter][0])
            elif plain and low == first[letter][1]:
                names.append(next(fresh))
                links.append(Metric(None, first[letter][0], names[-1], flipped=True))
            else:
                names.append(first[letter][0])
        parts.append(relabelled(tensor.terms, names.__getitem__))
    if links:
        parts.insert(0, {tuple(links): UNIT})
    terms = product(graph, parts)
    return Tensor(graph, terms, tuple(lower[letter] for letter in output))


def product(graph: Graph | None, operands: list[Terms]) -> Terms:
    """The product of operands, every slot that occurs twice contracted.

    Operands are multiplied in one at a time, those that share an index with what is there first, vectors before
    tensors, and terms that have become equal are merged after each.
    """
    waiting = list(operands)
    total = waiting.pop(0)
    while waiting:
        used = {slot for factors in total for f in factors for slot in f.slots}
        waiting.sort(key=lambda terms: _rank_sharing(terms, used))
        other = waiting.pop(0)
        multiplied: Terms = {}
        for left, a in total.items():
            for right, b in other.items():
                add_term(multiplied, (*left, *right), polynomial.multiply(a, b))
        total = _walk(graph, multiplied)
    return finish(graph, total)


def _rank_sharing(terms: Terms, used: set[int]) -> tuple[bool, int]:
    slots = {slot for factors in terms for f in factors for slot in f.slots}
    return not slots & used, len(slots)


def finish(graph: Graph | None, terms: Terms) -> Terms:
    """Terms without repeated slots."""
    while True:
        terms = _walk(graph, terms)
        folded = _fold(graph, terms)
        if folded is None:
            folded = _expand_stuck(graph, terms)
            if folded is None:
                return terms
        terms = folded


def repeated(factors: Factors) -> set[int]:
    counts = Counter(slot for f in factors for slot in f.slots)
    return {slot for slot, count in counts.items() if count == 2}


# 1. Walking


def _walk(graph: Graph | None, terms: Terms) -> Terms:
    done: Terms = {}
    waiting = terms
    while waiting:
        following: Terms = {}
        for factors, coefficient in waiting.items():
            step = _step(graph, factors)
            if step is None:
                add_term(done, factors, coefficient)
                continue
            for weight, new in step:
                add_term(following, new, polynomial.multiply(coefficient, weight))
        waiting = following
    return done


def _step(graph: Graph | None, factors: Factors) -> Replacement | None:
    """One rule applied to one term: the terms that replace it, None if no rule applies."""
    places: defaultdict[int, list[int]] = defaultdict(list)
    for n, factor in enumerate(factors):
        for slot in factor.slots:
            places[slot].append(n)
    for slot, at in places.items():
        if len(at) < 2:
            continue
        a, b = (factors[n] for n in at)
        replacement = _trace(a, slot) if a is b else _join(a, b, slot)
        if replacement is not None:
            rest = [f for n, f in enumerate(factors) if n not in at]
            return [(weight, rest + new) for weight, new in replacement]
    return None


def _trace(factor: Factor, slot: int) -> Replacement:
    """A factor with two of its own slots contracted."""
    match factor:
        case Metric(None, _, _, flipped):
            return [(polynomial.constant(-2 if flipped else 4), [])]
        case Metric(_, _, _, False):
            return [(polynomial.constant(3), [])]
        case Metric(Node() as p):
            graph = p.graph
            total = polynomial.constant(-2)
            polynomial.add_to(total, polynomial.multiply(_dot(p, graph.vlower(p)), _inverse_square(p)), -1)
            return [(total, [])]
        case Projector(spin, p, left, right):
            if slot not in left.open or slot not in right.open:
                return []
            smaller = [Side(s.vectors, tuple(x for x in s.open if x != slot)) for s in (left, right)]
            weight = polynomial.constant(Fraction(-(2 * spin + 1), 2 * spin - 1))
            return [(weight, [] if spin == 1 else [Projector(spin - 1, p, *smaller).ordered()])]
    return []  # an epsilon


def _join(a: Factor, b: Factor, slot: int) -> Replacement | None:
    """Two factors contracted over `slot`; None if that is for later."""
    a, b = sorted((a, b), key=lambda f: (not isinstance(f, Vector), not isinstance(f, Metric), isinstance(f, Epsilon)))
    match a, b:
        case Vector(u), Vector(v):
            return [(_dot(u, v), [])]
        case Vector(v), Metric():
            return _through(v, b, slot)
        case Vector(v), Projector():
            return _into_projector(v, b, slot)
        case Vector(v), Epsilon():
            return into_epsilon(v, b, slot)
        case Metric(None, _, _, False), _:
            new = _other(a, slot)
            return _renamed(b, slot, new)
        case Metric(), Metric():
            return _composed(a, b, slot)
        case Metric(Node() as p, _, _, False), Projector(_, q):
            other = _other(a, slot)
            if p is q:
                return _renamed(b, slot, other)
            for side in (b.left, b.right):
                if slot in side.open and other in side.open:  # b is traceless: g~(p) acts as -p p / p^2
                    return [(polynomial.scale(_inverse_square(p), -1), [Vector(p, slot), Vector(p, other), b])]
        case Metric(p, _, _, False), Epsilon(_, vectors) if p in vectors:
            return _renamed(b, slot, _other(a, slot))
        case Projector(_, p), Projector(_, q) if p is q:
            return _absorbed(a, b)
    return None


def _renamed(factor: Factor, slot: int, new: int) -> Replacement:
    sign, factor = renamed(factor, lambda s: new if s == slot else s)
    return [(polynomial.constant(sign), [factor])] if sign else []


def _other(metric: Metric, slot: int) -> int:
    return metric.b if metric.a == slot else metric.a


def _through(v: Node, metric: Metric, slot: int) -> Replacement:
    """A vector through g~(p) D, entering at `slot`."""
    if metric.a == slot:
        metric = metric.turned()
    graph = v.graph
    weight = Fraction(1)
    node = graph.vlower(v) if metric.flipped else v
    if metric.p is not None:
        weight, node = graph.transverse(metric.p, node)
    coefficient, node = split_vector(node)
    return [(polynomial.scale(coefficient, weight), [Vector(node, metric.a)])] if coefficient else []


def _composed(a: Metric, b: Metric, slot: int) -> Replacement | None:
    """g~(p) D g~(q) D' = g~(p) g~(Dq) D D'."""
    if a.a == slot:
        a = a.turned()
    if b.b == slot:
        b = b.turned()
    q = b.p.graph.vlower(b.p) if b.p is not None and a.flipped else b.p
    if a.p is not None and q is not None and a.p is not q:
        return None
    metric = Metric(a.p or q, a.a, b.b, a.flipped != b.flipped)
    return [(UNIT, [metric if metric.a <= metric.b else metric.turned()])]


def _into_projector(v: Node, projector: Projector, slot: int) -> Replacement:
    weight, node = v.graph.transverse(projector.p, v)
    coefficient, node = split_vector(node)
    if not coefficient:
        return []
    left, right = (s.with_vector(slot, node) if slot in s.open else s for s in (projector.left, projector.right))
    bound = Projector(projector.spin, projector.p, left, right).ordered()
    return [(polynomial.scale(coefficient, weight), [bound])]


def into_epsilon(v: Node, epsilon: Epsilon, slot: int) -> Replacement:
    k = epsilon.slots.index(slot)
    slots = epsilon.slots[:k] + epsilon.slots[k + 1 :]
    sign, bound = ordered_epsilon(slots, (v, *epsilon.vectors))
    sign *= (-1) ** (len(slots) - k)
    return [(polynomial.constant(sign), [bound])] if sign else []


def _absorbed(a: Projector, b: Projector) -> Replacement | None:
    """P^(L') with one whole side on a side of P^(L) of the same momentum acts on it as (-1)^L'."""
    for big, small in ((a, b), (b, a)):
        for side, other in ((small.left, small.right), (small.right, small.left)):
            for target in (big.left, big.right):
                if not side.vectors and set(side.open) <= set(target.open):
                    vectors = tuple(sorted(target.vectors + other.vectors, key=lambda v: v.key))
                    slots = tuple(sorted([s for s in target.open if s not in side.open] + list(other.open)))
                    rest = big.right if target is big.left else big.left
                    new = Projector(big.spin, big.p, Side(vectors, slots), rest).ordered()
                    return [(polynomial.constant((-1) ** small.spin), [new])]
    return None


def _dot(a: Node, b: Node) -> Polynomial:
    return polynomial.from_node(a.graph.dot(a, b))


def _inverse_square(p: Node) -> Polynomial:
    return polynomial.from_node(p.graph.reciprocal(p.graph.dot(p, p)))


# 2. Folding


def _fold(graph: Graph | None, terms: Terms) -> Terms | None:
    """In each term, one factor whose last open slot is repeated, or that has none, becomes a vector or a scalar."""
    groups: defaultdict[tuple[Factors, int | None], Terms] = defaultdict(dict)
    result: Terms = {}
    for factors, coefficient in terms.items():
        again = repeated(factors)
        for n, factor in enumerate(factors):
            if isinstance(factor, (Projector, Epsilon)) and len(factor.slots) < 2 and set(factor.slots) <= again:
                slot = factor.slots[0] if factor.slots else None
                add_term(groups[factors[:n] + factors[n + 1 :], slot], (factor,), coefficient)
                break
        else:
            add_term(result, factors, coefficient)
    if not groups:
        return None
    assert graph is not None
    for (rest, slot), parts in groups.items():
        expanded = expand(parts)
        if slot is None:
            total = polynomial.from_node(polynomial.to_node(graph, expanded.get((), {})))
            add_term(result, rest, total)
        elif expanded:
            weight, node = vector_node(graph, expanded)
            add_term(result, (*rest, Vector(node, slot)), weight)
    return result


def vector_node(graph: Graph, terms: Terms) -> tuple[Polynomial, Node]:
    """A sum of vectors as coefficient times one node; the coefficient is what all its terms share."""
    if not terms:
        return UNIT, graph.zero_vector()
    parts = [(f.node, coefficient) for (f,), coefficient in terms.items() if isinstance(f, Vector)]
    parts.sort(key=lambda part: part[0].key)
    value, common = polynomial.content([coefficient for _, coefficient in parts])
    weights = [
        (polynomial.to_node(graph, polynomial.divided(coefficient, value, common)), node) for node, coefficient in parts
    ]
    # A weight of one starts the sum: it costs no multiplication.
    weights.sort(key=lambda part: part[0].op != "constant")
    coefficient, node = split_vector(graph.vsum(graph.vscale(weight, node) for weight, node in weights))
    return polynomial.multiply({common: value}, coefficient), node


# 3. Expanding


def _expand_stuck(graph: Graph | None, terms: Terms) -> Terms | None:
    """Terms with repeated slots, the cheapest factor of each expanded; None if there are none."""
    result: Terms = {}
    changed = False
    for factors, coefficient in terms.items():
        again = repeated(factors)
        if not again:
            add_term(result, factors, coefficient)
            continue
        changed = True
        for weight, new in _cheapest(graph, factors, again):
            add_term(result, new, polynomial.multiply(coefficient, weight))
    return result if changed else None


def _cheapest(graph: Graph | None, factors: Factors, again: set[int]) -> Replacement:
    best: tuple[int, int] | None = None
    for n, factor in enumerate(factors):
        if not again & set(factor.slots):
            continue
        match factor:
            case Projector():
                cost = pairing_count(factor)
            case Metric():
                cost = 3
            case _:
                continue
        if best is None or cost < best[0]:
            best = cost, n
    pairs = _epsilon_pairs(factors, again)
    if pairs and (best is None or min(pairs)[0] <= best[0]):
        _, *gone = min(pairs)
    else:
        assert best is not None, factors
        gone = [best[1]]
    match [factors[n] for n in gone]:
        case [Metric() as metric]:
            replacement = expand_metric(graph, metric)
        case [Projector() as projector]:
            replacement = expand_projector(projector)
        case [Epsilon() as a, Epsilon() as b]:
            replacement = epsilon_pair(a, b)
    rest = [f for n, f in enumerate(factors) if n not in gone]
    return [(weight, rest + new) for weight, new in replacement]


def _epsilon_pairs(factors: Factors, again: set[int]) -> list[tuple[int, int, int]]:
    """Pairs of epsilons that share a slot: (how many terms their product has, index, index)."""
    at = [n for n, f in enumerate(factors) if isinstance(f, Epsilon)]
    pairs = []
    for i in at:
        for k in at:
            common = set(factors[i].slots) & set(factors[k].slots)
            if i < k and common:
                pairs.append((factorial(4 - len(common)), i, k))
    return pairs


def epsilon_pair(a: Epsilon, b: Epsilon) -> Replacement:
    """epsilon^{abcd} epsilon^{efgh} = -det of the metrics between one's indices and the other's."""
    common = [s for s in a.slots if s in b.slots]
    weight = -factorial(len(common))
    rows, sign_a = _without(a, common)
    columns, sign_b = _without(b, common)
    result: Replacement = []
    for order in permutations(range(len(rows))):
        inversions = sum(order[i] > order[k] for k in range(len(order)) for i in range(k))
        coefficient = polynomial.constant(weight * sign_a * sign_b * (-1) ** inversions)
        new: list[Factor] = []
        for row, column in zip(rows, order, strict=True):
            match row, columns[column]:
                case Node() as u, Node() as v:
                    coefficient = polynomial.multiply(coefficient, _dot(u, v))
                case (Node() as u, int(slot)) | (int(slot), Node() as u):
                    new.append(Vector(u, slot))
                case int(i), int(k):
                    new.append(Metric(None, min(i, k), max(i, k)))
        if coefficient:
            result.append((coefficient, new))
    return result


def _without(epsilon: Epsilon, common: list[int]) -> tuple[list[int | Node], int]:
    """The other entries of an epsilon once `common` has been moved to its front, and the sign of that."""
    slots = list(epsilon.slots)
    sign = 1
    for n, slot in enumerate(common):
        k = slots.index(slot)
        slots.insert(n, slots.pop(k))
        sign *= (-1) ** (k - n)
    return [*slots[len(common) :], *epsilon.vectors], sign


def expand_metric(graph: Graph | None, metric: Metric) -> Replacement:
    """g~(p) D = D - p (Dp) / p^2, and D alone = 2 u u - g with u along E.

    Raises ValueError for D where nothing but constants is contracted: there is no graph to make u in.
    """
    p, a, b, flipped = metric
    if graph is None:
        raise ValueError(
            "einsum: with metric=None, a contraction of the Levi-Civita tensor needs a 4-vector among the operands"
        )
    if p is None:
        u = graph.unit(3)
        return [
            (polynomial.constant(2), [Vector(u, a), Vector(u, b)]),
            (polynomial.constant(-1), [Metric(None, a, b)]),
        ]
    end = graph.vlower(p) if flipped else p
    weight, node = split_vector(end)
    return [
        (UNIT, [Metric(None, a, b, flipped)]),
        (polynomial.scale(polynomial.multiply(_inverse_square(p), weight), -1), [Vector(p, a), Vector(node, b)]),
    ]


def expand(terms: Terms) -> Terms:
    """The terms with every projector and every epsilon of one open slot written out."""
    result: Terms = {}
    waiting = dict(terms)
    while waiting:
        factors, coefficient = waiting.popitem()
        for n, factor in enumerate(factors):
            replacement: Replacement | None = None
            if isinstance(factor, Projector):
                replacement = expand_projector(factor)
            elif isinstance(factor, Epsilon) and len(factor.slots) < 2:
                replacement = _epsilon_vector(factor)
            if replacement is not None:
                rest = factors[:n] + factors[n + 1 :]
                for weight, new in replacement:
                    add_term(waiting, (*rest, *new), polynomial.multiply(coefficient, weight))
                break
        else:
            add_term(result, factors, coefficient)
    return result


def _epsilon_vector(epsilon: Epsilon) -> Replacement:
    """epsilon with three vectors is a vector, with four a scalar."""
    *first, b, c, d = epsilon.vectors
    graph = d.graph
    sign, node = graph.cross(b, c, d)
    if epsilon.slots:
        return [(polynomial.constant(sign), [Vector(node, epsilon.slots[0])])]
    return [(polynomial.scale(_dot(first[0], node), sign), [])]


# Projectors as sums of pairings


def pairing_weight(spin: int, inside: int) -> Fraction:
    """The weight of each pairing of P^(L) with `inside` pairs within either side; eqs. (20-22) and their extension.

    With c_k of the orbital tensor, c_0 = 1 and c_k = -c_{k-1} / (2L + 1 - 2k), it is (-1)^L c_k 2^k k! / L!.
    """
    c = orbital_weight(spin, inside)
    sign = -1 if spin % 2 else 1
    return sign * c * (1 << inside) * factorial(inside) / factorial(spin)


def orbital_weight(spin: int, inside: int) -> Fraction:
    """c_k of t~^(L) = sum_k c_k (r~^2)^k sum of g~ on k disjoint index pairs, r~ on the rest; eqs. (10-12, 23)."""
    c = Fraction(1)
    for k in range(1, inside + 1):
        c /= -(2 * spin + 1 - 2 * k)
    return c


Item = tuple[int, int]  # (0, position of a vector among the bound ones) or (1, slot)
Pairs = tuple[tuple[Item, Item], ...]


def _pairings(projector: Projector) -> Iterator[tuple[Fraction, Pairs]]:
    """Every distinct pairing of the 2L entries with its weight; equal vectors are counted, not enumerated."""
    index = {v: n for n, v in enumerate(dict.fromkeys(projector.left.vectors + projector.right.vectors))}
    sides = [
        tuple(sorted([(0, index[v]) for v in side.vectors] + [(1, s) for s in side.open]))
        for side in (projector.left, projector.right)
    ]
    for inside in range(projector.spin // 2 + 1):
        weight = pairing_weight(projector.spin, inside)
        for (left, left_rest), m in _inner(sides[0], inside).items():
            for (right, right_rest), n in _inner(sides[1], inside).items():
                for across, k in _across(left_rest, right_rest).items():
                    yield weight * m * n * k, left + right + across


@lru_cache(maxsize=4096)
def _inner(items: tuple[Item, ...], pairs: int) -> dict[tuple[Pairs, tuple[Item, ...]], int]:
    """Ways to make `pairs` disjoint pairs of the items: {(the pairs, the rest): how often}."""
    if pairs == 0:
        return {((), items): 1}
    if len(items) < 2 * pairs:
        return {}
    result: Counter[tuple[Pairs, tuple[Item, ...]]] = Counter()
    first, others = items[0], items[1:]
    for (made, rest), ways in _inner(others, pairs).items():
        result[made, (first, *rest)] += ways
    for partner, many in Counter(others).items():
        at = others.index(partner)
        for (made, rest), ways in _inner(others[:at] + others[at + 1 :], pairs - 1).items():
            result[tuple(sorted((*made, (first, partner)))), rest] += many * ways
    return dict(result)


@lru_cache(maxsize=4096)
def _across(left: tuple[Item, ...], right: tuple[Item, ...]) -> dict[Pairs, int]:
    """Ways to pair each item of one side with one of the other."""
    if not left:
        return {(): 1}
    result: Counter[Pairs] = Counter()
    for partner, many in Counter(right).items():
        at = right.index(partner)
        for made, ways in _across(left[1:], right[:at] + right[at + 1 :]).items():
            result[tuple(sorted((*made, (left[0], partner))))] += many * ways
    return dict(result)


def pairing_count(projector: Projector) -> int:
    return sum(1 for _ in _pairings(projector))


def expand_projector(projector: Projector) -> Replacement:
    """A projector as its pairings: dot products of bound vectors, vectors on open slots, metrics between slots."""
    vectors = list(dict.fromkeys(projector.left.vectors + projector.right.vectors))
    p = projector.p
    total: Terms = {}
    for weight, pairs in _pairings(projector):
        coefficient = polynomial.constant(weight)
        factors: list[Factor] = []
        for (kind_a, a), (kind_b, b) in pairs:
            if kind_a == kind_b == 0:
                coefficient = polynomial.multiply(coefficient, _dot(vectors[a], vectors[b]))
            elif kind_a == kind_b:
                factors.append(Metric(p, min(a, b), max(a, b)))
            else:
                factors.append(Vector(vectors[a], b) if kind_a == 0 else Vector(vectors[b], a))
        if coefficient:
            add_term(total, factors, coefficient)
    return [(coefficient, list(factors)) for factors, coefficient in total.items()]
