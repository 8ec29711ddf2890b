/* ternary_matmul of i2_s_x86 with AVX2: codes are multiplied by their activations with maddubs into int16 sums, as in
 * ../avx2.c.
 *
 * A maddubs adds at most 512 in magnitude, so 64 of them, 16 blocks, fit int16; then pmaddwd by 1 moves them to int32.
 * One row of activations: two rows of weights at once, so three loads for a block instead of five; weights are
 * prefetched a line for each block. Many rows: weights are converted to tile64, as in avx512.c.
 *
 * Rates: `python suites/performance/gemv.py --format i2_s_x86 --no-peers --variant avx2 --shapes 2560x2560`. Versions
 * and what lost: docs/kernels/i2_s_x86.md. */
#include "i2_s_x86.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avx2)
#include "../dots_maddubs.h"
#include "../tiles_avx2.h"
#include "i2_s_x86_avx2.h"

enum {
    ARRANGED = 6, /* fewest rows of activations for which weights are converted to tile64 */
};

static __attribute__((noinline)) void two_rows(
    const enum tm_prefetch_level level, size_t ahead, const uint8_t *const *rows, const int8_t *x, size_t K,
    int32_t *acc)
{
    const __m256i m3 = _mm256_set1_epi8(3);
    const tm_dots zero = {0};
    const uint8_t *const first = rows[0], *const second = rows[1];
    const size_t blocks = K / TM_I2_S_BLOCK;
    uintptr_t behind = (uintptr_t)second + ahead;
    __asm__("" : "+r"(behind)); /* else it is computed each time from two values on the stack */
    __m256i s_i32x8[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (size_t begin = 0; begin < blocks; begin += 4 * TM_I2_S_FLUSH) { /* four sums, each of a quarter of the terms */
        const size_t end = blocks - begin < 4 * TM_I2_S_FLUSH ? blocks : begin + 4 * TM_I2_S_FLUSH;
        tm_dots s[2][4];
#pragma GCC unroll 2
        for (int r = 0; r < 2; r++)
#pragma GCC unroll 4
            for (int g = 0; g < 4; g++)
                s[r][g] = zero;
        for (size_t k = begin; k < end; k++) {
            const __m256i w[2] = {
                _mm256_loadu_si256((const __m256i *)(first + k * TM_I2_S_BYTES)),
                _mm256_loadu_si256((const __m256i *)(second + k * TM_I2_S_BYTES))};
            tm_prefetch_line((const void *)(behind + 2 * k * TM_I2_S_BYTES), level, 0);
#pragma GCC unroll 4
            for (int g = 0; g < 4; g++) {
                __m256i a = _mm256_loadu_si256((const __m256i *)(x + k * TM_I2_S_BLOCK + 32 * g));
                __asm__("" : "+x"(a)); /* else it is loaded for each row */
#pragma GCC unroll 2
                for (int r = 0; r < 2; r++) {
                    const __m256i c = _mm256_and_si256(_mm256_srli_epi16(w[r], 6 - 2 * g), m3);
                    s[r][g] = tm_dots_added(s[r][g], c, a);
                }
            }
        }
#pragma GCC unroll 2
        for (int r = 0; r < 2; r++)
#pragma GCC unroll 4
            for (int g = 0; g < 4; g++)
                s_i32x8[r] = _mm256_add_epi32(s_i32x8[r], tm_dots_sum(s[r][g]));
    }
    acc[0] = tm_sum_of(s_i32x8[0]);
    acc[1] = tm_sum_of(s_i32x8[1]);
}

static inline __attribute__((always_inline)) void one(
    const enum tm_prefetch_level level, size_t ahead, const uint8_t *const *rows, const int8_t *x, size_t K,
    int32_t *acc)
{
    for (int r = 0; r < TM_ROWS; r += 2)
        two_rows(level, ahead, rows + r, x, K, acc + r);
}

static void body(void *given, size_t begin, size_t end)
{
    const tm_ternary_matmul_args *args = given;
    if (args->M == 1)
        tm_matmul_one(args, begin, end, args->K / 4, tm_rows_prefetch(args->K), one);
    else
        tm_matmul_rows_fetched(args, begin, end, args->K / 4, TM_I2_S_MOST, tm_rows_prefetch(args->K), tm_i2_s_micro);
}

int tm_ternary_matmul_i2_s_x86_avx2(void *given)
{
    tm_ternary_matmul_args *args = given;
    return args->M < ARRANGED ? tm_matmul_run_by(args, TM_ROWS, body, TM_RANK(avx2))
                              : tm_matmul_run(args, tm_i2_s_arranged, TM_RANK(avx2));
}

TM_END
#endif
