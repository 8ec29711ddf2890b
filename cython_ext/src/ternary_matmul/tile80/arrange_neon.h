/* Shared by NEON's instruction sets for tile80: the conversion to tile64. Included behind TM_BEGIN and the micro kernel
 * of one of them. */
#ifndef TM_TILE80_ARRANGE_NEON_H
#define TM_TILE80_ARRANGE_NEON_H

#include "../digits_neon.h"

static inline __attribute__((always_inline)) void tm_tile80_arrange_from(
    const int start, const uint8_t *first, const uint8_t *second, size_t groups, uint8_t *to)
{
    for (size_t at = 0; at < groups * TM_TILE; at += 16) {
        uint8x16_t q = vld1q_u8(first + at), fields = vdupq_n_u8(0);
#pragma GCC unroll 4
        for (int i = 0; i < start; i++)
            q = tm_thrice(q);
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) {
            if (start + g == TM_TILE80_DIGITS)
                q = vld1q_u8(second + at);
            fields |= tm_digit_taken(&q) << (2 * g);
        }
        vst1q_u8(to + at, fields);
    }
}

static void tm_tile80_arrange(const tm_ternary_matmul_args *args, size_t t, size_t k, size_t groups, uint8_t *to)
{
    TM_TILE80_ARRANGE(tm_tile80_arrange_from, tm_tile80_blocks_of(args, t, k), groups, to)
}

static void tm_tile80_body(void *args, size_t begin, size_t end)
{
    tm_matmul_arranged(args, begin, end, TM_TILES_ROWS, tm_tiles_micro, tm_tile80_arrange, 1);
}

#endif
