/* The formats of weights that ternary_matmul has kernels for. */
#ifndef TM_MATMUL_FORMATS_H
#define TM_MATMUL_FORMATS_H

#include "ternary_matmul.h"

typedef struct tm_matmul_format {
    const char *name;
    const tm_entry *kernels;
    size_t (*bytes)(size_t N, size_t K); /* that the kernels read of weights (N, K); 0 where they do not take such */
    /* weights of a row that share a scale in the bytes; 0 where all of a row do, there or beside the bytes */
    size_t group;
    size_t (*room)(size_t M, size_t K); /* bytes that `act_sums` needs; NULL where it may be NULL */
    /* bytes of look-up tables that the call takes, 0 for a layout (BM, BK, bm) that the kernels do not read; NULL where
     * the format has no layout */
    size_t (*tables)(const tm_ternary_matmul_args *args);
} tm_matmul_format;

/* Ends where `name` is NULL. */
extern const tm_matmul_format tm_matmul_formats[];

#endif
