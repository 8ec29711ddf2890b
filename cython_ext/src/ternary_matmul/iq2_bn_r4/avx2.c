/* ternary_matmul of iq2_bn_r4 with AVX2: half a block at a time, codes shifted down go with their activations, each
 * four of them for all four rows, through maddubs into int16 sums.
 *
 * Story (Zen 4, one thread, M = 1, 2560 x 6912 from memory):
 *   v1  two fours at a time: 10 GB/s, for memory sees two streams a row long
 *   v2  one four at a time with one row of activations: 24 GB/s
 *   v3  weights fetched ahead, on Zen 3, one and two threads, time over that without, by turns, outside of the project: 0.74
 *       to 0.80 from memory, 0.79 to 0.99 in the caches; asked for once in 64 bytes, by a branch in the loop, 0.77 to 0.83
 *       and 0.76 to 1.19
 *
 * A maddubs adds at most 512 in magnitude, so 64 of them, the 8 of FLUSH blocks, fit int16; then pmaddwd by 1 moves
 * them to int32. */
#include "iq2_bn_r4.h"

#if TM_X86
TM_BEGIN(avx2)
#include "iq2_bn_r4_avx2.h"

enum {
    FLUSH = 8,
    MOST = 2,
    FOURS = 2
}; /* rows of activations, and fours: 4 sums, and what they meet, are all that fit */

/* `count` and `fours` are constants at each call, so that the sums stay in registers. */
static inline __attribute__((always_inline)) void blocks_by(
    const int fours, const int count, const enum tm_prefetch_level level, size_t ahead, const uint8_t *weights,
    const int8_t *a, size_t lda, size_t K, int32_t (*acc)[TM_FOUR * TM_FOURS])
{
    const __m256i m3 = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1);
    __m256i s_i32x8[MOST][FOURS];
    for (int m = 0; m < count; m++)
        for (int f = 0; f < fours; f++)
            s_i32x8[m][f] = _mm256_setzero_si256();
    for (size_t begin = 0; begin < K; begin += FLUSH * TM_FOUR_BLOCK) {
        const size_t end = K - begin < FLUSH * TM_FOUR_BLOCK ? K : begin + FLUSH * TM_FOUR_BLOCK;
        __m256i s_i16x16[MOST][FOURS];
#pragma GCC unroll 2
        for (int m = 0; m < count; m++)
#pragma GCC unroll 2
            for (int f = 0; f < fours; f++)
                s_i16x16[m][f] = _mm256_setzero_si256();
        for (size_t k = begin; k < end; k += 32) {
            __m256i w[FOURS], x[MOST];
#pragma GCC unroll 2
            for (int f = 0; f < fours; f++)
                w[f] = tm_four_half(weights + (size_t)f * tm_four_bytes(K) + k);
            tm_prefetch_line(weights + k, level, ahead);
#pragma GCC unroll 2
            for (int m = 0; m < count; m++)
                x[m] = tm_four_half(a + (size_t)m * lda + k);
#pragma GCC unroll 4
            for (int s = 0; s < 4; s++)
#pragma GCC unroll 2
                for (int f = 0; f < fours; f++) {
                    const __m256i c = _mm256_and_si256(_mm256_srli_epi16(w[f], 2 * s), m3);
#pragma GCC unroll 2
                    for (int m = 0; m < count; m++)
                        s_i16x16[m][f] =
                            _mm256_add_epi16(s_i16x16[m][f], _mm256_maddubs_epi16(c, tm_four_spread(x[m], s)));
                }
        }
#pragma GCC unroll 2
        for (int m = 0; m < count; m++)
#pragma GCC unroll 2
            for (int f = 0; f < fours; f++)
                s_i32x8[m][f] = _mm256_add_epi32(s_i32x8[m][f], _mm256_madd_epi16(s_i16x16[m][f], ones));
    }
    for (int m = 0; m < count; m++)
        for (int f = 0; f < fours; f++)
            tm_four_sums(s_i32x8[m][f], acc[m] + TM_FOUR * f);
}

static void micro(
    const uint8_t *weights, int fours, const int8_t *a, size_t lda, int count, size_t K,
    int32_t (*acc)[TM_FOUR * TM_FOURS])
{
    if (fours == 1 && count == 1)
        blocks_by(1, 1, TM_PREFETCH_NONE, 0, weights, a, lda, K, acc);
    else if (fours == 1)
        blocks_by(1, 2, TM_PREFETCH_NONE, 0, weights, a, lda, K, acc);
    else if (count == 1)
        blocks_by(2, 1, TM_PREFETCH_NONE, 0, weights, a, lda, K, acc);
    else
        blocks_by(2, 2, TM_PREFETCH_NONE, 0, weights, a, lda, K, acc);
}

static void one(
    const uint8_t *weights, int fours, const int8_t *a, size_t lda, int count, size_t K,
    int32_t (*acc)[TM_FOUR * TM_FOURS])
{
    (void)fours, (void)count;
    TM_PREFETCHED(tm_weights_prefetch(tm_weights_plain), blocks_by(1, 1, level, ahead, weights, a, lda, K, acc));
}

/* With one row of activations one four at a time, so that the weights are one stream of memory. */
static void body(void *given, size_t begin, size_t end)
{
    const tm_ternary_matmul_args *args = given;
    if (args->M == 1)
        tm_matmul_fours(args, begin, end, 1, 1, one);
    else
        tm_matmul_fours(args, begin, end, FOURS, MOST, micro);
}

int tm_ternary_matmul_iq2_bn_r4_avx2(void *args) { return tm_matmul_run_by(args, TM_FOUR, body, TM_RANK(avx2)); }

TM_END
#endif
