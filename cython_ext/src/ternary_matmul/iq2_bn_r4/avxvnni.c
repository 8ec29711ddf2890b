/* ternary_matmul of iq2_bn_r4 with AVX-VNNI, for processors with vpdpbusd and without AVX-512.
 *
 * One row of activations: four after four, half a block at a time, codes in place as with AVX-512 (avx512.c, with the
 * same bound on a chunk). Several rows: codes are shifted down, as with AVX2, but with 8 sums at once, which hide the
 * latency of vpdpbusd; 4 do not.
 *
 * Rates: `python suites/performance/instruction_sets.py --format iq2_bn_r4 --sets avx2 avxvnni`. Page:
 * docs/kernels/iq2_bn_r4.md. */
#include "iq2_bn_r4.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avxvnni)
#include "../dots_dpbusd.h"
#include "iq2_bn_r4_avx2.h"

enum {
    CHUNK = 1 << 19, /* columns between two shifts of the sums */
    HALVES = 2, /* halves of a block, with sums of their own */
    FOURS = 2, /* fours at once, for more than two rows of activations: 4 rows have 8 sums */
    FEW = 2, /* rows of activations that take TM_FOURS fours at once: 8 sums too */
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

/* `count` and `fours` are constants at each call, so that sums stay in registers. */
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
