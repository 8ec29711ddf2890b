/* ternary_matmul of i2_s_x86 with AVX-512 VNNI.
 *
 * One row of activations: a block at a time of four rows of weights, in 32-byte vectors, which share what is loaded of the
 * activations; codes in their places, 16 sums. Where rows are longer than TM_ROWS_LONG row after row (row_after_row.h, which
 * says how codes come down).
 *
 * Several rows: two blocks at a time, 32 activations of each beside one another; 4 rows of weights share what is loaded
 * of the activations, and each row of activations what is shifted out of the weights; 16 sums are all that fit.
 *
 * Story (`tritmark run --suite speed --op ternary_matmul --variant avx512` times what stands here; the versions before
 * it are gone):
 *   v1  4 rows of weights at once, shifted, 64-byte vectors: memory sees four streams a row long, and is slow
 *   v2  v1, the next 4 rows fetched in their order (rows.h): as fast as tile64 from memory where rows are short, slower
 *       where they are long
 *   v3  row after row, masks in place, activations arranged for 64 bytes: faster in the caches, slower from memory
 *       Why 64-byte loads one row long are slower from memory than 32-byte ones was not found; fetching ahead changes
 *       nothing.
 *   v4  v3 in 32-byte vectors, nothing to arrange, one load in the loop
 *   v5  weights are fetched ahead on Intel's cores, where v3's finding does not hold: from memory 0.60 to 0.62 of the time
 *       with one thread, 0.69 to 0.73 with 16 (fours.h has how that was measured)
 *   v6  two sets of sums, a block's each: four sums that are added to every 4 cycles are no more than what Zen 4 takes for
 *       vpdpbusd to end, 8 cycles for 64 bytes, 10 on Intel's cores; rows of 20 blocks overlapped, longer ones did not. In
 *       the caches 0.90
 *   v7  vpdpbusd in assembly: GCC 12 moved each sum twice, 16 of 45 instructions for 64 bytes. 6 cycles, of which the 10
 *       loads take 5. Alone it is up to 1.3 times slower from memory,
 *   v8  and with weights fetched ahead on Zen 4, too (ternary_matmul.h), faster. Time over v5's, M = 1:
 *         in the caches, `tritmark gate 3ca4dec 5fbdd2e --op ternary_matmul --variant avx512` of 2560 x 2560, 6912 x 2560 and
 *         2560 x 6912: Zen 4 0.71 to 0.72 with one thread, 0.76 to 0.81 with two. By `python suites/performance/gemv.py
 *         --format i2_s_x86 --no-peers --before SO_OF_3ca4dec`: Intel Xeon (Emerald Rapids) 0.63 to 0.67 with one thread, 0.70
 *         to 0.78 with 16. From memory, the same way: Zen 4 0.83 where rows are 2560 long, 0.58 at 6912, 0.46 at 13824 with
 *         one thread, 0.95, 0.80, 0.74 with two; the Xeon 0.88 to 0.94
 *   v9  four rows of weights at once again, one load of the activations for all, where v8 had 10 loads for 64 bytes, and what
 *       is fetched ahead is what they take, in the order in which it lies, from behind the last of them on, into L1. Steps of
 *       128 bytes in loops of nothing else (outside of the project, Zen 4, cycles of which the products alone take 8): v8
 *       13.5; two rows 13.3; two rows as one 64-byte vector, activations broadcast, 13.1; four rows 10.4; two rows in 64-byte
 *       vectors with arranged activations 10.2; tile64's 10.0. Predicted 0.77 in the caches. Rows longer than 8192 lie too
 *       far apart for L1: from memory 1.07 at 10240, with 8 KiB into L2 1.18, and 1.04 at 8192 (by prefetching.py and the
 *       script below, one thread); those go as in v8. Time over
 *       v8's, M = 1, by `python suites/performance/gemv.py --format i2_s_x86 --no-peers --before SO_OF_374c58e` of 2560 x
 *       2560, 6912 x 2560 and 2560 x 6912, in the caches / from memory: Zen 4 0.82 to 0.91 / 0.87 to 1.03, with two threads
 *       too; the Xeon 0.78 to 0.93 / 0.97 to 1.03 with one thread and 16
 *
 *   v10 2 and more rows: weights are fetched in the loop that meets them, 8 lines at a time, and not four whole rows beforehand;
 *       one transposition adds up four sums. Time over v9's, interleaved, one thread of the busy Xeon, 2560 x 2560, 2560 x 6912,
 *       1536 x 13824: M = 2 to 4 from memory 0.65 to 0.79, in the caches 0.68 to 0.90; M = 5 to 11 0.75 to 0.90. M = 2 from
 *       memory takes 1.08 to 1.12 of tile64's time, before 1.41 to 1.57
 *
 * Many rows: before, every four rows of weights met all rows of activations, which no L1 holds: 61 % of what VNNI
 * computes at M = 128, where tile64 reaches 94 %. So weights become tile64, a stretch of a tile at a time, and go there
 * (tiles.h). Predicted: 160 instructions for 4096 weights, 5 % of the product of 64 rows. Time against before (`tritmark
 * gate 58d6a8b d80a47b --suite league --op ternary_matmul --variant 'cpu/ternary_matmul/i2_s_x86/float32/avx?*'`, Zen 4, two
 * threads, 2560 x 2560): -8 % at M = 128; with AVX2 -25 % at 16 and -31 % at 128. Below ARRANGED it is slower here, on
 * Intel's cores quicker from few rows on. */
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

/* Of up to TM_ROWS_LONG weights, whose sums fit int32 as in row_after_row.h. */
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
            __asm__("" : "+v"(a)); /* or compilers load it for each row */
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

/* `count` is a constant at each call, so that the sums stay in registers. */
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
    if (k < blocks) /* the last of an odd number, beside zeros */
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

/* Groups of a tile, from whole blocks. 16 bytes of 16 rows are turned so that a vector has 4 bytes of each row, which are
 * four groups' codes; of four such vectors, of the tile's quarters, each byte's four codes change places. */
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
            /* The codes of the lowest bits are of the columns 96 and more of the block. */
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
