/* Straight-line code on arrays of STORAGE: one vector of events at a time, from memory to the processor's registers.
 *
 * The bodies in straight.h are written from tapes by emit.py. They call take for an input and give for an output.
 */
#define LINE(name) JOIN(PAIR(name, STORAGE), SET, REAL)

static void LINE(gather)(const operand *from, int width, ptrdiff_t event, NAME(lanes) out[4]) {
    for (int m = 0; m < width; m++) {
        const column *c = &from->columns[m];
        const char *data = c->data + event * c->strides[0];
        if (c->single)
            NAME(load_run_float)((REAL *)&out[m], data, c->strides[0], LANES);
        else
            NAME(load_run_double)((REAL *)&out[m], data, c->strides[0], LANES);
    }
}

static void LINE(scatter)(const operand *to, int width, ptrdiff_t event, const NAME(lanes) in[4]) {
    for (int m = 0; m < width; m++) {
        const column *c = &to->columns[m];
        if (!c->data)
            continue;
        char *data = c->data + event * c->strides[0];
        if (c->single)
            NAME(store_run_float)((const REAL *)&in[m], data, c->strides[0], LANES);
        else
            NAME(store_run_double)((const REAL *)&in[m], data, c->strides[0], LANES);
    }
}

/* Where an operand of this width lies in memory. */
static place LINE(place)(const operand *o, int width) {
    place p = {o, SCATTERED, o->columns[0].data};
    int contiguous = 1, same = 1;
    for (int m = 0; m < width; m++) {
        const column *c = &o->columns[m];
        const int fits = c->data && c->single == (STORAGE_SIZE == 4);
        contiguous &= fits && c->strides[0] == STORAGE_SIZE;
        same &= fits && c->strides[0] == 0;
    }
    if (o->packed && o->columns[0].single == (STORAGE_SIZE == 4)) {
        p.layout = PACKED;
        p.data = o->columns[o->order[0]].data;
        for (int i = 0; i < 4; i++)
            if (o->order[i] != i)
                p.layout = PERMUTED;
    } else if (contiguous) {
        p.layout = COLUMNS;
    } else if (same) {
        p.layout = SHARED;
    }
    return p;
}

static inline __attribute__((always_inline)) NAME(lanes) LINE(read)(const char *data) {
    return __builtin_convertvector(*(const LINE(packed_anywhere) *)data, NAME(lanes));
}

static inline __attribute__((always_inline)) NAME(lanes) LINE(repeat)(const char *data) {
    STORAGE value;
    memcpy(&value, data, sizeof value);
    return (REAL)value - (NAME(lanes)){0}; /* a sum would lose the sign of -0 */
}

/* The vector of events that is AHEAD events on, of so many numbers each. */
#define FETCH(data, event, numbers) \
    PREFETCH((data) + ((event) + AHEAD) * (numbers) * STORAGE_SIZE, LANES * (numbers) * STORAGE_SIZE, 3)

/* In take and give only what is copied is indexed by a variable: the rest can stay in the processor's registers. */
static inline __attribute__((always_inline)) void LINE(take)(place from, int width, ptrdiff_t event,
                                                             NAME(lanes) out[4]) {
    const column *columns = from.operand->columns;
    NAME(lanes) copy[4];
    if (width == 4 && from.layout <= PERMUTED)
        FETCH(from.data, event, 4);
    if (width == 4 && from.layout == PACKED) {
        LINE(read_events)(out, from.data + event * 4 * STORAGE_SIZE);
    } else if (width == 4 && from.layout == PERMUTED) {
        NAME(lanes) rows[4];
        LINE(read_events)(rows, from.data + event * 4 * STORAGE_SIZE);
        for (int i = 0; i < 4; i++)
            copy[from.operand->order[i]] = rows[i];
        for (int m = 0; m < 4; m++)
            out[m] = copy[m];
    } else if (from.layout == COLUMNS) {
        for (int m = 0; m < width; m++) {
            FETCH(columns[m].data, event, 1);
            out[m] = LINE(read)(columns[m].data + event * STORAGE_SIZE);
        }
    } else if (from.layout == SHARED) {
        for (int m = 0; m < width; m++)
            out[m] = LINE(repeat)(columns[m].data);
    } else {
        LINE(gather)(from.operand, width, event, copy);
        for (int m = 0; m < width; m++)
            out[m] = copy[m];
    }
}

static inline __attribute__((always_inline)) void LINE(give)(place to, int width, ptrdiff_t event,
                                                             const NAME(lanes) in[4]) {
    const column *columns = to.operand->columns;
    NAME(lanes) copy[4];
    LINE(packed) rows[4];
    if (width == 4 && to.layout <= PERMUTED)
        FETCH(to.data, event, 4);
    if (width == 4 && to.layout == PACKED) {
        for (int i = 0; i < 4; i++)
            rows[i] = __builtin_convertvector(in[i], LINE(packed));
        LINE(write_events)(rows, to.data + event * 4 * STORAGE_SIZE);
    } else if (width == 4 && to.layout == PERMUTED) {
        for (int m = 0; m < 4; m++)
            copy[m] = in[m];
        for (int i = 0; i < 4; i++)
            rows[i] = __builtin_convertvector(copy[to.operand->order[i]], LINE(packed));
        LINE(write_events)(rows, to.data + event * 4 * STORAGE_SIZE);
    } else if (to.layout == COLUMNS) {
        for (int m = 0; m < width; m++) {
            FETCH(columns[m].data, event, 1);
            *(LINE(packed_anywhere) *)(columns[m].data + event * STORAGE_SIZE) =
                __builtin_convertvector(in[m], LINE(packed));
        }
    } else {
        for (int m = 0; m < width; m++)
            copy[m] = in[m];
        LINE(scatter)(to.operand, width, event, copy);
    }
}

#include "straight.h"

/* Whole vectors of events from first on; returns the first event left. */
static ptrdiff_t LINE(run_straight)(const job *j, ptrdiff_t first, ptrdiff_t end) {
    const ptrdiff_t stop = end - (end - first) % LANES;
    LINE(straight)[j->program->straight](j, first, stop);
    return stop;
}

#undef LINE
#undef FETCH
