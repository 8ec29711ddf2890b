/* ternary_matmul of tl1 with AVX-512: 64 bytes of weights at a time, whose nibbles are extracted once for up to 4 rows
 * of activations. VBMI has nothing for tables of 16 entries, so shuffles within 16 bytes are enough.
 *
 * Limit: 10 to 11 cycles for 64 bytes with one row of activations on Zen 4. 4 look-ups and a shift take 5 on the
 * shuffle port, and the 4 loads of 32 bytes into both halves use it too.
 *
 * Rates: `python suites/performance/gemv.py --format tl1 --no-peers --threads 1 --shapes 2560x6912`. From memory, and
 * versions: docs/kernels/lut.md. */
#include "tl1.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avx512)
#include "../lut_avx512.h"
#include "../rows_avx512.h"
#include "../lut_tiles_avx512.h"
#include "tl1_avx2.h"

/* BLOCKS: blocks of 64 bytes between two additions to the int16 sums. CHUNK: between two to the int32 sums: 7 * 8
 * look-ups, twice as many once the halves of bm = 32 are added, times 256. */
enum { BLOCKS = TM_LUT_FLUSH / 2, CHUNK = 7 * BLOCKS };

static inline __m512i table(int bm, const uint8_t *tables, size_t block, int which)
{
    if (bm == 32)
        return _mm512_broadcast_i64x4(
            _mm256_load_si256((const __m256i *)(tables + block * TM_TL1_TABLES + 32 * which)));
    const uint8_t *at = tables + block / 2 * TM_TL1_TABLES + block % 2 * 16 + 32 * which;
    return _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)at));
}

/* The tile's columns of bm rows, for `count` rows of activations, whose tables lie `apart` bytes apart. */
static inline __attribute__((always_inline)) void rows_by(
    const int count, const int bm, const uint8_t *bytes, const uint8_t *tables, size_t apart, size_t blocks,
    int32_t (*acc)[TM_LUT_SUMS])
{
    const __m512i m15 = _mm512_set1_epi8(15);
    for (size_t begin = 0; begin < blocks; begin += CHUNK) {
        const size_t end = blocks - begin < CHUNK ? blocks : begin + CHUNK;
        __m512i s_i16x32[TM_LUT_ROWS][2];
#pragma GCC unroll 4
        for (int m = 0; m < count; m++)
            s_i16x32[m][0] = s_i16x32[m][1] = _mm512_setzero_si512();
        for (size_t first = begin; first < end; first += BLOCKS) {
            const size_t last = end - first < BLOCKS ? end : first + BLOCKS;
            __m512i low[TM_LUT_ROWS], high[TM_LUT_ROWS];
#pragma GCC unroll 4
            for (int m = 0; m < count; m++)
                low[m] = high[m] = _mm512_setzero_si512();
            for (size_t k = first; k < last; k++) {
                const __m512i w = tm_loaded(bytes + 64 * k);
                __builtin_prefetch(bytes + 64 * k + TM_LUT_AHEAD, 0, 2);
                const __m512i one = _mm512_and_si512(_mm512_srli_epi16(w, 4), m15), two = _mm512_and_si512(w, m15);
#pragma GCC unroll 4
                for (int m = 0; m < count; m++) {
                    const uint8_t *at = tables + (size_t)m * apart;
                    low[m] = tm_lut_wide_add(low[m], _mm512_shuffle_epi8(table(bm, at, k, 0), one));
                    high[m] = tm_lut_wide_add(high[m], _mm512_shuffle_epi8(table(bm, at, k, 1), one));
                    low[m] = tm_lut_wide_add(low[m], _mm512_shuffle_epi8(table(bm, at, k, 2), two));
                    high[m] = tm_lut_wide_add(high[m], _mm512_shuffle_epi8(table(bm, at, k, 3), two));
                }
            }
#pragma GCC unroll 4
            for (int m = 0; m < count; m++)
                tm_lut_wide_flush(low[m], high[m], s_i16x32[m]);
        }
        const size_t flushes = (end - begin + BLOCKS - 1) / BLOCKS;
#pragma GCC unroll 4
        for (int m = 0; m < count; m++) {
            /* 16 bytes of s[0] are rows 0 to 7 of a group of 16, of s[1] rows 8 to 15; 0xd8 puts those of one group
             * side by side. */
            const __m512i s0 = s_i16x32[m][0], s1 = s_i16x32[m][1];
            if (bm == 32) {
                const __m512i s =
                    _mm512_add_epi16(_mm512_shuffle_i32x4(s0, s1, 0x88), _mm512_shuffle_i32x4(s0, s1, 0xdd));
                tm_lut_wide_widen(_mm512_shuffle_i32x4(s, s, 0xd8), 2 * flushes, acc[m]);
            } else {
                const __m512i a = _mm512_shuffle_i32x4(s0, s1, 0x44), b = _mm512_shuffle_i32x4(s0, s1, 0xee);
                tm_lut_wide_widen(_mm512_shuffle_i32x4(a, a, 0xd8), flushes, acc[m]);
                tm_lut_wide_widen(_mm512_shuffle_i32x4(b, b, 0xd8), flushes, acc[m] + 32);
            }
        }
    }
}

