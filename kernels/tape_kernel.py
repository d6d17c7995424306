# mypy: ignore-errors
"""The Triton kernel that runs any tape: it unrolls a lowered program, a constexpr, at compile time.

One program of the grid takes BLOCK events. A scalar is a block of BLOCK numbers, or one number where it is the same
for all events; a vector is a tuple of four of those, in the order x, y, z, E. Each operation appends its result to the
tuple `v`, which later operations index. The operations and their operands are those of `program.lower`.

The bits are IEEE and the same as on every executor: `div_rn` and `sqrt_rn` in float32, where plain `/` and `sqrt` are
approximations; a negation that is a product with -1, since Triton 3.6 makes -a of 0 - a, which loses the sign of zero;
and no fusion to multiply-add, which the compiler is told (`compilation.OPTIONS`).
"""

import triton
import triton.language as tl

from ..opcodes import BY_NAME
from .program import MEMORY


def _number(name: str) -> tl.constexpr:
    return tl.constexpr(BY_NAME[name].number)


CONSTANT = _number("constant")
UNIT = _number("unit")
ADD = _number("add")
SUB = _number("sub")
MUL = _number("mul")
DIV = _number("div")
RECIPROCAL = _number("reciprocal")
SQRT = _number("sqrt")
NEG = _number("neg")
ADD_CONSTANT = _number("add_constant")
MUL_CONSTANT = _number("mul_constant")
VADD = _number("vadd")
VSUB = _number("vsub")
VNEG = _number("vneg")
VLOWER = _number("vlower")
VSCALE = _number("vscale")
VSCALE_CONSTANT = _number("vscale_constant")
VADD_SCALED = _number("vadd_scaled")
VSUB_SCALED = _number("vsub_scaled")
DOT = _number("dot")
CROSS = _number("cross")
COMPONENT = _number("component")
PACK = _number("pack")
PROJECT = _number("project")

LOAD_PACKED = tl.constexpr(MEMORY["load_packed"])
LOAD_UNIT = tl.constexpr(MEMORY["load_unit"])
LOAD_STRIDED = tl.constexpr(MEMORY["load_strided"])
LOAD_SHARED = tl.constexpr(MEMORY["load_shared"])
LOAD_VALUE = tl.constexpr(MEMORY["load_value"])
STORE_PACKED = tl.constexpr(MEMORY["store_packed"])
STORE_PAIR = tl.constexpr(MEMORY["store_pair"])
STORE_UNIT = tl.constexpr(MEMORY["store_unit"])
STORE_STRIDED = tl.constexpr(MEMORY["store_strided"])
SUM = tl.constexpr(MEMORY["sum"])


@triton.jit
def _constant(BITS: tl.constexpr, DTYPE: tl.constexpr):
    if DTYPE == tl.float32:  # noqa: SIM300
        return tl.full([], BITS, tl.int32).to(tl.float32, bitcast=True)
    else:
        return tl.full([], BITS, tl.int64).to(tl.float64, bitcast=True)


@triton.jit
def _divide(a, b):
    if a.dtype == tl.float32:
        return tl.div_rn(a, b)
    else:
        return a / b


@triton.jit
def _root(a):
    if a.dtype == tl.float32:
        return tl.sqrt_rn(a)
    else:
        return tl.sqrt(a)


@triton.jit
def _load_packed(pointer, event, inside, DTYPE: tl.constexpr):
    """Four adjacent numbers of an event, 128 bits at a time: a tile of float64 wider than that would be spread over
    threads and come back through shared memory."""
    pair = tl.arange(0, 2)[None, :]
    if pointer.dtype.element_ty == tl.float64:
        place = pointer + event[:, None] * 4 + pair
        x, y = tl.split(tl.load(place, mask=inside[:, None]))
        z, e = tl.split(tl.load(place + 2, mask=inside[:, None]))
    else:
        place = pointer + event[:, None] * 4 + tl.arange(0, 4)[None, :]
        even, odd = tl.split(tl.reshape(tl.load(place, mask=inside[:, None]), [event.shape[0], 2, 2]))
        x, z = tl.split(even)
        y, e = tl.split(odd)
    return x.to(DTYPE), y.to(DTYPE), z.to(DTYPE), e.to(DTYPE)


@triton.jit
def _store_pair(place, a, b, inside):
    TYPE: tl.constexpr = place.dtype.element_ty
    a = tl.broadcast_to(a.to(TYPE), inside.shape)
    b = tl.broadcast_to(b.to(TYPE), inside.shape)
    tl.store(place[:, None] + tl.arange(0, 2)[None, :], tl.join(a, b), mask=inside[:, None])


