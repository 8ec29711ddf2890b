#include "formats.h"

#include "i2_s_x86/i2_s_x86.h"
#include "iq2_bn_r4/iq2_bn_r4.h"
#include "tl1/tl1.h"
#include "tl2/tl2.h"
#include "q2_0/q2_0.h"
#include "tile80/tile80.h"
#include "tq1_0/tq1_0.h"
#include "tq2_0/tq2_0.h"

static size_t tile64(size_t N, size_t K) { return (N + TM_TILE - 1) / TM_TILE * ((K + 3) / 4) * TM_TILE; }
static size_t tile80(size_t N, size_t K) { return (N + TM_TILE80 - 1) / TM_TILE80 * ((K + 3) / 4) * TM_TILE; }
static size_t i2_s_x86(size_t N, size_t K) { return K % TM_I2_S_BLOCK ? 0 : N * (K / TM_I2_S_BLOCK) * TM_I2_S_BYTES; }
static size_t tq2_0(size_t N, size_t K) { return K % TM_TQ2_0_GROUP ? 0 : N * (K / TM_TQ2_0_GROUP) * TM_TQ2_0_BYTES; }
static size_t iq2_bn_r4(size_t N, size_t K)
{
    return N % TM_FOUR || K % TM_FOUR_BLOCK ? 0 : N / TM_FOUR * tm_four_bytes(K);
}
static size_t tl1(size_t N, size_t K) { return N * K / 4; }
/* The original's formula, whose last bytes are padding; rounded down, also below 0. */
static size_t tl2(size_t N, size_t K)
{
    const ptrdiff_t thirds = ((ptrdiff_t)K - 256) * (ptrdiff_t)N, eighths = (thirds - (thirds % 3 + 3) % 3) / 3 * 5;
    return (size_t)((eighths - (eighths % 8 + 8) % 8) / 8) + 64 * N;
}
static size_t q2_0(size_t N, size_t K) { return K % TM_Q2_0_GROUP ? 0 : N * (K / TM_Q2_0_GROUP) * TM_Q2_0_BYTES; }
static size_t tq1_0(size_t N, size_t K) { return K % TM_TQ1_0_GROUP ? 0 : N * (K / TM_TQ1_0_GROUP) * TM_TQ1_0_BYTES; }

const tm_matmul_format tm_matmul_formats[] = {
    {"tile64", tm_ternary_matmul, tile64, 0, NULL, NULL},
    {"i2_s_x86", tm_ternary_matmul_i2_s_x86, i2_s_x86, 0, NULL, NULL},
    {"tq2_0", tm_ternary_matmul_tq2_0, tq2_0, TM_TQ2_0_GROUP, tm_tq2_0_room, NULL},
    {"iq2_bn_r4", tm_ternary_matmul_iq2_bn_r4, iq2_bn_r4, 0, NULL, NULL},
    {"tl1", tm_ternary_matmul_tl1, tl1, 0, NULL, tm_tl1_tables},
    {"tl2", tm_ternary_matmul_tl2, tl2, 0, NULL, tm_tl2_tables},
    {"q2_0", tm_ternary_matmul_q2_0, q2_0, TM_Q2_0_GROUP, tm_q2_0_room, NULL},
    {"tq1_0", tm_ternary_matmul_tq1_0, tq1_0, TM_TQ1_0_GROUP, tm_tq1_0_room, NULL},
    {"tile80", tm_ternary_matmul_tile80, tile80, 0, NULL, NULL},
    {NULL, NULL, NULL, 0, NULL, NULL},
};
