/* The formats of weights that ternary_matmul has kernels for: one for each of its tables, see TM_MATMUL_FORMAT. */
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
    /* most bytes of stack that a thread of the instruction set of that rank works in (stacks.h) */
    size_t (*stack)(int32_t rank, size_t M);
} tm_matmul_format;

/* TM_MATMUL_FORMAT(table) = {...} in the scalar.c of a table is its format. formats.c lists those of all tables that
 * are there, and the further formats of tables whose kernels take several groups. */
#define TM_MATMUL_FORMAT(table) const tm_matmul_format tm_##table##_format
#define TM_MATMUL_FURTHER(X) X(tile64_g64) X(tile64_g128) X(tile64_g256)

/* Ends with NULL. */
extern const tm_matmul_format *const tm_matmul_formats[];

/* The format of a name; NULL if there is none. */
const tm_matmul_format *tm_matmul_format_named(const char *name);

/* Most bytes of stack that all threads use for a product, including the caller's packed activations. */
size_t tm_matmul_stack(const tm_matmul_format *format, int32_t rank, size_t M, size_t N, size_t K, size_t threads);

#endif
