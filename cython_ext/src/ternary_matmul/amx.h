/* What amx.c, over tile64, does with the weights of other formats.
 *
 * A thread brings a stretch of them into tile64, on its stack, and its rows of activations pass that. With AVX-512 they
 * become tile64 as well, 16 KiB at a time. For 2560 x 2560 and one thread that takes 0.1 ms from i2_s_x86 and 0.27 from tl1,
 * whatever the number of rows. Time over AVX-512's by turns on a virtual machine with AMX (Intel Emerald Rapids, the host of
 * an H100), outside of this project, float32 outputs; in the caches 2560 x 2560, 6912 x 2560 and 2560 x 6912, from memory the
 * last two (on such a machine `python suites/performance/instruction_sets.py --format i2_s_x86 --sets avx512 amx --rows 16 64
 * 512` compares them in the caches):
 *   rows                               6             8             16            64            512
 *   i2_s_x86    1 thread   caches      0.73 to 0.99  0.56 to 0.78  0.46 to 0.61  0.29 to 0.31  0.21 to 0.23
 *                          memory      0.75 to 0.83  0.64 to 0.70  0.51 to 0.58  0.31 to 0.32
 *              16 threads  caches      0.75 to 0.88  0.61 to 0.74  0.56 to 0.61  0.43 to 0.51  0.36 to 0.50
 *                          memory      0.98 to 1.03  0.87          0.60 to 0.63  0.43 to 0.50
 *   iq2_bn_r4   1 thread   caches      0.66 to 0.91  0.58 to 0.78  0.40 to 0.50  0.25 to 0.27  0.22 to 0.23
 *                          memory      0.82 to 0.87  0.66 to 0.68  0.42 to 0.45  0.27 to 0.31
 *              16 threads  caches      0.76 to 0.86  0.66 to 0.72  0.54 to 0.56  0.44 to 0.50  0.36 to 0.49
 *                          memory      0.99 to 1.06  0.87 to 0.91  0.55 to 0.63  0.42 to 0.46
 *   tl1, tl2    1 thread   caches      0.93 to 1.02  0.78 to 0.88  0.58 to 0.66  0.32 to 0.36  0.22 to 0.25
 *                          memory      0.89 to 0.96  0.79 to 0.84  0.56 to 0.62  0.31 to 0.34
 *              16 threads  caches      0.94 to 1.01  0.82 to 0.95  0.65 to 0.69  0.44 to 0.59  0.37 to 0.56
 *                          memory      0.91 to 1.05  0.90 to 0.94  0.65 to 0.70  0.43 to 0.52
 * Beside tile64's own time it is 0.95 to 1.19 times that with one thread and 512 rows, 1.07 to 1.43 times with 16. */
#ifndef TM_AMX_H
#define TM_AMX_H

#include "tiles.h"

typedef struct tm_amx_format {
    tm_arrange arrange; /* brings weights into tile64, `unit` groups at least; NULL where they are that */
    size_t unit;
    /* Scales of the rows of tile t; of rows past the last any. NULL where all weights have one. */
    void (*scales)(const tm_ternary_matmul_args *args, size_t t, float *scales);
    tm_kernel few; /* for products that tm_amx_takes leaves to it, with AVX-512 */
} tm_amx_format;

int tm_matmul_amx(tm_ternary_matmul_args *args, const tm_amx_format *format);

#endif
