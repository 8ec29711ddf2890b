/* Shared by NEON and its dot products for iq2_bn_r4: 16 bytes hold four columns of each of four rows at each 2 bits,
 * and meet four activations, a lane of the 16 loaded. Included behind TM_BEGIN and the definitions of one of them:
 * fours and rows of activations at once, columns between two additions to int32, tm_four_sums, TM_FOUR_ADDED and
 * tm_four_sum. */
#ifndef TM_IQ2_BN_R4_NEON_H
#define TM_IQ2_BN_R4_NEON_H

/* The codes at bit 2 * lane of 16 bytes of each four, by that lane of activations. The instruction takes an immediate,
 * hence a macro. */
#define TM_FOUR_FIELD(lane) \
    do { \
        TM_PRAGMA(GCC unroll 4) \
        for (int f = 0; f < TM_FOURS_AT_ONCE; f++) { \
            const int8x16_t codes = vreinterpretq_s8_u8(w[f] & 3); \
            w[f] >>= 2; \
            TM_PRAGMA(GCC unroll 4) \
            for (int m = 0; m < count; m++) \
                s[m][f] = TM_FOUR_ADDED(s[m][f], codes, x[m], lane); \
        } \
    } while (0)

static inline __attribute__((always_inline)) void tm_fours_by(
    const int count, const uint8_t *const *fours, const int8_t *a, size_t lda, size_t K,
    int32_t (*acc)[TM_FOUR * TM_FOURS])
{
    memset(acc, 0, (size_t)count * sizeof *acc);
    for (size_t begin = 0; begin < K; begin += TM_FOURS_COLUMNS) {
        const size_t end = K - begin < TM_FOURS_COLUMNS ? K : begin + TM_FOURS_COLUMNS;
        tm_four_sums s[TM_MATMUL_BLOCK][TM_FOURS];
#pragma GCC unroll 4
        for (int m = 0; m < count; m++)
#pragma GCC unroll 4
            for (int f = 0; f < TM_FOURS_AT_ONCE; f++)
                s[m][f] = (tm_four_sums){0};
#pragma GCC unroll 1
        for (size_t k = begin; k < end; k += 16) {
            uint8x16_t w[TM_FOURS];
            int8x16_t x[TM_MATMUL_BLOCK];
#pragma GCC unroll 4
            for (int f = 0; f < TM_FOURS_AT_ONCE; f++)
                w[f] = vld1q_u8(fours[f] + k);
#pragma GCC unroll 4
            for (int m = 0; m < count; m++)
                x[m] = vld1q_s8(a + (size_t)m * lda + k);
            TM_FOUR_FIELD(0);
            TM_FOUR_FIELD(1);
            TM_FOUR_FIELD(2);
            TM_FOUR_FIELD(3);
        }
#pragma GCC unroll 4
        for (int m = 0; m < count; m++)
#pragma GCC unroll 4
            for (int f = 0; f < TM_FOURS_AT_ONCE; f++) {
                int32_t *at = acc[m] + TM_FOUR * f;
                vst1q_s32(at, vaddq_s32(vld1q_s32(at), tm_four_sum(s[m][f])));
            }
    }
}

/* Past the last four the first is repeated, and its sums are not stored. */
static void tm_fours_micro_neon(
    const uint8_t *weights, int fours, const int8_t *a, size_t lda, int count, size_t K,
    int32_t (*acc)[TM_FOUR * TM_FOURS])
{
    const uint8_t *at[TM_FOURS];
    for (int f = 0; f < TM_FOURS_AT_ONCE; f++)
        at[f] = weights + (f < fours ? (size_t)f * tm_four_bytes(K) : 0);
    if (TM_FOURS_ROWS == 2 && count > 1)
        tm_fours_by(2, at, a, lda, K, acc);
    else if (TM_FOURS_ROWS == 2)
        tm_fours_by(1, at, a, lda, K, acc);
    else
        TM_ROWS_COUNTED(tm_fours_by, count, at, a, lda, K, acc)
}

static void tm_fours_body(void *args, size_t begin, size_t end)
{
    tm_matmul_fours(args, begin, end, TM_FOURS_AT_ONCE, TM_FOURS_ROWS, tm_fours_micro_neon);
}

#endif
