/* ternary_matmul of q2_0 in plain C: reference for the other kernels, fallback, and baseline. */
#include "q2_0.h"

#include "../formats.h"
#include "../stacks.h"
#include "../../half.h"

static double four(const uint8_t *groups, size_t count, const int8_t *x, const int32_t *act_sums)
{
    double term[TM_Q2_0_FOUR] = {0};
    for (size_t g = 0; g < count; g++) {
        const uint8_t *group = groups + g * TM_Q2_0_BYTES;
        int32_t sum = 0;
        for (size_t b = 0; b < TM_Q2_0_GROUP / 4; b++)
            for (size_t s = 0; s < 4; s++)
                sum += (group[TM_Q2_0_CODES + b] >> (2 * s) & 3) * x[g * TM_Q2_0_GROUP + 4 * b + s];
        term[g] = (double)tm_half(tm_q2_0_stored(group)) * (double)(sum - act_sums[g]);
    }
    return (term[0] + term[1]) + (term[2] + term[3]);
}

static void body(void *given, size_t begin, size_t end)
{
    const tm_ternary_matmul_args *args = given;
    for (size_t m = 0; m < args->M; m++)
        tm_q2_0_one(args, m, args->a + m * args->lda, begin, end, four, NULL);
}

int tm_ternary_matmul_q2_0_scalar(void *args) { return tm_q2_0_run(args, body, TM_RANK(scalar)); }

static size_t bytes(size_t N, size_t K) { return K % TM_Q2_0_GROUP ? 0 : N * (K / TM_Q2_0_GROUP) * TM_Q2_0_BYTES; }
static size_t stack(int32_t rank, size_t M) { return tm_stack_groups(rank, M, TM_FEW); }

TM_TABLE(ternary_matmul_q2_0);

TM_MATMUL_FORMAT(ternary_matmul_q2_0) = {
    .name = "q2_0",
    .kernels = tm_ternary_matmul_q2_0,
    .bytes = bytes,
    .group = TM_Q2_0_GROUP,
    .room = tm_q2_0_room,
    .stack = stack,
};
