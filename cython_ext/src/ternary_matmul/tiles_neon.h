/* The micro kernel over tile64 with NEON; see neon.c. Included behind TM_BEGIN. */
#ifndef TM_TILES_NEON_H
#define TM_TILES_NEON_H

#include "tiles.h"

enum {
    TM_TILES_FLUSH = 128,
    TM_TILES_ROWS = 2 /* of activations at once */
};

static inline int8x16_t tm_tiles_four(const int8_t *a)
{
    int32_t word;
    memcpy(&word, a, sizeof word);
    return vreinterpretq_s8_s32(vdupq_n_s32(word));
}

/* Adds the products of `rows` rows of activations and `quarters` quarters of groups [begin, end), from `first`; rows *
 * quarters is 2. */
static inline __attribute__((always_inline)) void tm_tiles_quarters_sums(
    const int rows, const int quarters, int first, const uint8_t *tile, size_t begin, size_t end, const int8_t *a,
    size_t lda, int16x8_t low[TM_TILES_ROWS][2][4], int16x8_t high[TM_TILES_ROWS][2][4])
{
    const uint8x16_t m3 = vdupq_n_u8(3);
    for (size_t k = begin; k < end; k++) {
#pragma GCC unroll 2
        for (int q = 0; q < quarters; q++) {
            const uint8x16_t w = vld1q_u8(tile + k * TM_TILE + 16 * (first + q));
            const int8x16_t c[4] = {
                vreinterpretq_s8_u8(vandq_u8(w, m3)),
                vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(w, 2), m3)),
                vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(w, 4), m3)),
                vreinterpretq_s8_u8(vshrq_n_u8(w, 6)),
            };
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++) {
                const int8x16_t a_i8x16 = tm_tiles_four(a + (size_t)r * lda + 4 * k);
#pragma GCC unroll 4
                for (int g = 0; g < 4; g++) {
                    low[r][q][g] = vmlal_s8(low[r][q][g], vget_low_s8(c[g]), vget_low_s8(a_i8x16));
                    high[r][q][g] = vmlal_high_s8(high[r][q][g], c[g], a_i8x16);
                }
            }
        }
    }
}

/* `quarters` quarters of each group, from `first`, for `rows` rows of activations. */
static inline __attribute__((always_inline)) void tm_tiles_quarters(
    const int rows, const int quarters, int first, const uint8_t *tile, size_t groups, const int8_t *a, size_t lda,
    int32_t (*acc)[TM_TILE])
{
    for (size_t begin = 0; begin < groups; begin += TM_TILES_FLUSH) {
        const size_t end = groups - begin < TM_TILES_FLUSH ? groups : begin + TM_TILES_FLUSH;
        int16x8_t low[TM_TILES_ROWS][2][4], high[TM_TILES_ROWS][2][4];
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int q = 0; q < quarters; q++)
#pragma GCC unroll 4
                for (int g = 0; g < 4; g++)
                    low[r][q][g] = high[r][q][g] = vdupq_n_s16(0);
        tm_tiles_quarters_sums(rows, quarters, first, tile, begin, end, a, lda, low, high);
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int q = 0; q < quarters; q++)
#pragma GCC unroll 4
                for (int g = 0; g < 4; g++) {
                    int32_t *sum = acc[r] + 16 * g + 4 * (first + q);
                    const int32x4_t rows_i32x4 = vpaddq_s32(vpaddlq_s16(low[r][q][g]), vpaddlq_s16(high[r][q][g]));
                    vst1q_s32(sum, vaddq_s32(vld1q_s32(sum), rows_i32x4));
                }
    }
}

static __attribute__((unused)) void tm_tiles_micro(
    const uint8_t *tile, size_t groups, const int8_t *a, size_t lda, int rows, int there, int32_t (*acc)[TM_TILE])
{
    if (rows == 1)
        for (int first = 0; first < tm_tile_parts(there, 4); first += 2)
            tm_tiles_quarters(1, 2, first, tile, groups, a, lda, acc);
    else
        for (int first = 0; first < tm_tile_parts(there, 4); first++)
            tm_tiles_quarters(2, 1, first, tile, groups, a, lda, acc);
}

#endif
