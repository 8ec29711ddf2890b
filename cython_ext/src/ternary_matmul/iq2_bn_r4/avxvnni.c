/* ternary_matmul of iq2_bn_r4 with AVX-VNNI, for processors with vpdpbusd and without AVX-512.
 *
 * One row of activations: four after four, half a block at a time, codes in their places as with AVX-512 (avx512.c, whose
 * bound on a chunk holds here too). Several: codes are shifted down, as with AVX2, but there are twice as many sums at once,
 * 8, which hide vpdpbusd's latency: with 4, two rows of activations gained 1.15 to 1.2 over AVX2 in place of 1.6.
 *
 * Rate over that of AVX2 (`python suites/performance/instruction_sets.py --format iq2_bn_r4 --sets avx2 avxvnni` on the Xeon
 * (Emerald Rapids) of an H200, one thread and 16; there is no other machine with it here): M = 1: 1.5, and 1.35; from 2 on: 1.4
 * to 2.0 (8 rows once 1.0, on a busy machine), and 1.3 to 1.6. */
#include "iq2_bn_r4.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avxvnni)
#include "../dots_dpbusd.h"
#include "iq2_bn_r4_avx2.h"

enum {
    CHUNK = 1 << 19, /* columns between two times that the sums come down */
    HALVES = 2, /* of a block, each of which has sums of its own */
    FOURS = 2, /* that more than two rows of activations meet at once, of which four go together: 8 sums, as */
    FEW = 2, /* of two with TM_FOURS fours */
};

static inline __attribute__((always_inline)) void one_row(
    const enum tm_prefetch_level level, size_t ahead, const uint8_t *weights, const int8_t *x, size_t K, int32_t *acc)
{
    const __m256i masks[4] = {
        _mm256_set1_epi8(3), _mm256_set1_epi8(12), _mm256_set1_epi8(48), _mm256_set1_epi8((char)192)};
    const tm_dots zero = {0};
    __m256i sum = _mm256_setzero_si256();
    for (size_t begin = 0; begin < K; begin += CHUNK) {
        const size_t end = K - begin < CHUNK ? K : begin + CHUNK;
        tm_dots s[HALVES][4];
#pragma GCC unroll 2
        for (int h = 0; h < HALVES; h++)
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                s[h][i] = zero;
        for (size_t k = begin; k < end; k += TM_FOUR_BLOCK) {
            tm_prefetch_line(weights + k, level, ahead);
#pragma GCC unroll 2
            for (int h = 0; h < HALVES; h++) {
                const __m256i w = tm_four_half(weights + k + 32 * (size_t)h);
                const __m256i a_i8x32 = tm_four_half(x + k + 32 * (size_t)h);
#pragma GCC unroll 4
                for (int i = 0; i < 4; i++)
                    s[h][i] = tm_dots_added(s[h][i], _mm256_and_si256(w, masks[i]), tm_four_spread(a_i8x32, i));
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            sum = _mm256_add_epi32(sum, _mm256_srai_epi32(tm_dots_sum(s[0][i] + s[1][i]), 2 * i));
    }
    tm_four_sums(sum, acc);
}

/* `count` and `fours` are constants at each call, so that the sums stay in registers. */
static inline __attribute__((always_inline)) void blocks_by(
    const int fours, const int count, const uint8_t *weights, const int8_t *a, size_t lda, size_t K,
    int32_t (*acc)[TM_FOUR * TM_FOURS])
{
    const __m256i m3 = _mm256_set1_epi8(3);
    const tm_dots zero = {0};
    tm_dots s[TM_MATMUL_BLOCK][TM_FOURS];
#pragma GCC unroll 4
    for (int m = 0; m < count; m++)
#pragma GCC unroll 4
        for (int f = 0; f < fours; f++)
            s[m][f] = zero;
    for (size_t k = 0; k < K; k += 32) {
        __m256i w[TM_FOURS], x[TM_MATMUL_BLOCK];
#pragma GCC unroll 4
        for (int f = 0; f < fours; f++)
            w[f] = tm_four_half(weights + (size_t)f * tm_four_bytes(K) + k);
#pragma GCC unroll 4
        for (int m = 0; m < count; m++)
            x[m] = tm_four_half(a + (size_t)m * lda + k);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
#pragma GCC unroll 4
            for (int f = 0; f < fours; f++) {
                const __m256i c = _mm256_and_si256(_mm256_srli_epi16(w[f], 2 * i), m3);
#pragma GCC unroll 4
                for (int m = 0; m < count; m++)
                    s[m][f] = tm_dots_added(s[m][f], c, tm_four_spread(x[m], i));
            }
    }
#pragma GCC unroll 4
    for (int m = 0; m < count; m++)
#pragma GCC unroll 4
        for (int f = 0; f < fours; f++)
            tm_four_sums(tm_dots_sum(s[m][f]), acc[m] + TM_FOUR * f);
}

static void few(
    const uint8_t *weights, int fours, const int8_t *a, size_t lda, int count, size_t K,
    int32_t (*acc)[TM_FOUR * TM_FOURS])
{
    (void)count;
    switch (fours) {
    case 1: blocks_by(1, FEW, weights, a, lda, K, acc); break;
    case 2: blocks_by(2, FEW, weights, a, lda, K, acc); break;
    case 3: blocks_by(3, FEW, weights, a, lda, K, acc); break;
    default: blocks_by(4, FEW, weights, a, lda, K, acc); break;
    }
}

static inline __attribute__((always_inline)) void counted(
    const int fours, const uint8_t *weights, const int8_t *a, size_t lda, int count, size_t K,
    int32_t (*acc)[TM_FOUR * TM_FOURS])
{
    switch (count) {
    case 1: blocks_by(fours, 1, weights, a, lda, K, acc); break;
    case 2: blocks_by(fours, 2, weights, a, lda, K, acc); break;
    case 3: blocks_by(fours, 3, weights, a, lda, K, acc); break;
    default: blocks_by(fours, 4, weights, a, lda, K, acc); break;
    }
}

static void many(
    const uint8_t *weights, int fours, const int8_t *a, size_t lda, int count, size_t K,
    int32_t (*acc)[TM_FOUR * TM_FOURS])
{
    if (fours == 1)
        counted(1, weights, a, lda, count, K, acc);
    else
        counted(FOURS, weights, a, lda, count, K, acc);
}

static void one(
    const uint8_t *weights, int fours, const int8_t *a, size_t lda, int count, size_t K,
    int32_t (*acc)[TM_FOUR * TM_FOURS])
{
    (void)fours, (void)lda, (void)count;
    TM_PREFETCHED(tm_weights_prefetch(tm_weights_plain), one_row(level, ahead, weights, a, K, acc[0]));
}

static void body(void *given, size_t begin, size_t end)
{
    const tm_ternary_matmul_args *args = given;
    if (args->M == 1)
        tm_matmul_fours(args, begin, end, 1, 1, one);
    else if (args->M == FEW)
        tm_matmul_fours(args, begin, end, TM_FOURS, FEW, few);
    else
        tm_matmul_fours(args, begin, end, FOURS, TM_MATMUL_BLOCK, many);
}

int tm_ternary_matmul_iq2_bn_r4_avxvnni(void *args) { return tm_matmul_run_by(args, TM_FOUR, body, TM_RANK(avxvnni)); }

TM_END
#endif
