/* ternary_matmul of i2_s_x86 with AVX2: codes go with their activations through maddubs into int16 sums, as in
 * ../avx2.c.
 *
 * A maddubs adds at most 512 in magnitude, so 64 of them, 16 blocks, fit int16; then pmaddwd by 1 moves them to
 * int32. Many rows: see avx512.c.
 *
 * One row, weights fetched ahead (Zen 3, one and two threads, 2560 x 6912, 6912 x 2560 and 4096 x 14336; time over that
 * without, by turns, outside of the project, from memory / in the caches):
 *   v1  a row at a time, before it is met                           0.82 to 1.01 / 0.80 to 1.29
 *   v2  a line for every second block                               0.83 to 0.90 / 0.84 to 1.15
 *   v3  a line for every block, which asks for each line twice      0.79 to 0.90 / 0.84 to 1.08
 *   v4  v3 with the address in one register                         0.75 to 0.94 / 0.60 to 0.99
 *   v5  v4 as a function of its own and not inlined thrice; v4 takes 1.00 to 1.12 / 0.99 to 1.22 of its time
 * Sums of a vector type of int16, without the moves that GCC 12 puts into this loop: the same in the caches, 1.00 to 1.12
 * from memory. */
#include "i2_s_x86.h"

#if TM_X86
TM_BEGIN(avx2)
#include "../dots_maddubs.h"
#include "../tiles_avx2.h"
#include "i2_s_x86_avx2.h"

enum {
    ARRANGED = 6, /* fewest rows of activations for which weights are arranged as tile64 */
};

static __attribute__((noinline)) int32_t
one_row(const enum tm_prefetch_level level, size_t ahead, const uint8_t *row, const int8_t *x, size_t K)
{
    const __m256i m3 = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1);
    const size_t blocks = K / TM_I2_S_BLOCK;
    uintptr_t behind = (uintptr_t)row + ahead;
    __asm__("" : "+r"(behind)); /* or it is made anew of two numbers on the stack, each time */
    __m256i s_i32x8 = _mm256_setzero_si256();
    for (size_t begin = 0; begin < blocks; begin += 4 * TM_I2_S_FLUSH) { /* four sums, of a quarter of the terms each */
        const size_t end = blocks - begin < 4 * TM_I2_S_FLUSH ? blocks : begin + 4 * TM_I2_S_FLUSH;
        __m256i s_i16x16[4];
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++)
            s_i16x16[g] = _mm256_setzero_si256();
        for (size_t k = begin; k < end; k++) {
            const __m256i w = _mm256_loadu_si256((const __m256i *)(row + k * TM_I2_S_BYTES));
            tm_prefetch_line((const void *)(behind + k * TM_I2_S_BYTES), level, 0);
#pragma GCC unroll 4
            for (int g = 0; g < 4; g++) {
                const __m256i c = _mm256_and_si256(_mm256_srli_epi16(w, 6 - 2 * g), m3);
                const __m256i a = _mm256_loadu_si256((const __m256i *)(x + k * TM_I2_S_BLOCK + 32 * g));
                s_i16x16[g] = _mm256_add_epi16(s_i16x16[g], _mm256_maddubs_epi16(c, a));
            }
        }
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++)
            s_i32x8 = _mm256_add_epi32(s_i32x8, _mm256_madd_epi16(s_i16x16[g], ones));
    }
    return tm_sum_of(s_i32x8);
}

static void body(void *given, size_t begin, size_t end)
{
    const tm_ternary_matmul_args *args = given;
    if (args->M == 1)
        tm_matmul_one(args, begin, end, args->K / 4, tm_weights_prefetch(tm_weights_far), one_row);
    else
        tm_matmul_rows(args, begin, end, args->K / 4, TM_I2_S_MOST, tm_i2_s_micro);
}

int tm_ternary_matmul_i2_s_x86_avx2(void *given)
{
    tm_ternary_matmul_args *args = given;
    return args->M < ARRANGED ? tm_matmul_run_by(args, TM_ROWS, body, TM_RANK(avx2))
                              : tm_matmul_run(args, tm_i2_s_arranged, TM_RANK(avx2));
}

TM_END
#endif
