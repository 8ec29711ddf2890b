/* Formats in which adjacent codes meet adjacent activations: four rows of weights by up to four rows of activations.
 * Included behind TM_BEGIN and the sums of dots_smlal.h or dots_sdot.h.
 *
 * For each 16 codes of a row of weights: the shift and mask, and a tm_dots_added for each row of activations, whose 16
 * bytes are loaded once for four rows of weights. With four rows of activations 16 sums take half of the 32 registers.
 * The loop over fields has 16 sdot, 4 loads, 4 ands, 4 shifts and 3 or 4 loop instructions (GCC 12, objdump of
 * i2_s_x86/dotprod.c). Not measured. */
#ifndef TM_ROWS_NEON_H
#define TM_ROWS_NEON_H

#include "rows.h"

/* For row m of the activations and row r of the weights. */
typedef struct tm_rows_sums {
    tm_dots of[TM_MATMUL_BLOCK][TM_ROWS];
} tm_rows_sums;

static inline __attribute__((always_inline)) void tm_rows_none(const int count, tm_rows_sums *s)
{
#pragma GCC unroll 4
    for (int m = 0; m < count; m++)
#pragma GCC unroll 4
        for (int r = 0; r < TM_ROWS; r++)
            s->of[m][r] = (tm_dots){0};
}

/* Multiplies codes of each row by 16 activations, which start at `a` in the first row of activations. */
static inline __attribute__((always_inline)) void tm_rows_added(
    const int count, tm_rows_sums *s, const uint8x16_t codes[TM_ROWS], const int8_t *a, size_t lda)
{
#pragma GCC unroll 4
    for (int m = 0; m < count; m++) {
        const int8x16_t x = vld1q_s8(a + (size_t)m * lda);
#pragma GCC unroll 4
        for (int r = 0; r < TM_ROWS; r++)
            s->of[m][r] = tm_dots_added(s->of[m][r], codes[r], x);
    }
}

/* 16 bytes of each row from `at`. The codes at bit 2 * g meet the 16 activations from `apart` * g; if they lie from the
 * top `down`, those at bit 6 - 2 * g. Not unrolled: GCC 12 would load all activations first, and spill. */
static inline __attribute__((always_inline)) void tm_rows_fields(
    const int count, const int down, const int apart, tm_rows_sums *s, const uint8_t *const *rows, size_t at,
    const int8_t *a, size_t lda)
{
    uint8x16_t w[TM_ROWS], codes[TM_ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < TM_ROWS; r++)
        w[r] = vld1q_u8(rows[r] + at);
#pragma GCC unroll 1
    for (int g = 0; g < 4; g++) {
#pragma GCC unroll 4
        for (int r = 0; r < TM_ROWS; r++) {
            codes[r] = w[r] & 3;
            w[r] >>= 2;
        }
        tm_rows_added(count, s, codes, a + apart * (down ? 3 - g : g), lda);
    }
}

/* The sums of row m of the activations with each row of weights, side by side. */
static inline __attribute__((always_inline)) int32x4_t tm_rows_sum(const tm_rows_sums *s, int m)
{
    const tm_dots *of = s->of[m];
    return vpaddq_s32(
        vpaddq_s32(tm_dots_sum(of[0]), tm_dots_sum(of[1])), vpaddq_s32(tm_dots_sum(of[2]), tm_dots_sum(of[3])));
}

static inline __attribute__((always_inline)) void tm_rows_store(
    const int count, const tm_rows_sums *s, int32_t (*acc)[TM_ROWS])
{
#pragma GCC unroll 4
    for (int m = 0; m < count; m++)
        vst1q_s32(acc[m], tm_rows_sum(s, m));
}

/* float16 to float by the processor's instruction, which is exact. */
static inline float tm_half_neon(uint16_t bits)
{
    float16_t half;
    memcpy(&half, &bits, sizeof half);
    return (float)half;
}

#endif
