/* Straight-line code on arrays of STORAGE: one vector of events at a time, from memory to the processor's registers.
 *
 * The bodies in straight.h are written from tapes by emit.py. They call take for an input and give for an output.
 */
#define LINE(name) JOIN(PAIR(name, STORAGE), SET, REAL)

static void LINE(gather)(const operand *from, int width, ptrdiff_t event, REAL out[4][LANES]) {
    for (int m = 0; m < width; m++) {
        const column *c = &from->columns[m];
        const char *data = c->data + event * c->strides[0];
        if (c->single)
            NAME(load_run_float)(out[m], data, c->strides[0], LANES);
        else
            NAME(load_run_double)(out[m], data, c->strides[0], LANES);
    }
}

static void LINE(scatter)(const operand *to, int width, ptrdiff_t event, const REAL in[4][LANES]) {
    for (int m = 0; m < width; m++) {
        const column *c = &to->columns[m];
        if (!c->data)
            continue;
        char *data = c->data + event * c->strides[0];
        if (c->single)
            NAME(store_run_float)(in[m], data, c->strides[0], LANES);
        else
            NAME(store_run_double)(in[m], data, c->strides[0], LANES);
    }
}

/* How an operand of this width lies in memory. */
static int LINE(layout)(const operand *o, int width) {
    int contiguous = 1, same = 1;
    for (int m = 0; m < width; m++) {
        const column *c = &o->columns[m];
        const int fits = c->data && c->single == (STORAGE_SIZE == 4);
        contiguous &= fits && c->strides[0] == STORAGE_SIZE;
        same &= fits && c->strides[0] == 0;
    }
    if (o->packed && o->columns[0].single == (STORAGE_SIZE == 4)) {
        int permuted = 0;
        for (int i = 0; i < 4; i++)
            permuted |= o->order[i] != i;
        return permuted ? PERMUTED : PACKED;
    }
    return contiguous ? COLUMNS : same ? SHARED : SCATTERED;
}

static inline __attribute__((always_inline)) NAME(lanes) LINE(read)(const char *data) {
    return __builtin_convertvector(*(const LINE(packed_anywhere) *)data, NAME(lanes));
}

static inline __attribute__((always_inline)) NAME(lanes) LINE(repeat)(const char *data) {
    STORAGE value;
    memcpy(&value, data, sizeof value);
    return (REAL)value - (NAME(lanes)){0}; /* a sum would lose the sign of -0 */
}

static inline __attribute__((always_inline)) void LINE(take)(const operand *from, int layout, int width,
                                                             ptrdiff_t event, NAME(lanes) out[4]) {
    if ((layout == PACKED || layout == PERMUTED) && width == 4) {
        LINE(reals) rows[4];
        LINE(read_events)(rows, from->columns[from->order[0]].data + event * 4 * STORAGE_SIZE);
        for (int i = 0; i < 4; i++)
            out[layout == PACKED ? i : from->order[i]] = rows[i];
    } else if (layout == COLUMNS) {
        for (int m = 0; m < width; m++)
            out[m] = LINE(read)(from->columns[m].data + event * STORAGE_SIZE);
    } else if (layout == SHARED) {
        for (int m = 0; m < width; m++)
            out[m] = LINE(repeat)(from->columns[m].data);
    } else {
        REAL lanes[4][LANES];
        LINE(gather)(from, width, event, lanes);
        memcpy(out, lanes, width * sizeof *out);
    }
}

static inline __attribute__((always_inline)) void LINE(give)(const operand *to, int layout, int width, ptrdiff_t event,
                                                             const NAME(lanes) in[4]) {
    if ((layout == PACKED || layout == PERMUTED) && width == 4) {
        LINE(packed) rows[4];
        for (int i = 0; i < 4; i++)
            rows[i] = __builtin_convertvector(in[layout == PACKED ? i : to->order[i]], LINE(packed));
        LINE(write_events)(rows, to->columns[to->order[0]].data + event * 4 * STORAGE_SIZE);
    } else if (layout == COLUMNS) {
        for (int m = 0; m < width; m++)
            *(LINE(packed_anywhere) *)(to->columns[m].data + event * STORAGE_SIZE) =
                __builtin_convertvector(in[m], LINE(packed));
    } else {
        REAL lanes[4][LANES];
        memcpy(lanes, in, width * sizeof *in);
        LINE(scatter)(to, width, event, lanes);
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
