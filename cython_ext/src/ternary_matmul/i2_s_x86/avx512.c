/* ternary_matmul of i2_s_x86 with AVX-512 VNNI.
 *
 * One row of activations: a block at a time of four rows of weights, in 32-byte vectors, which share each load of the
 * activations. Codes are masked in place, in 16 sums. Weights are prefetched into L1 in memory order. Rows of weights
 * longer than TM_ROWS_LONG lie too far apart for that and run one after the other (row_after_row.h).
 *
 * Several rows: two blocks at a time, 32 activations of each side by side. Four rows of weights share each load of the
 * activations, and all rows of activations share the shifted codes; the registers hold 16 sums.
 *
 * ARRANGED rows or more: weights are converted to tile64, a stretch of a tile at a time (tiles.h), so that L1 holds
 * what all rows of activations meet. The conversion takes 160 instructions for 4096 weights.
 *
 * Limit, one row: one load of activations for four rows, and 4 vpdpbusd for each 32 bytes of weights; from memory its
 * bandwidth.
 *
 * Rates: `python suites/performance/gemv.py --format i2_s_x86 --no-peers --shapes 2560x2560 --threads 1`. Versions and
 * what lost: docs/kernels/i2_s_x86.md. */
#include "i2_s_x86.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avx512)
#include "../panels_avx512.h"
#include "../rows_avx512.h"
#include "../tiles_avx512.h"
#include "../turned_avx512.h"
#include "row_after_row.h"

enum {
    ARRANGED = 48, /* see tm_tiles_least */
};

static inline __m512i half(const void *low) { return _mm512_zextsi256_si512(_mm256_loadu_si256((const __m256i *)low)); }

/* Rows of up to TM_ROWS_LONG weights, whose sums fit int32 as in row_after_row.h. */
static inline __attribute__((always_inline)) void four_rows(
    const enum tm_prefetch_level level, size_t ahead, const uint8_t *const *rows, const int8_t *x, size_t K,
    int32_t *acc)
{
    const __m256i masks[4] = {
        _mm256_set1_epi8((char)192), _mm256_set1_epi8(48), _mm256_set1_epi8(12), _mm256_set1_epi8(3)};
    const tm_dots zero = {0};
    tm_dots s[TM_ROWS][4];
#pragma GCC unroll 4
    for (int r = 0; r < TM_ROWS; r++)
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++)
            s[r][g] = zero;
    for (size_t k = 0; k < K; k += TM_I2_S_BLOCK) {
        __m256i w[TM_ROWS];
#pragma GCC unroll 4
        for (int r = 0; r < TM_ROWS; r++)
            w[r] = _mm256_loadu_si256((const __m256i *)(rows[r] + k / 4));
        tm_prefetch_lines(rows[TM_ROWS - 1] + k, TM_ROWS * TM_I2_S_BYTES, level, ahead);
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) {
            __m256i a = _mm256_loadu_si256((const __m256i *)(x + k + 32 * g));
            __asm__("" : "+v"(a)); /* else compilers load it for each row */
#pragma GCC unroll 4
            for (int r = 0; r < TM_ROWS; r++)
                s[r][g] = tm_dots_added(s[r][g], _mm256_and_si256(w[r], masks[g]), a);
        }
    }
    __m256i sums[TM_ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < TM_ROWS; r++) {
        sums[r] = tm_dots_sum(s[r][3]);
#pragma GCC unroll 3
        for (int g = 0; g < 3; g++)
            sums[r] = _mm256_add_epi32(sums[r], _mm256_srai_epi32(tm_dots_sum(s[r][g]), 6 - 2 * g));
    }
    _mm_storeu_si128((__m128i *)acc, tm_sums_of(sums));
}

