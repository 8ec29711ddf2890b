/* ternary_matmul of i2_s_x86 in plain C: reference for the other kernels, fallback, and baseline. */
#include "i2_s_x86.h"

#include "../formats.h"
#include "../stacks.h"

static void micro(const uint8_t *const *rows, const int8_t *a, size_t lda, int count, size_t K, int32_t (*acc)[TM_ROWS])
{
    for (int m = 0; m < count; m++)
        for (int r = 0; r < TM_ROWS; r++) {
            int32_t sum = 0;
            for (size_t block = 0; block < K / TM_I2_S_BLOCK; block++) {
                const uint8_t *bytes = rows[r] + block * TM_I2_S_BYTES;
                const int8_t *x = a + (size_t)m * lda + block * TM_I2_S_BLOCK;
                for (int g = 0; g < 4; g++)
                    for (int b = 0; b < TM_I2_S_BYTES; b++)
                        sum += (bytes[b] >> (6 - 2 * g) & 3) * x[32 * g + b];
            }
            acc[m][r] = sum;
        }
}

static void body(void *args, size_t begin, size_t end)
{
    tm_matmul_rows(args, begin, end, ((const tm_ternary_matmul_args *)args)->K / 4, TM_MATMUL_BLOCK, micro);
}

int tm_ternary_matmul_i2_s_x86_scalar(void *args) { return tm_matmul_run_by(args, TM_ROWS, body, TM_RANK(scalar)); }

static size_t bytes(size_t N, size_t K) { return K % TM_I2_S_BLOCK ? 0 : N * (K / TM_I2_S_BLOCK) * TM_I2_S_BYTES; }
static size_t stack(int32_t rank, size_t M) { return tm_stack_rows(rank, M); }

TM_TABLE(ternary_matmul_i2_s_x86);

TM_MATMUL_FORMAT(ternary_matmul_i2_s_x86) = {
    .name = "i2_s_x86",
    .kernels = tm_ternary_matmul_i2_s_x86,
    .bytes = bytes,
    .stack = stack,
};
