/* Weights of other formats in amx.c.
 *
 * A thread converts a stretch of them to tile64, on its stack, and its rows of activations pass that. AVX-512 converts
 * them too, 16 KiB at a time. The conversion takes the same time for any number of rows, so it costs most at few rows.
 *
 * Compare with AVX-512 on a machine with AMX: `python suites/performance/instruction_sets.py --format i2_s_x86 --sets
 * avx512 amx --rows 16 64 512`. Measurements: docs/kernels/amx.md. */
#ifndef TM_AMX_H
#define TM_AMX_H

#include "tiles.h"

typedef struct tm_amx_format {
    tm_arrange arrange; /* converts weights to tile64, `unit` groups at least; NULL if they are in it already */
    size_t unit;
    /* Scales of the rows of tile t; any value past the last row. NULL if all weights have one scale. */
    void (*scales)(const tm_ternary_matmul_args *args, size_t t, float *scales);
    tm_kernel few; /* AVX-512, for products that tm_amx_takes refuses */
} tm_amx_format;

int tm_matmul_amx(tm_ternary_matmul_args *args, const tm_amx_format *format);

#endif
