/* Between arrays of STORAGE and registers of REAL, for one run of events. Arrays may lie at any address.
 *
 * Packed events, x y z E x y z E ..., are transposed COUNT at a time. A run is not inlined where the storage is chosen:
 * GCC's if-conversion would read as many bytes as the wider of the two has before it knows which it is.
 */
#define MEMORY(name) JOIN(PAIR(name, STORAGE), SET, REAL)

#if REAL_SIZE > STORAGE_SIZE
#define COUNT (VECTOR / REAL_SIZE)
#else
#define COUNT (VECTOR / STORAGE_SIZE)
#endif

static __attribute__((noinline)) void MEMORY(load_run)(REAL *restrict out, const char *restrict data,
                                                       ptrdiff_t stride, int events) {
    STORAGE value;
    if (stride == sizeof value) {
        for (int l = 0; l < events; l++) {
            memcpy(&value, data + l * sizeof value, sizeof value);
            out[l] = (REAL)value;
        }
    } else if (stride == 0) {
        memcpy(&value, data, sizeof value);
        for (int l = 0; l < events; l++)
            out[l] = (REAL)value;
    } else {
        for (int l = 0; l < events; l++) {
            memcpy(&value, data + l * stride, sizeof value);
            out[l] = (REAL)value;
        }
    }
}

static __attribute__((noinline)) void MEMORY(store_run)(const REAL *restrict in, char *restrict data,
                                                        ptrdiff_t stride, int events) {
    STORAGE value;
    if (stride == sizeof value) {
        for (int l = 0; l < events; l++) {
            value = (STORAGE)in[l];
            memcpy(data + l * sizeof value, &value, sizeof value);
        }
    } else {
        for (int l = 0; l < events; l++) {
            value = (STORAGE)in[l];
            memcpy(data + l * stride, &value, sizeof value);
        }
    }
}

#ifdef SHUFFLE
typedef STORAGE MEMORY(packed) __attribute__((vector_size(COUNT * STORAGE_SIZE)));
typedef STORAGE MEMORY(packed_anywhere) __attribute__((vector_size(COUNT * STORAGE_SIZE), aligned(1), may_alias));
typedef REAL MEMORY(reals) __attribute__((vector_size(COUNT * REAL_SIZE)));
typedef REAL MEMORY(reals_anywhere) __attribute__((vector_size(COUNT * REAL_SIZE), aligned(1), may_alias));

#if COUNT == 2
#define EVEN(a, b) SHUFFLE(a, b, 0, 2)
#define ODD(a, b) SHUFFLE(a, b, 1, 3)
#define LOW(a, b) SHUFFLE(a, b, 0, 2)
#define HIGH(a, b) SHUFFLE(a, b, 1, 3)
#elif COUNT == 4
#define EVEN(a, b) SHUFFLE(a, b, 0, 2, 4, 6)
#define ODD(a, b) SHUFFLE(a, b, 1, 3, 5, 7)
#define LOW(a, b) SHUFFLE(a, b, 0, 4, 1, 5)
#define HIGH(a, b) SHUFFLE(a, b, 2, 6, 3, 7)
#elif COUNT == 8
#define EVEN(a, b) SHUFFLE(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define ODD(a, b) SHUFFLE(a, b, 1, 3, 5, 7, 9, 11, 13, 15)
#define LOW(a, b) SHUFFLE(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH(a, b) SHUFFLE(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#elif COUNT == 16
#define EVEN(a, b) SHUFFLE(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define ODD(a, b) SHUFFLE(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
#define LOW(a, b) SHUFFLE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH(a, b) SHUFFLE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#endif
#endif

/* Keeps a vector in its register: rather than that, compilers read it from memory for each of its shuffles, and what is
 * read from an array that does not begin at a cache line takes two reads anyway. */
#if defined __x86_64__ && COUNT * REAL_SIZE >= 16
#define HOLD(vector) __asm__("" : "+v"(vector))
#else
#define HOLD(vector) (void)0
#endif

