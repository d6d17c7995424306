/* The loop over a chunk in both arithmetic types, for the instruction set SET with vectors of VECTOR bytes. */
#define REAL double
#define REAL_SIZE 8
#define SQRT sqrt
#include "block.h"
#undef REAL
#undef REAL_SIZE
#undef SQRT

#define REAL float
#define REAL_SIZE 4
#define SQRT sqrtf
#include "block.h"
#undef REAL
#undef REAL_SIZE
#undef SQRT
