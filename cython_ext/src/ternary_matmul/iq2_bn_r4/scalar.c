/* ternary_matmul of iq2_bn_r4 in plain C: reference for the other kernels, fallback, and baseline. */
#include "iq2_bn_r4.h"

#include "../formats.h"
#include "../stacks.h"

static void micro(
    const uint8_t *weights, int fours, const int8_t *a, size_t lda, int count, size_t K,
    int32_t (*acc)[TM_FOUR * TM_FOURS])
{
    for (int m = 0; m < count; m++)
        for (int f = 0; f < fours; f++)
            for (int r = 0; r < TM_FOUR; r++) {
                int32_t sum = 0;
                for (size_t k = 0; k < K; k += TM_FOUR_BLOCK) {
                    const uint8_t *bytes = weights + (size_t)f * tm_four_bytes(K) + k + 4 * r;
                    const int8_t *x = a + (size_t)m * lda + k;
                    for (int l = 0; l < 4; l++)
                        for (int s = 0; s < 4; s++)
                            for (int i = 0; i < 4; i++)
                                sum += (bytes[16 * l + i] >> (2 * s) & 3) * x[16 * l + 4 * s + i];
                }
                acc[m][TM_FOUR * f + r] = sum;
            }
}

static void body(void *args, size_t begin, size_t end)
{
    tm_matmul_fours(args, begin, end, TM_FOURS, TM_MATMUL_BLOCK, micro);
}

int tm_ternary_matmul_iq2_bn_r4_scalar(void *args) { return tm_matmul_run_by(args, TM_FOUR, body, TM_RANK(scalar)); }

static size_t bytes(size_t N, size_t K)
{
    return N % TM_FOUR || K % TM_FOUR_BLOCK ? 0 : N / TM_FOUR * tm_four_bytes(K);
}

/* AVX-VNNI does not convert weights. */
static size_t stack(int32_t rank, size_t M) { return rank == TM_RANK(avxvnni) ? 0 : tm_stack_rows(rank, M); }

TM_TABLE(ternary_matmul_iq2_bn_r4);

TM_MATMUL_FORMAT(ternary_matmul_iq2_bn_r4) = {
    .name = "iq2_bn_r4",
    .kernels = tm_ternary_matmul_iq2_bn_r4,
    .bytes = bytes,
    .stack = stack,
};
