/* Shared by NEON's instruction sets for tl2: the conversion to tile64. Included behind TM_BEGIN and the micro kernel of
 * one of them. */
#ifndef TM_TL2_ARRANGE_NEON_H
#define TM_TL2_ARRANGE_NEON_H

#include "../lut_tiles_neon.h"

enum { TM_TL2_AT_ONCE = 4 /* triples, whose 12 columns are three groups */ };

/* The codes of a triple by its nibble, if its sign is not set. */
static const uint8_t tm_tl2_codes[3][16] = {
    {1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2},
    {1, 1, 2, 2, 2, 0, 0, 0, 1, 1, 1, 2, 2, 2},
    {1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2},
};

/* 32 bytes of 32 rows as two quarters of a tile: blocks of 8 rows lie in the order 0, 2, 1, 3. */
static inline void tm_tl2_quarters(const uint8_t *bytes, uint8x16_t quarters[2])
{
    const uint64x2_t first = vreinterpretq_u64_u8(vld1q_u8(bytes)), second = vreinterpretq_u64_u8(vld1q_u8(bytes + 16));
    quarters[0] = vreinterpretq_u8_u64(vzip1q_u64(first, second));
    quarters[1] = vreinterpretq_u8_u64(vzip2q_u64(first, second));
}

/* Three groups. A byte of `signs`, for each row of a quarter, has at bit 7 - 2 * t - h the sign of triple t in quarter
 * h. */
static inline __attribute__((always_inline)) void tm_tl2_three_groups(
    const uint8_t *const nibbles[2], const uint8x16_t signs[2], uint8_t *to)
{
    const uint8x16_t codes[3] = {vld1q_u8(tm_tl2_codes[0]), vld1q_u8(tm_tl2_codes[1]), vld1q_u8(tm_tl2_codes[2])};
    uint8x16_t columns[3 * TM_TL2_AT_ONCE];
#pragma GCC unroll 12
    for (int c = 0; c < 3 * TM_TL2_AT_ONCE; c++)
        columns[c] = vdupq_n_u8(0);
#pragma GCC unroll 2
    for (int nth = 0; nth < 2; nth++)
#pragma GCC unroll 4
        for (int t = 0; t < TM_TL2_AT_ONCE; t++) {
            uint8x16_t w[2];
            tm_tl2_quarters(nibbles[nth] + t / 2 * 32, w);
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                const uint8x16_t index = t % 2 ? w[h] & 15 : w[h] >> 4;
                const uint8x16_t negative = vtstq_u8(signs[nth], vdupq_n_u8((uint8_t)(128 >> (2 * t + h))));
#pragma GCC unroll 3
                for (int i = 0; i < 3; i++) {
                    const uint8x16_t code = vqtbl1q_u8(codes[i], index);
                    columns[3 * t + i] |= vbslq_u8(negative, 2 - code, code) << (2 * (2 * nth + h));
                }
            }
        }
#pragma GCC unroll 3
    for (int g = 0; g < 3; g++) {
        const uint8x16x4_t four = {{columns[4 * g], columns[4 * g + 1], columns[4 * g + 2], columns[4 * g + 3]}};
        vst4q_u8(to + g * TM_TILE, four);
    }
}

/* Six groups of 24 columns of triples. The signs of the first four are in the upper bytes of the words. */
static inline void tm_tl2_six_groups(const uint8_t *const nibbles[2], const uint8_t *const signs[2], uint8_t *to)
{
    const uint8x16x2_t first = vld2q_u8(signs[0]), second = vld2q_u8(signs[1]);
    const uint8x16_t upper[2] = {first.val[1], second.val[1]}, lower[2] = {first.val[0], second.val[0]};
    const uint8_t *const rest[2] = {nibbles[0] + 64, nibbles[1] + 64};
    tm_tl2_three_groups(nibbles, upper, to);
    tm_tl2_three_groups(rest, lower, to + 3 * TM_TILE);
}

static inline void tm_tl2_pair_group(const uint8_t *low, const uint8_t *high, uint8_t *to)
{
    uint8x16_t quarters[4];
    tm_tl2_quarters(low, quarters);
    tm_tl2_quarters(high, quarters + 2);
    tm_lut_pairs(quarters, to);
}

static void tm_tl2_arrange_neon(const tm_ternary_matmul_args *args, size_t t, size_t group, size_t groups, uint8_t *to)
{
    tm_tl2_arrange(args, t, group, groups, to, tm_tl2_six_groups, tm_tl2_pair_group);
}

static void tm_tl2_body(void *args, size_t begin, size_t end)
{
    tm_matmul_arranged(args, begin, end, TM_TILES_ROWS, tm_tiles_micro, tm_tl2_arrange_neon, TM_TL2_SIGNED / 4);
}

#endif
