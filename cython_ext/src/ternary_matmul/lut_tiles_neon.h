/* Conversion of tl1 and tl2 to tile64 (tiles.h) with NEON. Included behind TM_BEGIN.
 *
 * Four vectors hold a tile's quarters, 16 rows each, a byte a row. Codes are looked up (tbl) and shifted to the bits of
 * their quarter in tile64, so a column of the tile is the or of four quarters. st4 stores four columns of a row side by
 * side. */
#ifndef TM_LUT_TILES_NEON_H
#define TM_LUT_TILES_NEON_H

/* The first and second code of a pair by its nibble. */
static const uint8_t tm_lut_pair_codes[2][16] = {{0, 0, 0, 1, 1, 1, 2, 2, 2}, {0, 1, 2, 0, 1, 2, 0, 1, 2}};

/* A group of bytes that are two pairs each, the first in the high nibble. */
static inline __attribute__((always_inline)) void tm_lut_pairs(const uint8x16_t quarters[4], uint8_t *to)
{
    const uint8x16_t first = vld1q_u8(tm_lut_pair_codes[0]), second = vld1q_u8(tm_lut_pair_codes[1]);
    uint8x16x4_t columns = {{vdupq_n_u8(0), vdupq_n_u8(0), vdupq_n_u8(0), vdupq_n_u8(0)}};
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) {
        const uint8x16_t high = quarters[g] >> 4, low = quarters[g] & 15;
        columns.val[0] |= vqtbl1q_u8(first, high) << (2 * g);
        columns.val[1] |= vqtbl1q_u8(second, high) << (2 * g);
        columns.val[2] |= vqtbl1q_u8(first, low) << (2 * g);
        columns.val[3] |= vqtbl1q_u8(second, low) << (2 * g);
    }
    vst4q_u8(to, columns);
}

#endif
