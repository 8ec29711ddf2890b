/* The formats of weights that ternary_matmul has kernels for. */
#ifndef TM_MATMUL_FORMATS_H
#define TM_MATMUL_FORMATS_H

#include "ternary_matmul.h"

typedef struct tm_matmul_format {
    const char *name;
    const tm_entry *kernels;
    /* bytes that the kernels read of weights (N, K); 0 if they do not support these */
    size_t (*bytes)(size_t N, size_t K);
    /* weights of a row that share a scale in the bytes; 0 if all of a row share one, there or outside the bytes */
    size_t group;
    size_t (*room)(size_t M, size_t K); /* bytes that `act_sums` needs; NULL if it may be NULL */
    /* bytes of look-up tables for the call, 0 for a layout (BM, BK, bm) that the kernels do not support; NULL for
     * formats without layout */
    size_t (*tables)(const tm_ternary_matmul_args *args);
} tm_matmul_format;

/* Ends with a `name` of NULL. */
extern const tm_matmul_format tm_matmul_formats[];

#endif
