/* ternary_matmul of tq1_0 in plain C: reference for the other kernels, fallback, and baseline. */
#include "tq1_0.h"

#include "../formats.h"
#include "../stacks.h"
#include "../../half.h"

static float scale(const uint8_t *group) { return tm_half(tm_tq1_0_stored(group)); }

static const tm_grouped FORM = {TM_TQ1_0_GROUP, TM_TQ1_0_BYTES, scale};

/* sum(digit * x) of `count` bytes of `digits` digits. */
static int32_t part(const uint8_t *bytes, int count, int digits, const int8_t *x)
{
    int32_t sum = 0;
    for (int j = 0; j < count; j++) {
        unsigned q = bytes[j];
        for (int n = 0; n < digits; n++) {
            sum += (int32_t)(3 * q >> 8) * x[n * count + j];
            q = 3 * q & 255;
        }
    }
    return sum;
}

static void micro(const uint8_t *const *groups, const int8_t *a, size_t lda, int count, int32_t (*acc)[TM_ROWS])
{
    for (int m = 0; m < count; m++)
        for (int r = 0; r < TM_ROWS; r++) {
            const int8_t *x = a + (size_t)m * lda;
            acc[m][r] = part(groups[r], 32, 5, x) + part(groups[r] + TM_TQ1_0_SECOND, 16, 5, x + 160) +
                        part(groups[r] + TM_TQ1_0_THIRD, 4, 4, x + 240);
        }
}

static void body(void *args, size_t begin, size_t end)
{
    tm_groups_rows(args, begin, end, FORM, TM_MATMUL_BLOCK, micro);
}

int tm_ternary_matmul_tq1_0_scalar(void *args) { return tm_groups_run(args, TM_TQ1_0_GROUP, body, TM_RANK(scalar)); }

static size_t bytes(size_t N, size_t K) { return K % TM_TQ1_0_GROUP ? 0 : N * (K / TM_TQ1_0_GROUP) * TM_TQ1_0_BYTES; }
static size_t stack(int32_t rank, size_t M) { return tm_stack_groups(rank, M, TM_TQ1_0_FEW); }

TM_TABLE(ternary_matmul_tq1_0);

TM_MATMUL_FORMAT(ternary_matmul_tq1_0) = {
    .name = "tq1_0",
    .kernels = tm_ternary_matmul_tq1_0,
    .bytes = bytes,
    .group = TM_TQ1_0_GROUP,
    .room = tm_tq1_0_room,
    .stack = stack,
};
