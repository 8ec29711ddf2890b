/* ternary_matmul on the bytes of i2_s_x86 (kernels/formats/i2_s.py), for K that is a multiple of a block, so that rows
 * begin at one.
 *
 * A block of 128 weights is 32 bytes: byte b holds, from the top bits, the codes w + 1 of the weights b, 32 + b, 64 + b
 * and 96 + b. So a shift gives the codes of 32 adjacent activations. Page: docs/kernels/i2_s_x86.md. */
#ifndef TM_I2_S_X86_H
#define TM_I2_S_X86_H

#include "../rows.h"
#include "../tiles.h"

enum { TM_I2_S_BLOCK = 128, TM_I2_S_BYTES = 32 };

TM_KERNELS(ternary_matmul_i2_s_x86);

/* See tm_arrange. */
void tm_i2_s_arrange_avx512(const tm_ternary_matmul_args *args, size_t t, size_t k, size_t groups, uint8_t *to);

/* For many rows of activations weights are converted to tile64 (../tiles.h), by whole blocks. */

/* Addresses of the rows of tile t, from group k, which is a byte of each. Past the last row the first is repeated, and
 * its sums are not stored. Prefetches what `groups` groups of the next tile take. */
static inline void tm_i2_s_tile(
    const tm_ternary_matmul_args *args, size_t t, size_t k, size_t groups, const uint8_t *rows[TM_TILE])
{
    const size_t row = args->K / 4, n = t * TM_TILE, count = args->N - n < TM_TILE ? args->N - n : TM_TILE;
    for (size_t r = 0; r < TM_TILE; r++) {
        rows[r] = args->weights + (n + (r < count ? r : 0)) * row + k;
        __builtin_prefetch(rows[r] + TM_TILE * row, 0, 2);
        __builtin_prefetch(rows[r] + TM_TILE * row + groups - 1, 0, 2);
    }
}

/* The first group in the 16 bytes from byte `at`: they hold 4 of 32, of each quarter of a block. */
static inline size_t tm_i2_s_group(size_t at) { return at / TM_I2_S_BYTES * TM_I2_S_BYTES + at % TM_I2_S_BYTES / 4; }

#endif