static inline __attribute__((always_inline)) void sums_by(
    const int count, const int bm, const tm_ternary_matmul_args *args, size_t n, size_t rows,
    int32_t (*acc)[TM_LUT_SUMS])
{
    const size_t apart = tm_tl1_row(args->K), blocks = args->BK * (size_t)bm / 256;
    for (size_t k = 0; k < args->K; k += args->BK) {
        const uint8_t *bytes = tm_tl1_at(args, n, k / args->BK);
        for (size_t first = 0; first < rows; first += (size_t)bm, bytes += 64 * blocks)
            rows_by(count, bm, bytes, args->tables + tm_tl1_row(k), apart, blocks, (void *)(acc[0] + first));
    }
}

static void sums(const tm_ternary_matmul_args *args, size_t n, size_t rows, int32_t (*acc)[TM_LUT_SUMS])
{
    const int wide = args->bm == 64;
    switch (args->M) {
    case 1: wide ? sums_by(1, 64, args, n, rows, acc) : sums_by(1, 32, args, n, rows, acc); break;
    case 2: wide ? sums_by(2, 64, args, n, rows, acc) : sums_by(2, 32, args, n, rows, acc); break;
    case 3: wide ? sums_by(3, 64, args, n, rows, acc) : sums_by(3, 32, args, n, rows, acc); break;
    default: wide ? sums_by(4, 64, args, n, rows, acc) : sums_by(4, 32, args, n, rows, acc); break;
    }
}

static void body(void *args, size_t begin, size_t end) { tm_lut_body(args, begin, end, sums); }

static inline void two(size_t bm, const uint8_t *bytes, const uint8_t *others, uint8_t *to)
{
    const __m512i low = _mm512_loadu_si512(bytes);
    if (bm == TM_TILE) {
        tm_lut_pairs(low, to);
        tm_lut_pairs(_mm512_loadu_si512(bytes + 64), to + TM_TILE);
    } else { /* 16 rows of both groups, and 16 more */
        const __m512i high = _mm512_loadu_si512(others);
        tm_lut_pairs(_mm512_shuffle_i64x2(low, high, 0x88), to);
        tm_lut_pairs(_mm512_shuffle_i64x2(low, high, 0xdd), to + TM_TILE);
    }
}

void tm_tl1_arrange_avx512(const tm_ternary_matmul_args *args, size_t t, size_t group, size_t groups, uint8_t *to)
{
    tm_tl1_arrange(args, t, group, groups, to, two);
}

static void arranged(void *args, size_t begin, size_t end)
{
    tm_matmul_arranged(args, begin, end, TM_TILES_ROWS, tm_tiles_micro, tm_tl1_arrange_avx512, TM_TL1_COLUMNS / 4);
}

int tm_ternary_matmul_tl1_avx512(void *given)
{
    tm_ternary_matmul_args *args = given;
    return args->M < TM_TL1_ARRANGED ? tm_lut_run(args, tm_tl1_each(args), TM_TL1_GRAIN, fill, body, TM_RANK(avx512))
                                     : tm_matmul_run(args, arranged, TM_RANK(avx512));
}

TM_END
#endif
