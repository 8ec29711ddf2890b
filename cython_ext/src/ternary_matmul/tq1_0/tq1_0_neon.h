/* Shared by NEON and its dot products for tq1_0. Included behind TM_BEGIN and the sums of one of them. */
#ifndef TM_TQ1_0_NEON_H
#define TM_TQ1_0_NEON_H

#include "../digits_neon.h"
#include "../rows_neon.h"

static inline float tm_tq1_0_scale(const uint8_t *group) { return tm_half_neon(tm_tq1_0_stored(group)); }

/* Multiplies the first `digits` digits of 16 bytes of each row by 16 activations each, which lie `apart`. */
static inline __attribute__((always_inline)) void tm_tq1_0_digits(
    const int count, const int digits, const int apart, tm_rows_sums *s, uint8x16_t q[TM_ROWS], const int8_t *a,
    size_t lda)
{
#pragma GCC unroll 1
    for (int n = 0; n < digits; n++) {
        uint8x16_t codes[TM_ROWS];
#pragma GCC unroll 4
        for (int r = 0; r < TM_ROWS; r++)
            codes[r] = tm_digit_taken(q + r);
        tm_rows_added(count, s, codes, a + apart * n, lda);
    }
}

/* The 4 bytes of the last part, also times 3, 9 and 27: digit 0 of each byte is the digit of one of 16 adjacent
 * weights. */
static inline uint8x16_t tm_tq1_0_third(const uint8_t *group)
{
    static const uint8_t powers[16] = {1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27};
    uint32_t bytes;
    memcpy(&bytes, group + TM_TQ1_0_THIRD, sizeof bytes);
    return vmulq_u8(vreinterpretq_u8_u32(vdupq_n_u32(bytes)), vld1q_u8(powers));
}

static inline __attribute__((always_inline)) void tm_tq1_0_by(
    const int count, const uint8_t *const *groups, const int8_t *a, size_t lda, int32_t (*acc)[TM_ROWS])
{
    tm_rows_sums s;
    uint8x16_t q[TM_ROWS];
    tm_rows_none(count, &s);
#pragma GCC unroll 1
    for (int half = 0; half < TM_TQ1_0_SECOND; half += 16) {
        for (int r = 0; r < TM_ROWS; r++)
            q[r] = vld1q_u8(groups[r] + half);
        tm_tq1_0_digits(count, 5, TM_TQ1_0_SECOND, &s, q, a + half, lda);
    }
    for (int r = 0; r < TM_ROWS; r++)
        q[r] = vld1q_u8(groups[r] + TM_TQ1_0_SECOND);
    tm_tq1_0_digits(count, 5, 16, &s, q, a + 160, lda);
    for (int r = 0; r < TM_ROWS; r++)
        q[r] = tm_tq1_0_third(groups[r]);
    tm_tq1_0_digits(count, 1, 0, &s, q, a + 240, lda);
    tm_rows_store(count, &s, acc);
}

static void tm_tq1_0_micro(
    const uint8_t *const *groups, const int8_t *a, size_t lda, int count, int32_t (*acc)[TM_ROWS])
{
    TM_ROWS_COUNTED(tm_tq1_0_by, count, groups, a, lda, acc)
}

static void tm_tq1_0_body(void *args, size_t begin, size_t end)
{
    const tm_grouped form = {TM_TQ1_0_GROUP, TM_TQ1_0_BYTES, tm_tq1_0_scale};
    tm_groups_rows(args, begin, end, form, TM_MATMUL_BLOCK, tm_tq1_0_micro);
}

#endif
