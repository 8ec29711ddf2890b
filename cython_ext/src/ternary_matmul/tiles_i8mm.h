/* The micro kernel over tile64 with int8 matrix products; see i8mm.c. Included behind TM_BEGIN. */
#ifndef TM_TILES_I8MM_H
#define TM_TILES_I8MM_H

#include "dot_neon.h"
#include "tiles.h"

enum { TM_TILES_ROWS = TM_MATMUL_BLOCK };

typedef struct tm_tiles_words {
    uint8x16_t of[2]; /* rows 0 and 1 of a quarter, rows 2 and 3 */
} tm_tiles_words;

static inline tm_tiles_words tm_tiles_zipped(uint8x16_t first, uint8x16_t second)
{
    const uint32x4_t a = vreinterpretq_u32_u8(first), b = vreinterpretq_u32_u8(second);
    return (tm_tiles_words){{vreinterpretq_u8_u32(vzip1q_u32(a, b)), vreinterpretq_u8_u32(vzip2q_u32(a, b))}};
}

/* The products of 8 columns: `w` is one quarter, `x` holds two rows of activations in each of `pairs`. */
static inline __attribute__((always_inline)) void tm_tiles_multiply(
    const int pairs, tm_tiles_words w, const int8x16_t *x, int32x4_t (*u)[4][2])
{
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        const uint8x16_t c[4] = {
            vandq_u8(w.of[h], vdupq_n_u8(3)), vandq_u8(w.of[h], vdupq_n_u8(15)), vandq_u8(w.of[h], vdupq_n_u8(63)),
            w.of[h]};
#pragma GCC unroll 2
        for (int p = 0; p < pairs; p++)
#pragma GCC unroll 4
            for (int g = 0; g < 4; g++)
                u[p][g][h] = vusmmlaq_s32(u[p][g][h], c[g], x[p]);
    }
}

/* Adds (u - below) >> shift to the sums of four rows of weights, for one or two rows of activations. `u` and `below`
 * hold rows of weights 0 and 1, then 2 and 3, with the two rows of activations interleaved. */
static inline __attribute__((always_inline)) void tm_tiles_settle(
    int32_t (*acc)[TM_TILE], int second, int at, const int32x4_t *u, const int32x4_t *below, int shift)
{
    const int32x4_t down = vdupq_n_s32(-shift);
    const int32x4_t low_i32x4 = vshlq_s32(vsubq_s32(u[0], below[0]), down);
    const int32x4_t high_i32x4 = vshlq_s32(vsubq_s32(u[1], below[1]), down);
    vst1q_s32(acc[0] + at, vaddq_s32(vld1q_s32(acc[0] + at), vuzp1q_s32(low_i32x4, high_i32x4)));
    if (second)
        vst1q_s32(acc[1] + at, vaddq_s32(vld1q_s32(acc[1] + at), vuzp2q_s32(low_i32x4, high_i32x4)));
}

/* The products of one quarter of each group and 2 * `pairs` rows of activations under the nested masks. If only `rows`
 * exist, the last one is loaded twice. */
static inline __attribute__((always_inline)) void tm_tiles_quarter_sums(
    const int pairs, int rows, int quarter, const uint8_t *tile, size_t groups, const int8_t *a, size_t lda,
    int32x4_t u[2][4][2])
{
    const int8_t *row[4];
    int8x16_t x[2];
#pragma GCC unroll 2
    for (int p = 0; p < pairs; p++) {
        row[2 * p] = a + (size_t)(2 * p) * lda;
        row[2 * p + 1] = 2 * p + 1 < rows ? row[2 * p] + lda : row[2 * p];
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            u[p][i / 2][i % 2] = vdupq_n_s32(0);
    }
    const uint8_t *bytes = tile + 16 * quarter;
    size_t k = 0;
    for (; k + 2 <= groups; k += 2) {
        const tm_tiles_words w = tm_tiles_zipped(vld1q_u8(bytes + k * TM_TILE), vld1q_u8(bytes + (k + 1) * TM_TILE));
#pragma GCC unroll 2
        for (int p = 0; p < pairs; p++)
            x[p] = vcombine_s8(vld1_s8(row[2 * p] + 4 * k), vld1_s8(row[2 * p + 1] + 4 * k));
        tm_tiles_multiply(pairs, w, x, u);
    }
    if (k < groups) { /* the missing second group is zeros */
        const tm_tiles_words w = tm_tiles_zipped(vld1q_u8(bytes + k * TM_TILE), vdupq_n_u8(0));
#pragma GCC unroll 2
        for (int p = 0; p < pairs; p++) {
            int8_t last[16] = {0};
            memcpy(last, row[2 * p] + 4 * k, 4);
            memcpy(last + 8, row[2 * p + 1] + 4 * k, 4);
            x[p] = vld1q_s8(last);
        }
        tm_tiles_multiply(pairs, w, x, u);
    }
}

/* One quarter of each group for 2 * `pairs` rows of activations, of which `rows` exist. */
static inline __attribute__((always_inline)) void tm_tiles_quarter(
    const int pairs, int rows, int quarter, const uint8_t *tile, size_t groups, const int8_t *a, size_t lda,
    int32_t (*acc)[TM_TILE])
{
    int32x4_t u[2][4][2];
    tm_tiles_quarter_sums(pairs, rows, quarter, tile, groups, a, lda, u);
#pragma GCC unroll 2
    for (int p = 0; p < pairs; p++) {
        const int32x4_t zero[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++)
            tm_tiles_settle(
                acc + 2 * p, 2 * p + 1 < rows, 16 * g + 4 * quarter, u[p][g], g ? u[p][g - 1] : zero, 2 * g);
    }
}

static __attribute__((unused)) void tm_tiles_micro(
    const uint8_t *tile, size_t groups, const int8_t *a, size_t lda, int rows, int there, int32_t (*acc)[TM_TILE])
{
    if (rows == 1)
        tm_dot_quarters(1, 4, 0, tile, groups, a, lda, acc);
    else
        for (int quarter = 0; quarter < tm_tile_parts(there, 4); quarter++) {
            if (rows == 2)
                tm_tiles_quarter(1, 2, quarter, tile, groups, a, lda, acc);
            else
                tm_tiles_quarter(2, rows, quarter, tile, groups, a, lda, acc);
        }
}

#endif
