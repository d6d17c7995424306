/* Runs a compiled tape over events: the arrays, the walk through them, the threads and the sums.
 *
 * Events are numbered in C order of the common shape. A block of BLOCK events goes through the whole tape in registers
 * that stay in the first-level cache (block.h); a chunk of CHUNK events is the unit of work of a thread, and of the
 * sums over events, whose order therefore depends on the number of events alone.
 */
#ifndef FASTCOV_EXECUTOR_H
#define FASTCOV_EXECUTOR_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "opcodes.h"
#include "straight.h"

enum { BLOCK = 64, CHUNK = 1024, AHEAD = 32, CACHE_LINE = 64 };

/* Registers are offsets into the scratch memory, in numbers; a vector register is four BLOCKs, x, y, z, E. */
typedef struct {
    int32_t opcode, result, operands[4];
} instruction;

typedef struct {
    instruction *code;
    double *constants_double;
    float *constants_float;
    int length;
    int registers; /* BLOCKs of scratch memory */
    int sums;      /* numbers that are summed over events */
    int straight;  /* index of the straight-line code of this tape, or -1 */
} program;

typedef struct {
    char *data; /* NULL: not stored */
    ptrdiff_t *strides;
    int single; /* float32, else float64 */
} column;

static inline ptrdiff_t size_of(const column *c) {
    return c->single ? sizeof(float) : sizeof(double);
}

/* An input, or a row of an output. */
typedef struct {
    column columns[4]; /* x, y, z, E; a scalar has the first only */
    int packed;        /* four neighbours in memory per event and nothing between events */
    int order[4];      /* if packed: the component at each place */
    int sum;           /* index of the first number in the sums, or -1 for an output per event */
} operand;

typedef struct {
    const program *program;
    operand *inputs, *outputs;
    int dims; /* at least 1 */
    ptrdiff_t *shape;
    ptrdiff_t events;
    double *chunk_sums; /* of the chunks of one segment */
} job;

/* Drops dimensions of one, and merges neighbours that every array walks through evenly. */
static void collapse(job *j, operand *operands, int count) {
    int last = 0;
    for (int d = 1; d < j->dims; d++) {
        if (j->shape[d] == 1)
            continue;
        int even = 1;
        for (int c = 0; c < 4 * count && j->shape[last] != 1; c++) {
            const ptrdiff_t *strides = operands[c / 4].columns[c % 4].strides;
            even &= strides[last] == strides[d] * j->shape[d];
        }
        const ptrdiff_t before = even ? j->shape[last] : 1;
        last += !even;
        j->shape[last] = before * j->shape[d];
        for (int c = 0; c < 4 * count; c++) {
            ptrdiff_t *strides = operands[c / 4].columns[c % 4].strides;
            strides[last] = strides[d];
        }
    }
    j->dims = last + 1;
    for (operand *o = operands; o < operands + count; o++) {
        const ptrdiff_t event = 4 * size_of(&o->columns[0]);
        o->packed &= o->columns[0].strides[last] == event || j->shape[last] == 1;
    }
}

/* Memory is idle while the processor computes: meanwhile what comes next is brought into a cache, with locality 3 the
 * first and with 2 the second. To ask for memory that is not there, or of somebody else, does no harm. */
#define PREFETCH(address, bytes, locality)                     \
    for (size_t line = 0; line < (bytes); line += CACHE_LINE) \
    __builtin_prefetch((const char *)(address) + line, 0, locality)

/* The memory that the next block needs, in the order in which this one comes upon it. A few of its lines are asked for
 * with every operation: if it were all at once, the processor would wait for a place to note what it has asked for.
 * They go to the second-level cache, since registers and the current block fill the first. */
enum { STRETCHES = 64, AT_ONCE = 4 * CACHE_LINE };

typedef struct {
    struct {
        const char *data, *end;
    } stretches[STRETCHES];
    int noted, asked;
} outlook;

