/* ternary_matmul of tq2_0 in plain C: reference for the other kernels, fallback, and baseline. */
#include "tq2_0.h"

#include "../formats.h"
#include "../stacks.h"
#include "../../half.h"

static float scale(const uint8_t *group) { return tm_half(tm_tq2_0_stored(group)); }

static const tm_grouped FORM = {TM_TQ2_0_GROUP, TM_TQ2_0_BYTES, scale};

static void micro(const uint8_t *const *groups, const int8_t *a, size_t lda, int count, int32_t (*acc)[TM_ROWS])
{
    for (int m = 0; m < count; m++)
        for (int r = 0; r < TM_ROWS; r++) {
            int32_t sum = 0;
            for (int h = 0; h < 2; h++)
                for (int g = 0; g < 4; g++)
                    for (int b = 0; b < 32; b++)
                        sum += (groups[r][32 * h + b] >> (2 * g) & 3) *
                               a[(size_t)m * lda + (size_t)(TM_TQ2_0_HALF * h + 32 * g + b)];
            acc[m][r] = sum;
        }
}

static void body(void *args, size_t begin, size_t end)
{
    tm_groups_rows(args, begin, end, FORM, TM_MATMUL_BLOCK, micro);
}

int tm_ternary_matmul_tq2_0_scalar(void *args) { return tm_groups_run(args, TM_TQ2_0_GROUP, body, TM_RANK(scalar)); }

static size_t bytes(size_t N, size_t K) { return K % TM_TQ2_0_GROUP ? 0 : N * (K / TM_TQ2_0_GROUP) * TM_TQ2_0_BYTES; }
static size_t stack(int32_t rank, size_t M) { return tm_stack_groups(rank, M, TM_FEW); }

TM_TABLE(ternary_matmul_tq2_0);

TM_MATMUL_FORMAT(ternary_matmul_tq2_0) = {
    .name = "tq2_0",
    .kernels = tm_ternary_matmul_tq2_0,
    .bytes = bytes,
    .group = TM_TQ2_0_GROUP,
    .room = tm_tq2_0_room,
    .stack = stack,
};
