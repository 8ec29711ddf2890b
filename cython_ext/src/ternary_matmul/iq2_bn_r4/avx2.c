/* ternary_matmul of iq2_bn_r4 with AVX2: half a block at a time. Codes are shifted down and multiplied by their
 * activations, four of them for all four rows, with maddubs into int16 sums.
 *
 * One row of activations takes one four at a time, so that weights are one stream of memory. ARRANGED rows or more:
 * weights are converted to tile64, a stretch of a tile at a time (tiles.h).
 *
 * A maddubs adds at most 512 in magnitude, so 64 of them, the 8 of FLUSH blocks, fit int16; then pmaddwd by 1 moves
 * them to int32.
 *
 * Rates: `python suites/performance/gemv.py --format iq2_bn_r4 --no-peers --variant avx2`. Versions and what lost:
 * docs/kernels/iq2_bn_r4.md. */
#include "iq2_bn_r4.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avx2)
#include "../tiles_avx2.h"
#include "../turned_avx2.h"
#include "iq2_bn_r4_avx2.h"

enum {
    FLUSH = 8,
    MOST = 2, /* rows of activations at once */
    FOURS = 2, /* fours at once: 4 sums and their operands fill the registers */
    ARRANGED = 6, /* fewest rows of activations for which weights are converted to tile64 */
};

/* `count` and `fours` are constants at each call, so that sums stay in registers. */
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

/* One row of activations: one four at a time, so that the weights are one stream of memory. */
static void body(void *given, size_t begin, size_t end)
{
    const tm_ternary_matmul_args *args = given;
    if (args->M == 1)
        tm_matmul_fours(args, begin, end, 1, 1, one);
    else
        tm_matmul_fours(args, begin, end, FOURS, MOST, micro);
}

/* Converts whole blocks to groups of a tile, like avx512.c, two fours of each quarter at a time. */
static void arrange(const tm_ternary_matmul_args *args, size_t t, size_t k, size_t groups, uint8_t *to)
{
    const uint8_t *fours[TM_TILE_FOURS];
    tm_four_tile(args, t, k, fours);
    for (size_t at = 0; at < groups; at += TM_FOUR_BLOCK / 4)
        for (size_t half = 0; half < 2; half++) {
            for (size_t f = 8 * half; f < 8 * half + 8; f++)
                __builtin_prefetch(fours[f] + 4 * at + TM_TILE_FOURS * tm_four_bytes(args->K), 0, 2);
#pragma GCC unroll 4
            for (size_t l = 0; l < 4; l++) {
                __m256i w[4], turned[4];
#pragma GCC unroll 4
                for (size_t q = 0; q < 4; q++) {
                    const uint8_t *const *of = fours + 4 * q + 2 * half;
                    w[q] = _mm256_loadu2_m128i(
                        (const __m128i *)(of[1] + 4 * at + 16 * l), (const __m128i *)(of[0] + 4 * at + 16 * l));
                }
                tm_tiles_turned(w, turned);
#pragma GCC unroll 4
                for (size_t s = 0; s < 4; s++)
                    _mm256_store_si256((__m256i *)(to + (at + 4 * l + s) * TM_TILE + 32 * half), turned[s]);
            }
        }
}

static void arranged(void *args, size_t begin, size_t end)
{
    tm_matmul_arranged_by(
        args, begin, end, TM_TILES_ROWS, tm_tiles_micro, arrange, TM_FOUR_BLOCK / 4, tm_four_tile_store);
}

int tm_ternary_matmul_iq2_bn_r4_avx2(void *given)
{
    tm_ternary_matmul_args *args = given;
    return args->M < ARRANGED ? tm_matmul_run_by(args, TM_FOUR, body, TM_RANK(avx2))
                              : tm_matmul_run(args, arranged, TM_RANK(avx2));
}

TM_END
#endif
