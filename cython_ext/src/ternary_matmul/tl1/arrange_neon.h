/* What NEON's sets share of tl1: its weights as tile64. Included behind TM_BEGIN and the micro kernel of one of them. */
#ifndef TM_TL1_ARRANGE_NEON_H
#define TM_TL1_ARRANGE_NEON_H

/* A pair's first code and its second, of what is in a nibble. */
static const uint8_t tm_tl1_codes[2][16] = {{0, 0, 0, 1, 1, 1, 2, 2, 2}, {0, 1, 2, 0, 1, 2, 0, 1, 2}};

/* A group of tile64 of four times 16 rows. st4 lays the four columns of a row side by side. */
static inline __attribute__((always_inline)) void tm_tl1_group(
    const uint8_t *first, const uint8_t *second, const uint8_t *third, const uint8_t *fourth, uint8_t *to)
{
    const uint8_t *const at[4] = {first, second, third, fourth};
    const uint8x16_t one = vld1q_u8(tm_tl1_codes[0]), other = vld1q_u8(tm_tl1_codes[1]);
    uint8x16x4_t columns = {{vdupq_n_u8(0), vdupq_n_u8(0), vdupq_n_u8(0), vdupq_n_u8(0)}};
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) {
        const uint8x16_t w = vld1q_u8(at[g]), high = w >> 4, low = w & 15;
        columns.val[0] |= vqtbl1q_u8(one, high) << (2 * g);
        columns.val[1] |= vqtbl1q_u8(other, high) << (2 * g);
        columns.val[2] |= vqtbl1q_u8(one, low) << (2 * g);
        columns.val[3] |= vqtbl1q_u8(other, low) << (2 * g);
    }
    vst4q_u8(to, columns);
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
