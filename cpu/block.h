/* A block of events through the tape in the arithmetic type REAL, for the instruction set SET with vectors of VECTOR
 * bytes. The expressions are those of fastcov/opcodes.py, in its order; the build forbids contraction.
 */
#define NAME(name) JOIN(name, SET, REAL)
#define LANES (VECTOR / REAL_SIZE)
#define STEP (BLOCK / LANES) /* vectors per component */

typedef REAL NAME(lanes) __attribute__((vector_size(VECTOR), may_alias));

#define STORAGE double
#define STORAGE_SIZE 8
#include "memory.h"
#undef STORAGE
#undef STORAGE_SIZE

#define STORAGE float
#define STORAGE_SIZE 4
#include "memory.h"
#undef STORAGE
#undef STORAGE_SIZE

static void NAME(load_column)(REAL *out, const column *c, walk *w, int dims) {
    for (int r = 0; r < w->runs; r++) {
        const char *data = run_address(c, w, r, dims);
        const int lane = w->lane[r], events = w->lane[r + 1] - lane;
        if (c->single)
            NAME(load_run_float)(out + lane, data, c->strides[dims - 1], events);
        else
            NAME(load_run_double)(out + lane, data, c->strides[dims - 1], events);
        if (c->strides[dims - 1] == size_of(c))
            note(&w->ahead, data + events * size_of(c), events * size_of(c));
    }
}

static void NAME(store_column)(const REAL *in, const column *c, walk *w, int dims) {
    for (int r = 0; r < w->runs; r++) {
        char *data = run_address(c, w, r, dims);
        const int lane = w->lane[r], events = w->lane[r + 1] - lane;
        if (c->single)
            NAME(store_run_float)(in + lane, data, c->strides[dims - 1], events);
        else
            NAME(store_run_double)(in + lane, data, c->strides[dims - 1], events);
        if (c->strides[dims - 1] == size_of(c))
            note(&w->ahead, data + events * size_of(c), events * size_of(c));
    }
}

/* The lanes from the last event to the end of its vector become 0. */
static void NAME(fill)(REAL *out, int events, int end) {
    for (int l = events; l < end; l++)
        out[l] = 0;
}

static void NAME(load)(REAL *out, const operand *from, int width, walk *w, int dims, int end) {
    if (from->packed) {
        const ptrdiff_t size = 4 * size_of(&from->columns[0]);
        for (int r = 0; r < w->runs; r++) {
            const char *data = run_address(&from->columns[from->order[0]], w, r, dims);
            const int lane = w->lane[r], events = w->lane[r + 1] - lane;
            if (from->columns[0].single)
                NAME(load_packed_float)(out + lane, from->order, data, events);
            else
                NAME(load_packed_double)(out + lane, from->order, data, events);
            note(&w->ahead, data + events * size, events * size);
        }
    } else {
        for (int m = 0; m < width; m++)
            NAME(load_column)(out + m * BLOCK, &from->columns[m], w, dims);
    }
    for (int m = 0; m < width && w->events < end; m++)
        NAME(fill)(out + m * BLOCK, w->events, end);
}

static void NAME(store)(const REAL *in, const operand *to, int width, walk *w, int dims, double *sums) {
    if (to->sum >= 0) {
        double *lanes = sums + (ptrdiff_t)to->sum * BLOCK;
        for (int m = 0; m < width; m++)
            for (int l = 0; l < w->events; l++)
                lanes[m * BLOCK + l] += (double)in[m * BLOCK + l];
    } else if (to->packed) {
        const ptrdiff_t size = 4 * size_of(&to->columns[0]);
        for (int r = 0; r < w->runs; r++) {
            char *data = run_address(&to->columns[to->order[0]], w, r, dims);
            const int lane = w->lane[r], events = w->lane[r + 1] - lane;
            if (to->columns[0].single)
                NAME(store_packed_float)(in + lane, to->order, data, events);
            else
                NAME(store_packed_double)(in + lane, to->order, data, events);
            note(&w->ahead, data + events * size, events * size);
        }
    } else {
        for (int m = 0; m < width; m++)
            if (to->columns[m].data)
                NAME(store_column)(in + m * BLOCK, &to->columns[m], w, dims);
    }
}

static inline __attribute__((always_inline)) NAME(lanes) NAME(root)(NAME(lanes) a) {
    REAL roots[LANES];
    memcpy(roots, &a, sizeof a);
    for (int i = 0; i < LANES; i++)
        roots[i] = SQRT(roots[i]);
    memcpy(&a, roots, sizeof a);
    return a;
}

#define R(n) ((NAME(lanes) *)(registers + op->operands[n]))
#define X(v) ((v)[k])
#define Y(v) ((v)[STEP + k])
#define Z(v) ((v)[2 * STEP + k])
#define E(v) ((v)[3 * STEP + k])
#define EACH_VECTOR for (int k = 0; k < vectors; k++)
#define EACH_COMPONENT for (int i = k; i < 4 * STEP; i += STEP)

