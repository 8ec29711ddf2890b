/* Several rows of activations times i2_s_x86 with AVX2 and AVX-VNNI. Included behind TM_BEGIN, the sums of one of them
 * (../dots_maddubs.h or its replacement) and its micro kernels over tile64. */
#ifndef TM_I2_S_X86_AVX2_H
#define TM_I2_S_X86_AVX2_H

#include "../panels_avx2.h"
#include "../rows_avx2.h"
#include "../turned_avx2.h"

enum {
    TM_I2_S_FLUSH = 16, /* blocks whose products an int16 lane of a sum holds: 64 of at most 512 */
    TM_I2_S_MOST = 2, /* rows of activations at once: 8 sums of the 16 registers */
};

/* `count` is a constant at each call, so that sums stay in registers. */
static inline __attribute__((always_inline)) void tm_i2_s_blocks_by(
    tm_prefetch fetch, const int count, const uint8_t *const *rows, const int8_t *a, size_t lda, size_t K,
    int32_t (*acc)[TM_ROWS])
{
    const __m256i m3 = _mm256_set1_epi8(3);
    const size_t blocks = K / TM_I2_S_BLOCK;
    const tm_dots zero = {0};
    __m256i s_i32x8[TM_I2_S_MOST][TM_ROWS];
    for (int m = 0; m < count; m++)
        for (int r = 0; r < TM_ROWS; r++)
            s_i32x8[m][r] = _mm256_setzero_si256();
    for (size_t begin = 0; begin < blocks; begin += TM_I2_S_FLUSH) {
        const size_t end = blocks - begin < TM_I2_S_FLUSH ? blocks : begin + TM_I2_S_FLUSH;
        tm_dots s[TM_I2_S_MOST][TM_ROWS];
#pragma GCC unroll 2
        for (int m = 0; m < count; m++)
#pragma GCC unroll 4
            for (int r = 0; r < TM_ROWS; r++)
                s[m][r] = zero;
        for (size_t k = begin; k < end; k++) {
            __m256i w[TM_ROWS];
#pragma GCC unroll 4
            for (int r = 0; r < TM_ROWS; r++)
                w[r] = _mm256_loadu_si256((const __m256i *)(rows[r] + k * TM_I2_S_BYTES));
            tm_prefetch_lines(
                rows[TM_ROWS - 1] + TM_ROWS * k * TM_I2_S_BYTES, TM_ROWS * TM_I2_S_BYTES, fetch.level, fetch.bytes);
#pragma GCC unroll 4
            for (int g = 0; g < 4; g++)
#pragma GCC unroll 4
                for (int r = 0; r < TM_ROWS; r++) {
                    const __m256i c = _mm256_and_si256(_mm256_srli_epi16(w[r], 6 - 2 * g), m3);
#pragma GCC unroll 2
                    for (int m = 0; m < count; m++)
                        s[m][r] = tm_dots_added(
                            s[m][r], c,
                            _mm256_loadu_si256((const __m256i *)(a + (size_t)m * lda + k * TM_I2_S_BLOCK + 32 * g)));
                }
        }
#pragma GCC unroll 2
        for (int m = 0; m < count; m++)
#pragma GCC unroll 4
            for (int r = 0; r < TM_ROWS; r++)
                s_i32x8[m][r] = _mm256_add_epi32(s_i32x8[m][r], tm_dots_sum(s[m][r]));
    }
    for (int m = 0; m < count; m++)
        for (int r = 0; r < TM_ROWS; r++)
            acc[m][r] = tm_sum_of(s_i32x8[m][r]);
}

static void tm_i2_s_micro(
    tm_prefetch fetch, const uint8_t *const *rows, const int8_t *a, size_t lda, int count, size_t K,
    int32_t (*acc)[TM_ROWS])
{
    if (count == 1)
        tm_i2_s_blocks_by(fetch, 1, rows, a, lda, K, acc);
    else
        tm_i2_s_blocks_by(fetch, 2, rows, a, lda, K, acc);
}

/* Converts whole blocks to groups of a tile, like the arrange of avx512.c, 8 rows of each quarter at a time. */
static void tm_i2_s_arrange(const tm_ternary_matmul_args *args, size_t t, size_t k, size_t groups, uint8_t *to)
{
    const uint8_t *rows[TM_TILE];
    tm_i2_s_tile(args, t, k, groups, rows);
    for (size_t at = 0; at < groups; at += 16)
        for (int half = 0; half < 2; half++) {
            __m256i w[4][4]; /* quarter of the tile, 4 bytes */
#pragma GCC unroll 4
            for (int q = 0; q < 4; q++)
                tm_panel_dwords(rows + 16 * q + 8 * half, at, w[q]);
            uint8_t *const block = to + tm_i2_s_group(at) * TM_TILE + 32 * half;
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                const __m256i of_quarters[4] = {w[0][i], w[1][i], w[2][i], w[3][i]};
                __m256i turned[4];
                tm_tiles_turned(of_quarters, turned);
#pragma GCC unroll 4
                for (int f = 0; f < 4; f++)
                    _mm256_store_si256((__m256i *)(block + (8 * f + i) * TM_TILE), turned[3 - f]);
            }
        }
}

static void tm_i2_s_arranged(void *args, size_t begin, size_t end)
{
    tm_matmul_arranged(args, begin, end, TM_TILES_ROWS, tm_tiles_micro, tm_i2_s_arrange, TM_I2_S_BYTES);
}

#endif