@triton.jit
def _store_packed(place, x, y, z, e, inside):
    if place.dtype.element_ty == tl.float64:
        _store_pair(place, x, y, inside)
        _store_pair(place + 2, z, e, inside)
    else:
        TYPE: tl.constexpr = place.dtype.element_ty
        x = tl.broadcast_to(x.to(TYPE), inside.shape)
        y = tl.broadcast_to(y.to(TYPE), inside.shape)
        z = tl.broadcast_to(z.to(TYPE), inside.shape)
        e = tl.broadcast_to(e.to(TYPE), inside.shape)
        tile = tl.reshape(tl.join(tl.join(x, z), tl.join(y, e)), [inside.shape[0], 4])
        tl.store(place[:, None] + tl.arange(0, 4)[None, :], tile, mask=inside[:, None])


@triton.jit
def tape_kernel(
    n,
    pointers,
    strides,
    values,
    OP: tl.constexpr,
    A: tl.constexpr,
    B: tl.constexpr,
    C: tl.constexpr,
    D: tl.constexpr,
    CONSTANTS: tl.constexpr,
    DTYPE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Row i of the program is the operation OP[i] on A[i], B[i], C[i], D[i].

    n: how many events, int64. pointers: to the arrays. strides: between events, in elements, int64. values: the scalars
    passed by value. CONSTANTS: the bits of each, rounded to DTYPE, the type of the arithmetic.
    """
    event = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = event < n
    zero = tl.full([], 0, DTYPE)
    one = tl.full([], 1, DTYPE)
    v = ()
    for i in tl.static_range(len(OP)):
        if OP[i] == LOAD_PACKED:
            result = _load_packed(pointers[A[i]], event, inside, DTYPE)
        elif OP[i] == LOAD_UNIT:
            result = tl.load(pointers[A[i]] + event, mask=inside).to(DTYPE)
        elif OP[i] == LOAD_STRIDED:
            result = tl.load(pointers[A[i]] + event * strides[B[i]], mask=inside).to(DTYPE)
        elif OP[i] == LOAD_SHARED:
            result = tl.load(pointers[A[i]]).to(DTYPE)
        elif OP[i] == LOAD_VALUE:
            result = tl.full([], values[A[i]], tl.float64).to(DTYPE)
        elif OP[i] == CONSTANT:
            result = _constant(CONSTANTS[A[i]], DTYPE)
        elif OP[i] == UNIT:
            if A[i] == 0:
                result = (one, zero, zero, zero)
            elif A[i] == 1:
                result = (zero, one, zero, zero)
            elif A[i] == 2:
                result = (zero, zero, one, zero)
            else:
                result = (zero, zero, zero, one)
        elif OP[i] == ADD:
            result = v[A[i]] + v[B[i]]
        elif OP[i] == SUB:
            result = v[A[i]] - v[B[i]]
        elif OP[i] == MUL:
            result = v[A[i]] * v[B[i]]
        elif OP[i] == DIV:
            result = _divide(v[A[i]], v[B[i]])
        elif OP[i] == RECIPROCAL:
            result = _divide(one, v[A[i]])
        elif OP[i] == SQRT:
            result = _root(v[A[i]])
        elif OP[i] == NEG:
            result = v[A[i]] * -one
        elif OP[i] == ADD_CONSTANT:
            result = v[A[i]] + _constant(CONSTANTS[B[i]], DTYPE)
        elif OP[i] == MUL_CONSTANT:
            result = v[A[i]] * _constant(CONSTANTS[B[i]], DTYPE)
        elif OP[i] == VADD:
            ax, ay, az, ae = v[A[i]]
            bx, by, bz, be = v[B[i]]
            result = (ax + bx, ay + by, az + bz, ae + be)
        elif OP[i] == VSUB:
            ax, ay, az, ae = v[A[i]]
            bx, by, bz, be = v[B[i]]
            result = (ax - bx, ay - by, az - bz, ae - be)
        elif OP[i] == VNEG:
            ax, ay, az, ae = v[A[i]]
            result = (ax * -one, ay * -one, az * -one, ae * -one)
        elif OP[i] == VLOWER:
            ax, ay, az, ae = v[A[i]]
            result = (ax * -one, ay * -one, az * -one, ae)
        elif OP[i] == VSCALE:
            factor = v[A[i]]
            bx, by, bz, be = v[B[i]]
            result = (factor * bx, factor * by, factor * bz, factor * be)
        elif OP[i] == VSCALE_CONSTANT:
            ax, ay, az, ae = v[A[i]]
            constant = _constant(CONSTANTS[B[i]], DTYPE)
            result = (ax * constant, ay * constant, az * constant, ae * constant)
        elif OP[i] == VADD_SCALED:
            ax, ay, az, ae = v[A[i]]
            factor = v[B[i]]
            bx, by, bz, be = v[C[i]]
            result = (ax + factor * bx, ay + factor * by, az + factor * bz, ae + factor * be)
        elif OP[i] == VSUB_SCALED:
            ax, ay, az, ae = v[A[i]]
            factor = v[B[i]]
            bx, by, bz, be = v[C[i]]
            result = (ax - factor * bx, ay - factor * by, az - factor * bz, ae - factor * be)
        elif OP[i] == DOT:
            ax, ay, az, ae = v[A[i]]
            bx, by, bz, be = v[B[i]]
            result = (ae * be - az * bz) - (ax * bx + ay * by)
        elif OP[i] == CROSS:
            ax, ay, az, ae = v[A[i]]
            bx, by, bz, be = v[B[i]]
            cx, cy, cz, ce = v[C[i]]
            xy = bx * cy - by * cx
            xz = bx * cz - bz * cx
            xe = bx * ce - be * cx
            yz = by * cz - bz * cy
            ye = by * ce - be * cy
            ze = bz * ce - be * cz
            result = (
                (az * ye - ay * ze) - ae * yz,
                (ax * ze - az * xe) + ae * xz,
                (ay * xe - ax * ye) - ae * xy,
                (ay * xz - ax * yz) - az * xy,
            )
        elif OP[i] == COMPONENT:
            result = v[A[i]][B[i]]
        elif OP[i] == PACK:
            result = (v[A[i]], v[B[i]], v[C[i]], v[D[i]])
        elif OP[i] == PROJECT:
            ax, ay, az, ae = v[A[i]]
            cx, cy, cz, ce = v[C[i]]
            factor = ((ce * ae - cz * az) - (cx * ax + cy * ay)) * v[B[i]]
            result = (ax - factor * cx, ay - factor * cy, az - factor * cz, ae - factor * ce)
        elif OP[i] == STORE_PACKED:
            ax, ay, az, ae = v[A[i]]
            _store_packed(pointers[B[i]] + event * C[i] + D[i], ax, ay, az, ae, inside)
        elif OP[i] == STORE_PAIR:
            _store_pair(pointers[C[i]] + event * 2, v[A[i]], v[B[i]], inside)
        elif OP[i] == STORE_UNIT:
            pointer = pointers[B[i]]
            value = v[A[i]].to(pointer.dtype.element_ty)
            tl.store(pointer + event, value, mask=inside)
        elif OP[i] == STORE_STRIDED:
            pointer = pointers[B[i]]
            value = v[A[i]].to(pointer.dtype.element_ty)
            tl.store(pointer + event * strides[C[i]], value, mask=inside)
        elif OP[i] == SUM:
            value = tl.broadcast_to(v[A[i]].to(tl.float64), [BLOCK])
            total = tl.sum(tl.where(inside, value, 0.0), axis=0)
            place = tl.program_id(0).to(tl.int64) + tl.num_programs(0).to(tl.int64) * C[i]
            tl.store(pointers[B[i]] + place, total)
        else:
            tl.static_assert(False, "the kernel lacks an opcode")
        if OP[i] < STORE_PACKED:
            v = v + (result,)  # noqa: RUF005 (Triton has no starred expressions)


@triton.jit
def sum_kernel(terms, sums, n, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    """Adds up rows of n float64 numbers in groups of GROUP: program (g, row) writes the sum of group g of that row.

    The order is fixed: BLOCK strands, each added up in order, then the strands as a tree.
    """
    row = tl.program_id(1).to(tl.int64)
    first = tl.program_id(0).to(tl.int64) * GROUP
    total = tl.zeros([BLOCK], tl.float64)
    for start in range(0, GROUP, BLOCK):
        i = first + start + tl.arange(0, BLOCK)
        total += tl.load(terms + row * n + i, mask=i < n, other=0.0)
    tl.store(sums + row * tl.num_programs(0) + tl.program_id(0), tl.sum(total, axis=0))
