/* Shared by NEON and its dot products for tq2_0. Included behind TM_BEGIN and the sums of one of them. */
#ifndef TM_TQ2_0_NEON_H
#define TM_TQ2_0_NEON_H

#include "../rows_neon.h"

static inline float tm_tq2_0_scale(const uint8_t *group) { return tm_half_neon(tm_tq2_0_stored(group)); }

static inline __attribute__((always_inline)) void tm_tq2_0_by(
    const int count, const uint8_t *const *groups, const int8_t *a, size_t lda, int32_t (*acc)[TM_ROWS])
{
    tm_rows_sums s;
    tm_rows_none(count, &s);
#pragma GCC unroll 1
    for (size_t q = 0; q < 4; q++)
        tm_rows_fields(count, 0, 32, &s, groups, 16 * q, a + TM_TQ2_0_HALF * (q / 2) + 16 * (q % 2), lda);
    tm_rows_store(count, &s, acc);
}

static void tm_tq2_0_micro(
    const uint8_t *const *groups, const int8_t *a, size_t lda, int count, int32_t (*acc)[TM_ROWS])
{
    TM_ROWS_COUNTED(tm_tq2_0_by, count, groups, a, lda, acc)
}

static void tm_tq2_0_body(void *args, size_t begin, size_t end)
{
    const tm_grouped form = {TM_TQ2_0_GROUP, TM_TQ2_0_BYTES, tm_tq2_0_scale};
    tm_groups_rows(args, begin, end, form, TM_MATMUL_BLOCK, tm_tq2_0_micro);
}

#endif
