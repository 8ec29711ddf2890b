/* ternary_matmul with NEON of every aarch64 processor: each code is shifted out and multiplied with its activations
 * into int16 sums (smlal, smlal2), a lane for each row and column of the group.
 *
 * A product is at most 2 * 128 in magnitude, so 128 of them fit int16 (the lowest sum is exactly -32768, the highest
 * 32512); then the four columns of a row are added pairwise into int32 (saddlp, addp). 16 bytes are a quarter of a
 * group: 4 of each 16 rows, whose sums take 8 of the 32 registers for each row of activations. */
#include "tiles.h"

#if TM_ARM
TM_BEGIN(neon)

enum { FLUSH = 128, ROWS = 2 };

static inline int8x16_t four(const int8_t *a)
{
    int32_t word;
    memcpy(&word, a, sizeof word);
    return vreinterpretq_s8_s32(vdupq_n_s32(word));
}

/* `quarters` quarters of each group from `first` on, for `rows` rows of activations; rows * quarters is 2. */
static inline __attribute__((always_inline)) void quarters_by(
    const int rows, const int quarters, int first, const uint8_t *tile, size_t groups, const int8_t *a, size_t lda,
    int32_t (*acc)[TM_TILE])
{
    const uint8x16_t m3 = vdupq_n_u8(3);
    for (size_t begin = 0; begin < groups; begin += FLUSH) {
        const size_t end = groups - begin < FLUSH ? groups : begin + FLUSH;
        int16x8_t low[ROWS][2][4], high[ROWS][2][4];
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int q = 0; q < quarters; q++)
#pragma GCC unroll 4
                for (int g = 0; g < 4; g++)
                    low[r][q][g] = high[r][q][g] = vdupq_n_s16(0);
        for (size_t k = begin; k < end; k++) {
#pragma GCC unroll 2
            for (int q = 0; q < quarters; q++) {
                const uint8x16_t w = vld1q_u8(tile + k * TM_TILE + 16 * (first + q));
                const int8x16_t c[4] = {
                    vreinterpretq_s8_u8(vandq_u8(w, m3)),
                    vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(w, 2), m3)),
                    vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(w, 4), m3)),
                    vreinterpretq_s8_u8(vshrq_n_u8(w, 6)),
                };
#pragma GCC unroll 2
                for (int r = 0; r < rows; r++) {
                    const int8x16_t a_i8x16 = four(a + (size_t)r * lda + 4 * k);
#pragma GCC unroll 4
                    for (int g = 0; g < 4; g++) {
                        low[r][q][g] = vmlal_s8(low[r][q][g], vget_low_s8(c[g]), vget_low_s8(a_i8x16));
                        high[r][q][g] = vmlal_high_s8(high[r][q][g], c[g], a_i8x16);
                    }
                }
            }
        }
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int q = 0; q < quarters; q++)
#pragma GCC unroll 4
                for (int g = 0; g < 4; g++) {
                    int32_t *sum = acc[r] + 16 * g + 4 * (first + q);
                    const int32x4_t rows_i32x4 = vpaddq_s32(vpaddlq_s16(low[r][q][g]), vpaddlq_s16(high[r][q][g]));
                    vst1q_s32(sum, vaddq_s32(vld1q_s32(sum), rows_i32x4));
                }
    }
}

static void micro(const uint8_t *tile, size_t groups, const int8_t *a, size_t lda, int rows, int32_t (*acc)[TM_TILE])
{
    if (rows == 1)
        for (int first = 0; first < 4; first += 2)
            quarters_by(1, 2, first, tile, groups, a, lda, acc);
    else
        for (int first = 0; first < 4; first++)
            quarters_by(2, 1, first, tile, groups, a, lda, acc);
}

static void body(void *args, size_t begin, size_t end) { tm_matmul_tiles(args, begin, end, ROWS, micro); }

int tm_ternary_matmul_neon(void *args) { return tm_matmul_run(args, body, TM_RANK(neon)); }

TM_END
#endif