#define ASK                                                   \
    if (next < next_end) {                                    \
        PREFETCH(next, AT_ONCE, 2);                           \
        next += AT_ONCE;                                      \
    } else if (ahead->asked < ahead->noted) {                 \
        next = ahead->stretches[ahead->asked].data;           \
        next_end = ahead->stretches[ahead->asked++].end;      \
    }

#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wswitch"

/* Inlined twice: for a full block the number of vectors is a constant. */
static inline __attribute__((always_inline)) void NAME(run_block)(const job *j, walk *w, REAL *registers,
                                                                  double *sums, const int vectors) {
    const program *p = j->program;
    const REAL *constants = p->PAIR(constants, REAL);
    const int end = vectors * LANES;
    outlook *const ahead = &w->ahead;
    const char *next = NULL, *next_end = NULL;
    ahead->noted = ahead->asked = 0;
    for (const instruction *op = p->code, *stop = op + p->length; op < stop; op++) {
        REAL *const out = registers + op->result;
        NAME(lanes) *const d = (NAME(lanes) *)out;
        ASK
        switch ((enum opcode)op->opcode) {
        case OP_load_vector:
            NAME(load)(out, &j->inputs[op->operands[0]], 4, w, j->dims, end);
            break;
        case OP_load_scalar:
            NAME(load)(out, &j->inputs[op->operands[0]], 1, w, j->dims, end);
            break;
        case OP_constant: {
            const REAL c = constants[op->operands[0]];
            for (int l = 0; l < end; l++)
                out[l] = c;
            break;
        }
        case OP_unit:
            for (int m = 0; m < 4; m++)
                for (int l = 0; l < end; l++)
                    out[m * BLOCK + l] = m == op->operands[0];
            break;
        case OP_add: {
            const NAME(lanes) *a = R(0), *b = R(1);
            EACH_VECTOR d[k] = a[k] + b[k];
            break;
        }
        case OP_sub: {
            const NAME(lanes) *a = R(0), *b = R(1);
            EACH_VECTOR d[k] = a[k] - b[k];
            break;
        }
        case OP_mul: {
            const NAME(lanes) *a = R(0), *b = R(1);
            EACH_VECTOR d[k] = a[k] * b[k];
            break;
        }
        case OP_div: {
            const NAME(lanes) *a = R(0), *b = R(1);
            EACH_VECTOR d[k] = a[k] / b[k];
            break;
        }
        case OP_reciprocal: {
            const NAME(lanes) *a = R(0);
            EACH_VECTOR d[k] = (REAL)1 / a[k];
            break;
        }
        case OP_sqrt: {
            const NAME(lanes) *a = R(0);
            EACH_VECTOR d[k] = NAME(root)(a[k]);
            break;
        }
        case OP_neg: {
            const NAME(lanes) *a = R(0);
            EACH_VECTOR d[k] = -a[k];
            break;
        }
        case OP_add_constant: {
            const NAME(lanes) *a = R(0);
            const REAL c = constants[op->operands[1]];
            EACH_VECTOR d[k] = a[k] + c;
            break;
        }
        case OP_mul_constant: {
            const NAME(lanes) *a = R(0);
            const REAL c = constants[op->operands[1]];
            EACH_VECTOR d[k] = a[k] * c;
            break;
        }
        case OP_vadd: {
            const NAME(lanes) *a = R(0), *b = R(1);
            EACH_VECTOR EACH_COMPONENT d[i] = a[i] + b[i];
            break;
        }
        case OP_vsub: {
            const NAME(lanes) *a = R(0), *b = R(1);
            EACH_VECTOR EACH_COMPONENT d[i] = a[i] - b[i];
            break;
        }
        case OP_vneg: {
            const NAME(lanes) *a = R(0);
            EACH_VECTOR EACH_COMPONENT d[i] = -a[i];
            break;
        }
        case OP_vlower: {
            const NAME(lanes) *a = R(0);
            EACH_VECTOR {
                X(d) = -X(a);
                Y(d) = -Y(a);
                Z(d) = -Z(a);
                E(d) = E(a);
            }
            break;
        }
        case OP_vscale: {
            const NAME(lanes) *a = R(0), *b = R(1);
            EACH_VECTOR {
                const NAME(lanes) s = a[k];
                EACH_COMPONENT d[i] = s * b[i];
            }
            break;
        }
        case OP_vscale_constant: {
            const NAME(lanes) *a = R(0);
            const REAL c = constants[op->operands[1]];
            EACH_VECTOR EACH_COMPONENT d[i] = a[i] * c;
            break;
        }
        case OP_vadd_scaled: {
            const NAME(lanes) *a = R(0), *b = R(1), *c = R(2);
            EACH_VECTOR {
                const NAME(lanes) s = b[k];
                EACH_COMPONENT d[i] = a[i] + s * c[i];
            }
            break;
        }
        case OP_vsub_scaled: {
            const NAME(lanes) *a = R(0), *b = R(1), *c = R(2);
            EACH_VECTOR {
                const NAME(lanes) s = b[k];
                EACH_COMPONENT d[i] = a[i] - s * c[i];
            }
            break;
        }
        case OP_project: {
            const NAME(lanes) *a = R(0), *b = R(1), *c = R(2);
            EACH_VECTOR {
                const NAME(lanes) ax = X(a), ay = Y(a), az = Z(a), aE = E(a);
                const NAME(lanes) cx = X(c), cy = Y(c), cz = Z(c), cE = E(c);
                const NAME(lanes) s = ((cE * aE - cz * az) - (cx * ax + cy * ay)) * b[k];
                X(d) = ax - s * cx;
                Y(d) = ay - s * cy;
                Z(d) = az - s * cz;
                E(d) = aE - s * cE;
            }
            break;
        }
        case OP_dot: {
            const NAME(lanes) *a = R(0), *b = R(1);
            if (a == b) /* half as much to read */
                EACH_VECTOR d[k] = (E(a) * E(a) - Z(a) * Z(a)) - (X(a) * X(a) + Y(a) * Y(a));
            else
                EACH_VECTOR d[k] = (E(a) * E(b) - Z(a) * Z(b)) - (X(a) * X(b) + Y(a) * Y(b));
            break;
        }
        case OP_cross: {
            const NAME(lanes) *a = R(0), *b = R(1), *c = R(2);
            EACH_VECTOR {
                const NAME(lanes) xy = X(b) * Y(c) - Y(b) * X(c), xz = X(b) * Z(c) - Z(b) * X(c);
                const NAME(lanes) xE = X(b) * E(c) - E(b) * X(c), yz = Y(b) * Z(c) - Z(b) * Y(c);
                const NAME(lanes) yE = Y(b) * E(c) - E(b) * Y(c), zE = Z(b) * E(c) - E(b) * Z(c);
                const NAME(lanes) ax = X(a), ay = Y(a), az = Z(a), aE = E(a);
                X(d) = (az * yE - ay * zE) - aE * yz;
                Y(d) = (ax * zE - az * xE) + aE * xz;
                Z(d) = (ay * xE - ax * yE) - aE * xy;
                E(d) = (ay * xz - ax * yz) - az * xy;
            }
            break;
        }
        case OP_component: {
            const NAME(lanes) *a = R(0) + op->operands[1] * STEP;
            EACH_VECTOR d[k] = a[k];
            break;
        }
        case OP_pack: {
            const NAME(lanes) *a = R(0), *b = R(1), *c = R(2), *e = R(3);
            EACH_VECTOR {
                X(d) = a[k];
                Y(d) = b[k];
                Z(d) = c[k];
                E(d) = e[k];
            }
            break;
        }
        case OP_store_scalar:
            NAME(store)(registers + op->operands[1], &j->outputs[op->operands[0]], 1, w, j->dims, sums);
            break;
        case OP_store_vector:
            NAME(store)(registers + op->operands[1], &j->outputs[op->operands[0]], 4, w, j->dims, sums);
            break;
        case OP_store_row:
            NAME(store)(registers + op->operands[2], &j->outputs[op->operands[0] + op->operands[1]], 4, w, j->dims,
                        sums);
            break;
        }
    }
    while (next < next_end || ahead->asked < ahead->noted)
        ASK
}

