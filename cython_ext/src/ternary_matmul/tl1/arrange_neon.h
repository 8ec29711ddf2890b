/* Shared by NEON's instruction sets for tl1: the conversion to tile64. Included behind TM_BEGIN and the micro kernel of
 * one of them. */
#ifndef TM_TL1_ARRANGE_NEON_H
#define TM_TL1_ARRANGE_NEON_H

#include "../lut_tiles_neon.h"

static inline void tm_tl1_group(
    const uint8_t *first, const uint8_t *second, const uint8_t *third, const uint8_t *fourth, uint8_t *to)
{
    const uint8x16_t quarters[4] = {vld1q_u8(first), vld1q_u8(second), vld1q_u8(third), vld1q_u8(fourth)};
    tm_lut_pairs(quarters, to);
}

static inline void tm_tl1_two_groups(size_t bm, const uint8_t *bytes, const uint8_t *others, uint8_t *to)
{
    if (bm == TM_TILE) {
        tm_tl1_group(bytes, bytes + 16, bytes + 32, bytes + 48, to);
        tm_tl1_group(bytes + 64, bytes + 80, bytes + 96, bytes + 112, to + TM_TILE);
    } else { /* 16 rows of both groups, and 16 more */
        tm_tl1_group(bytes, bytes + 32, others, others + 32, to);
        tm_tl1_group(bytes + 16, bytes + 48, others + 16, others + 48, to + TM_TILE);
    }
}

static void tm_tl1_arrange_neon(const tm_ternary_matmul_args *args, size_t t, size_t group, size_t groups, uint8_t *to)
{
    tm_tl1_arrange(args, t, group, groups, to, tm_tl1_two_groups);
}

static void tm_tl1_body(void *args, size_t begin, size_t end)
{
    tm_matmul_arranged(args, begin, end, TM_TILES_ROWS, tm_tiles_micro, tm_tl1_arrange_neon, TM_TL1_COLUMNS / 4);
}

#endif