static inline void note(outlook *ahead, const char *data, ptrdiff_t bytes) {
    if (ahead->noted == STRETCHES)
        return;
    ahead->stretches[ahead->noted].data = data;
    ahead->stretches[ahead->noted++].end = data + bytes;
}

/* The events of a block as runs along the innermost dimension. */
typedef struct {
    int events, runs;
    int lane[BLOCK + 1]; /* first lane of each run, then the number of events */
    ptrdiff_t *index;    /* of the first event of each run, dims numbers each */
    outlook ahead;
} walk;

static void walk_block(walk *w, const job *j, ptrdiff_t first, int events) {
    const int last = j->dims - 1;
    w->events = events;
    w->runs = 0;
    for (int lane = 0; lane < events;) {
        ptrdiff_t *index = w->index + (ptrdiff_t)w->runs * j->dims;
        ptrdiff_t event = first + lane;
        for (int d = last; d > 0; d--) {
            index[d] = event % j->shape[d];
            event /= j->shape[d];
        }
        index[0] = event;
        w->lane[w->runs++] = lane;
        const ptrdiff_t left = j->shape[last] - index[last];
        lane = left < events - lane ? lane + (int)left : events;
    }
    w->lane[w->runs] = events;
}

static inline char *run_address(const column *c, const walk *w, int run, int dims) {
    const ptrdiff_t *index = w->index + (ptrdiff_t)run * dims;
    ptrdiff_t offset = 0;
    for (int d = 0; d < dims; d++)
        offset += index[d] * c->strides[d];
    return c->data + offset;
}

/* How an operand lies in memory: an event's components as neighbours, in the order of a register or in another; its
 * columns without gaps; one value for all events; anything else. */
enum { PACKED, PERMUTED, COLUMNS, SHARED, SCATTERED };

typedef struct {
    const operand *operand;
    int layout;
    char *data; /* of PACKED and PERMUTED: the first number of event 0 */
} place;

/* A tape from event first up to, not including, end. */
typedef void straight_function(const job *, ptrdiff_t first, ptrdiff_t end);

typedef void chunk_function(const job *, ptrdiff_t first, ptrdiff_t end, void *registers, double *sums, walk *);

static const int USUAL_ORDER[4] = {0, 1, 2, 3};

#define JOIN_(a, b, c) a##_##b##_##c
#define JOIN(a, b, c) JOIN_(a, b, c)
#define PAIR_(a, b) a##_##b
#define PAIR(a, b) PAIR_(a, b)

#ifdef __has_builtin
#if __has_builtin(__builtin_shufflevector) && __has_builtin(__builtin_convertvector)
#define SHUFFLE __builtin_shufflevector
#endif
#endif

#define SET baseline
#define VECTOR 16
#include "instruction_set.h"
#undef SET
#undef VECTOR