#pragma GCC diagnostic pop

#if defined SHUFFLE && (VECTOR > 16 || !defined FASTCOV_MULTIVERSION) /* the baseline of x86-64 is left out: it would only take time to build */
#define STORAGE double
#define STORAGE_SIZE 8
#if REAL_SIZE >= STORAGE_SIZE
#include "straight_line.h"
#endif
#undef STORAGE
#undef STORAGE_SIZE

#define STORAGE float
#define STORAGE_SIZE 4
#include "straight_line.h"
#undef STORAGE
#undef STORAGE_SIZE

/* Straight-line code for as many events from first on as it can take; returns the first event left. */
static ptrdiff_t NAME(run_straight)(const job *j, ptrdiff_t first, ptrdiff_t end) {
    if (j->program->straight < 0 || j->dims > 1)
        return first;
    if (j->inputs[0].columns[0].single)
        return NAME(run_straight_float)(j, first, end);
#if REAL_SIZE == 8
    return NAME(run_straight_double)(j, first, end);
#else
    return first;
#endif
}
#else
static ptrdiff_t NAME(run_straight)(const job *j, ptrdiff_t first, ptrdiff_t end) {
    return first;
}
#endif

static void NAME(run_chunk)(const job *j, ptrdiff_t first, ptrdiff_t end, void *registers, double *sums, walk *w) {
    first = NAME(run_straight)(j, first, end);
    for (; end - first >= BLOCK; first += BLOCK) {
        walk_block(w, j, first, BLOCK);
        NAME(run_block)(j, w, registers, sums, STEP);
    }
    if (first < end) {
        walk_block(w, j, first, (int)(end - first));
        NAME(run_block)(j, w, registers, sums, (w->events + LANES - 1) / LANES);
    }
}

#undef NAME
#undef LANES
#undef STEP
#undef R
#undef X
#undef Y
#undef Z
#undef E
#undef EACH_VECTOR
#undef EACH_COMPONENT
#undef ASK