#ifdef SHUFFLE
/* COUNT packed events as four rows, one for each number of an event. They are converted first, as part of the load. */
static inline __attribute__((always_inline)) void MEMORY(read_events)(MEMORY(reals) rows[4], const char *data) {
    const MEMORY(packed_anywhere) *from = (const MEMORY(packed_anywhere) *)data;
    MEMORY(reals) a = __builtin_convertvector(from[0], MEMORY(reals));
    MEMORY(reals) b = __builtin_convertvector(from[1], MEMORY(reals));
    MEMORY(reals) c = __builtin_convertvector(from[2], MEMORY(reals));
    MEMORY(reals) d = __builtin_convertvector(from[3], MEMORY(reals));
    HOLD(a);
    HOLD(b);
    HOLD(c);
    HOLD(d);
    const MEMORY(reals) even_ab = EVEN(a, b), odd_ab = ODD(a, b), even_cd = EVEN(c, d), odd_cd = ODD(c, d);
    rows[0] = EVEN(even_ab, even_cd);
    rows[1] = EVEN(odd_ab, odd_cd);
    rows[2] = ODD(even_ab, even_cd);
    rows[3] = ODD(odd_ab, odd_cd);
}

static inline __attribute__((always_inline)) void MEMORY(write_events)(const MEMORY(packed) rows[4], char *data) {
    const MEMORY(packed) low_even = LOW(rows[0], rows[2]), high_even = HIGH(rows[0], rows[2]);
    const MEMORY(packed) low_odd = LOW(rows[1], rows[3]), high_odd = HIGH(rows[1], rows[3]);
    MEMORY(packed_anywhere) *to = (MEMORY(packed_anywhere) *)data;
    to[0] = LOW(low_even, low_odd);
    to[1] = HIGH(low_even, low_odd);
    to[2] = LOW(high_even, high_odd);
    to[3] = HIGH(high_even, high_odd);
}
#endif

/* order[i]: the component that is the i-th number of an event in memory. */
static inline __attribute__((always_inline)) void MEMORY(load_events)(REAL *restrict out, const int order[4],
                                                                      const char *restrict data, int events) {
    REAL *const places[4] = {out + order[0] * BLOCK, out + order[1] * BLOCK, out + order[2] * BLOCK,
                             out + order[3] * BLOCK};
    int l = 0;
#ifdef SHUFFLE
    for (; l + COUNT <= events; l += COUNT) {
        MEMORY(reals) rows[4];
        MEMORY(read_events)(rows, data + l * 4 * sizeof(STORAGE));
        for (int i = 0; i < 4; i++)
            *(MEMORY(reals_anywhere) *)(places[i] + l) = rows[i];
    }
#endif
    for (; l < events; l++) {
        STORAGE event[4];
        memcpy(event, data + l * sizeof event, sizeof event);
        for (int i = 0; i < 4; i++)
            places[i][l] = (REAL)event[i];
    }
}

static inline __attribute__((always_inline)) void MEMORY(store_events)(const REAL *restrict in, const int order[4],
                                                                       char *restrict data, int events) {
    const REAL *const places[4] = {in + order[0] * BLOCK, in + order[1] * BLOCK, in + order[2] * BLOCK,
                                   in + order[3] * BLOCK};
    int l = 0;
#ifdef SHUFFLE
    for (; l + COUNT <= events; l += COUNT) {
        MEMORY(packed) rows[4];
        for (int i = 0; i < 4; i++) {
            const MEMORY(reals) row = *(const MEMORY(reals_anywhere) *)(places[i] + l);
            rows[i] = __builtin_convertvector(row, MEMORY(packed));
        }
        MEMORY(write_events)(rows, data + l * 4 * sizeof(STORAGE));
    }
#endif
    for (; l < events; l++) {
        STORAGE event[4];
        for (int i = 0; i < 4; i++)
            event[i] = (STORAGE)places[i][l];
        memcpy(data + l * sizeof event, event, sizeof event);
    }
}

/* For the usual order the places of the components are constants. */
static void MEMORY(load_packed)(REAL *restrict out, const int *order, const char *restrict data, int events) {
    if (memcmp(order, USUAL_ORDER, sizeof USUAL_ORDER))
        MEMORY(load_events)(out, order, data, events);
    else
        MEMORY(load_events)(out, USUAL_ORDER, data, events);
}

static void MEMORY(store_packed)(const REAL *restrict in, const int *order, char *restrict data, int events) {
    if (memcmp(order, USUAL_ORDER, sizeof USUAL_ORDER))
        MEMORY(store_events)(in, order, data, events);
    else
        MEMORY(store_events)(in, USUAL_ORDER, data, events);
}

#undef MEMORY
#undef HOLD
#undef COUNT
#undef EVEN
#undef ODD
#undef LOW
#undef HIGH