/* `count` is a constant at each call, so that sums stay in registers. */
static inline __attribute__((always_inline)) void blocks_by(
    tm_prefetch fetch, const int count, const uint8_t *const *rows, const int8_t *a, size_t lda, size_t K,
    int32_t (*acc)[TM_ROWS])
{
    const __m512i m3 = _mm512_set1_epi8(3);
    const size_t blocks = K / TM_I2_S_BLOCK;
    __m512i s_i32x16[TM_MATMUL_BLOCK][TM_ROWS];
#pragma GCC unroll 4
    for (int m = 0; m < count; m++)
#pragma GCC unroll 4
        for (int r = 0; r < TM_ROWS; r++)
            s_i32x16[m][r] = _mm512_setzero_si512();
    size_t k = 0;
    for (; k + 2 <= blocks; k += 2) {
        __m512i w[TM_ROWS];
#pragma GCC unroll 4
        for (int r = 0; r < TM_ROWS; r++)
            w[r] = tm_loaded(rows[r] + k * TM_I2_S_BYTES);
        tm_prefetch_lines(
            rows[TM_ROWS - 1] + TM_ROWS * k * TM_I2_S_BYTES, 2 * TM_ROWS * TM_I2_S_BYTES, fetch.level, fetch.bytes);
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) {
            __m512i c[TM_ROWS];
#pragma GCC unroll 4
            for (int r = 0; r < TM_ROWS; r++)
                c[r] = _mm512_and_si512(_mm512_srli_epi16(w[r], (unsigned)(6 - 2 * g)), m3);
#pragma GCC unroll 4
            for (int m = 0; m < count; m++) {
                const int8_t *at = a + (size_t)m * lda + k * TM_I2_S_BLOCK + 32 * g;
                const __m512i x = tm_halves(at, at + TM_I2_S_BLOCK);
#pragma GCC unroll 4
                for (int r = 0; r < TM_ROWS; r++)
                    s_i32x16[m][r] = _mm512_dpbusd_epi32(s_i32x16[m][r], c[r], x);
            }
        }
    }
    if (k < blocks) /* the last of an odd number of blocks, beside zeros */
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++)
#pragma GCC unroll 4
            for (int r = 0; r < TM_ROWS; r++) {
                const __m512i c =
                    _mm512_and_si512(_mm512_srli_epi16(half(rows[r] + k * TM_I2_S_BYTES), (unsigned)(6 - 2 * g)), m3);
#pragma GCC unroll 4
                for (int m = 0; m < count; m++)
                    s_i32x16[m][r] =
                        _mm512_dpbusd_epi32(s_i32x16[m][r], c, half(a + (size_t)m * lda + k * TM_I2_S_BLOCK + 32 * g));
            }
#pragma GCC unroll 4
    for (int m = 0; m < count; m++)
        _mm_storeu_si128((__m128i *)acc[m], tm_wide_sums_of(s_i32x16[m]));
}

static void micro(
    tm_prefetch fetch, const uint8_t *const *rows, const int8_t *a, size_t lda, int count, size_t K,
    int32_t (*acc)[TM_ROWS])
{
    switch (count) {
    case 1: blocks_by(fetch, 1, rows, a, lda, K, acc); break;
    case 2: blocks_by(fetch, 2, rows, a, lda, K, acc); break;
    case 3: blocks_by(fetch, 3, rows, a, lda, K, acc); break;
    default: blocks_by(fetch, 4, rows, a, lda, K, acc); break;
    }
}

/* Converts whole blocks to groups of a tile. 16 bytes of 16 rows are transposed, so that a vector holds 4 bytes of each
 * row, the codes of four groups. Then the codes of four such vectors, one for each quarter of the tile, are
 * transposed. */
void tm_i2_s_arrange_avx512(const tm_ternary_matmul_args *args, size_t t, size_t k, size_t groups, uint8_t *to)
{
    const uint8_t *rows[TM_TILE];
    tm_i2_s_tile(args, t, k, groups, rows);
    for (size_t at = 0; at < groups; at += 16) {
        __m512i w[4][4]; /* quarter of the tile, 4 bytes */
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++)
            tm_panel_dwords(rows + 16 * q, at, w[q]);
        uint8_t *const block = to + tm_i2_s_group(at) * TM_TILE;
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const __m512i of_quarters[4] = {w[0][i], w[1][i], w[2][i], w[3][i]};
            __m512i turned[4];
            tm_tiles_turned(of_quarters, turned);
            /* The lowest bits hold the columns from 96 of the block. */
#pragma GCC unroll 4
            for (int f = 0; f < 4; f++)
                _mm512_store_si512(block + (8 * f + i) * TM_TILE, turned[3 - f]);
        }
    }
}

static void arranged(void *args, size_t begin, size_t end)
{
    tm_matmul_arranged(args, begin, end, TM_TILES_ROWS, tm_tiles_micro, tm_i2_s_arrange_avx512, TM_I2_S_BYTES);
}

static void body(void *given, size_t begin, size_t end)
{
    const tm_ternary_matmul_args *args = given;
    if (args->M == 1 && args->K <= TM_ROWS_LONG)
        tm_matmul_one(args, begin, end, args->K / 4, tm_rows_prefetch(args->K), four_rows);
    else if (args->M == 1)
        tm_matmul_one(args, begin, end, args->K / 4, tm_rows_prefetch(args->K), tm_i2_s_row_after_row);
    else
        tm_matmul_rows_fetched(args, begin, end, args->K / 4, TM_MATMUL_BLOCK, tm_rows_prefetch(args->K), micro);
}

int tm_ternary_matmul_i2_s_x86_avx512(void *given)
{
    tm_ternary_matmul_args *args = given;
    return args->M < tm_tiles_least(ARRANGED) ? tm_matmul_run_by(args, TM_ROWS, body, TM_RANK(avx512))
                                              : tm_matmul_run(args, arranged, TM_RANK(avx512));
}

TM_END
#endif
