/* tile64 with the dot products of NEON, shared by dotprod.c and i8mm.c. Included behind TM_BEGIN, and compiled for the
 * including file's instruction set. */
#ifndef TM_DOT_NEON_H
#define TM_DOT_NEON_H

/* Adds (u - below) >> shift to four rows' sums; `below` is the sum under the next smaller mask. */
#define TM_SETTLE(sums, u, below, shift) \
    vst1q_s32(sums, vaddq_s32(vld1q_s32(sums), vshrq_n_s32(vsubq_s32(u, below), shift)))

/* The codes of 16 bytes under the nested masks of avx512.c. sdot takes signed bytes, so the highest codes are shifted
 * down. */
static inline __attribute__((always_inline)) void tm_nested(const uint8_t *bytes, int8x16_t *c)
{
    const uint8x16_t w = vld1q_u8(bytes);
    c[0] = vreinterpretq_s8_u8(vandq_u8(w, vdupq_n_u8(3)));
    c[1] = vreinterpretq_s8_u8(vandq_u8(w, vdupq_n_u8(15)));
    c[2] = vreinterpretq_s8_u8(vandq_u8(w, vdupq_n_u8(63)));
    c[3] = vreinterpretq_s8_u8(vshrq_n_u8(w, 6));
}

/* One group, whose four activations are lane `lane` of those loaded. The instruction takes an immediate, hence a
 * macro. */
#define TM_DOT_GROUP(k, lane) \
    do { \
        TM_PRAGMA(GCC unroll 4) \
        for (int q = 0; q < quarters; q++) { \
            int8x16_t c[4]; \
            tm_nested(tile + (k) * TM_TILE + 16 * (first + q), c); \
            TM_PRAGMA(GCC unroll 4) \
            for (int r = 0; r < rows; r++) { \
                TM_PRAGMA(GCC unroll 4) \
                for (int g = 0; g < 4; g++) \
                    u[r][q][g] = vdotq_laneq_s32(u[r][q][g], c[g], a_i8x16[r], lane); \
            } \
        } \
    } while (0)

/* Adds the products of `rows` rows of activations and `quarters` quarters of each group, from `first`, 4 of each 16
 * rows, under the nested masks. rows * quarters is at most 4, which takes 16 of the 32 registers. */
static inline __attribute__((always_inline)) void tm_dot_quarters_sums(
    const int rows, const int quarters, int first, const uint8_t *tile, size_t groups, const int8_t *a, size_t lda,
    int32x4_t u[4][4][4])
{
    int8x16_t a_i8x16[4];
    size_t k = 0;
    for (; k + 4 <= groups; k += 4) {
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            a_i8x16[r] = vld1q_s8(a + (size_t)r * lda + 4 * k);
        TM_DOT_GROUP(k, 0);
        TM_DOT_GROUP(k + 1, 1);
        TM_DOT_GROUP(k + 2, 2);
        TM_DOT_GROUP(k + 3, 3);
    }
    for (; k < groups; k++) {
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            int32_t word;
            memcpy(&word, a + (size_t)r * lda + 4 * k, sizeof word);
            a_i8x16[r] = vreinterpretq_s8_s32(vdupq_n_s32(word));
        }
        TM_DOT_GROUP(k, 0);
    }
}

/* `quarters` quarters of each group, from `first`, for `rows` rows of activations. */
static inline __attribute__((always_inline)) void tm_dot_quarters(
    const int rows, const int quarters, int first, const uint8_t *tile, size_t groups, const int8_t *a, size_t lda,
    int32_t (*acc)[TM_TILE])
{
    int32x4_t u[4][4][4];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int q = 0; q < quarters; q++)
#pragma GCC unroll 4
            for (int g = 0; g < 4; g++)
                u[r][q][g] = vdupq_n_s32(0);
    tm_dot_quarters_sums(rows, quarters, first, tile, groups, a, lda, u);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int q = 0; q < quarters; q++) {
            int32_t *sums = acc[r] + 4 * (first + q);
            vst1q_s32(sums, vaddq_s32(vld1q_s32(sums), u[r][q][0]));
            TM_SETTLE(sums + 16, u[r][q][1], u[r][q][0], 2);
            TM_SETTLE(sums + 32, u[r][q][2], u[r][q][1], 4);
            vst1q_s32(sums + 48, vaddq_s32(vld1q_s32(sums + 48), u[r][q][3]));
        }
}

#endif
