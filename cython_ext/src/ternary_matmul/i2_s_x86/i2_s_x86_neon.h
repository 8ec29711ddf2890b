/* Shared by NEON and its dot products for i2_s_x86. Included behind TM_BEGIN and the sums of one of them. */
#ifndef TM_I2_S_X86_NEON_H
#define TM_I2_S_X86_NEON_H

#include "../rows_neon.h"

static inline __attribute__((always_inline)) void tm_i2_s_by(
    const int count, const uint8_t *const *rows, const int8_t *a, size_t lda, size_t K, int32_t (*acc)[TM_ROWS])
{
    memset(acc, 0, (size_t)count * sizeof *acc);
    for (size_t begin = 0; begin < K; begin += TM_DOTS_COLUMNS) {
        const size_t end = K - begin < TM_DOTS_COLUMNS ? K : begin + TM_DOTS_COLUMNS;
        tm_rows_sums s;
        tm_rows_none(count, &s);
        for (size_t k = begin; k < end; k += TM_I2_S_BLOCK)
#pragma GCC unroll 1
            for (size_t half = 0; half < TM_I2_S_BYTES; half += 16)
                tm_rows_fields(count, 1, TM_I2_S_BYTES, &s, rows, k / 4 + half, a + k + half, lda);
#pragma GCC unroll 4
        for (int m = 0; m < count; m++)
            vst1q_s32(acc[m], vaddq_s32(vld1q_s32(acc[m]), tm_rows_sum(&s, m)));
    }
}

static void tm_i2_s_micro(
    const uint8_t *const *rows, const int8_t *a, size_t lda, int count, size_t K, int32_t (*acc)[TM_ROWS])
{
    TM_ROWS_COUNTED(tm_i2_s_by, count, rows, a, lda, K, acc)
}

static void tm_i2_s_body(void *args, size_t begin, size_t end)
{
    tm_matmul_rows(args, begin, end, ((const tm_ternary_matmul_args *)args)->K / 4, TM_MATMUL_BLOCK, tm_i2_s_micro);
}

#endif