#ifdef FASTCOV_MULTIVERSION
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("arch=x86-64-v3"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#endif
#define SET v3
#define VECTOR 32
#include "instruction_set.h"
#undef SET
#undef VECTOR
#ifdef __clang__
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("arch=x86-64-v4"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4")
#endif
#define SET v4
#define VECTOR 64
#include "instruction_set.h"
#undef SET
#undef VECTOR
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

typedef struct {
    const char *name;
    chunk_function *chunk_double, *chunk_float;
} instruction_set;

static const instruction_set INSTRUCTION_SETS[] = {
    {"baseline", run_chunk_baseline_double, run_chunk_baseline_float},
#ifdef FASTCOV_MULTIVERSION
    {"v3", run_chunk_v3_double, run_chunk_v3_float},
    {"v4", run_chunk_v4_double, run_chunk_v4_float},
#endif
};

/* How many of INSTRUCTION_SETS this processor has. */
static int supported_sets(void) {
#ifdef FASTCOV_MULTIVERSION
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v4"))
        return 3;
    if (__builtin_cpu_supports("x86-64-v3"))
        return 2;
#endif
    return 1;
}

/* Scratch memory of one thread: registers, the sums of a chunk by lane, the indices of the runs. */
static void *allocate_scratch(const job *j, size_t size_of_real, double **sums, walk *w) {
    const size_t registers = (size_t)j->program->registers * BLOCK * size_of_real;
    const size_t accumulators = (size_t)j->program->sums * BLOCK * sizeof(double);
    const size_t runs = j->dims > 1 ? BLOCK : 1;
    const size_t bytes = registers + accumulators + runs * (size_t)j->dims * sizeof(ptrdiff_t);
    char *scratch = aligned_alloc(CACHE_LINE, (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    if (scratch) {
        *sums = (double *)(scratch + registers);
        w->index = (ptrdiff_t *)(scratch + registers + accumulators);
    }
    return scratch;
}

/* Adds the lanes of each sum as a tree. */
static void add_lanes(double *lanes, double *out, int sums) {
    for (int s = 0; s < sums; s++, lanes += BLOCK) {
        for (int half = BLOCK / 2; half; half /= 2)
            for (int l = 0; l < half; l++)
                lanes[l] += lanes[l + half];
        out[s] = lanes[0];
    }
}

static void run_one_chunk(const job *j, ptrdiff_t chunk, ptrdiff_t first_chunk, chunk_function *run, void *scratch,
                          double *sums, walk *w) {
    const ptrdiff_t first = chunk * CHUNK;
    const ptrdiff_t end = j->events - first < CHUNK ? j->events : first + CHUNK;
    const int n = j->program->sums;
    memset(sums, 0, (size_t)n * BLOCK * sizeof(double));
    run(j, first, end, scratch, sums, w);
    add_lanes(sums, j->chunk_sums + (chunk - first_chunk) * n, n);
}

/* Runs the chunks from first up to, not including, end. Returns 0, or -1 when there is no memory. */
static int run_chunks(const job *j, ptrdiff_t first, ptrdiff_t end, const instruction_set *set, int single,
                      int threads) {
    chunk_function *const run = single ? set->chunk_float : set->chunk_double;
    const size_t size_of_real = single ? sizeof(float) : sizeof(double);
    int failed = 0;
#ifdef _OPENMP
    if (threads > 1) {
#pragma omp parallel num_threads(threads) reduction(| : failed)
        {
            walk w;
            double *sums;
            void *scratch = allocate_scratch(j, size_of_real, &sums, &w);
            failed = !scratch;
#pragma omp for schedule(dynamic)
            for (ptrdiff_t chunk = first; chunk < end; chunk++)
                if (scratch)
                    run_one_chunk(j, chunk, first, run, scratch, sums, &w);
            free(scratch);
        }
        return -failed;
    }
#endif
    walk w;
    double *sums;
    void *scratch = allocate_scratch(j, size_of_real, &sums, &w);
    failed = !scratch;
    if (scratch)
        for (ptrdiff_t chunk = first; chunk < end; chunk++)
            run_one_chunk(j, chunk, first, run, scratch, sums, &w);
    free(scratch);
    return -failed;
}

/* Sums of chunks that arrive in order, added pairwise: where bit l of count is set, level l holds the sum of 2^l. */
enum { LEVELS = 64 };

static void add_chunk(double *levels, const double *chunk, int sums, uint64_t count) {
    double *level = levels;
    for (; count & 1; count >>= 1, level += sums)
        ;
    for (int s = 0; s < sums; s++) {
        double total = chunk[s];
        for (const double *lower = levels; lower < level; lower += sums)
            total = lower[s] + total;
        level[s] = total;
    }
}

static double finish_sum(const double *levels, int sums, int s, uint64_t count) {
    double total = 0;
    for (; count; count >>= 1, levels += sums)
        if (count & 1)
            total = levels[s] + total;
    return total;
}

static void store_number(const column *c, double value) {
    const float rounded = (float)value;
    if (c->single)
        memcpy(c->data, &rounded, sizeof rounded);
    else
        memcpy(c->data, &value, sizeof value);
}

#endif
