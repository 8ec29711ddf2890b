/* ternary_matmul of tl1 with AVX2. For each 32 bytes of weights and row of activations 4 look-ups and 4 additions;
 * nibbles are extracted once for two rows of activations. 16 rows of weights at a time; sums are added at once
 * (tm_lut_add), because the registers are full.
 *
 * Rates: `python suites/performance/gemv.py --format tl1 --no-peers --variant avx2`. Versions and what lost:
 * docs/kernels/lut.md. */
#include "tl1.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avx2)
#include "tl1_avx2.h"

#include "../lut_tiles_avx2.h"

/* BLOCKS: blocks of 64 bytes between two additions to the int16 sums. CHUNK: between two to the int32 sums: 7 * 8
 * look-ups, twice as many once the halves of bm = 32 are added, times 256. */
enum { BLOCKS = TM_LUT_FLUSH / 2, CHUNK = 7 * BLOCKS, MOST = 2 };

static inline __m256i table(int bm, const uint8_t *tables, size_t block, int which)
{
    if (bm == 32)
        return _mm256_load_si256((const __m256i *)(tables + block * TM_TL1_TABLES + 32 * which));
    const uint8_t *at = tables + block / 2 * TM_TL1_TABLES + block % 2 * 16 + 32 * which;
    return _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)at));
}

/* The tile's columns of bm rows, for `count` rows of activations, whose tables lie `apart` bytes apart. */
static inline __attribute__((always_inline)) void rows_by(
    const int count, const int bm, const uint8_t *bytes, const uint8_t *tables, size_t apart, size_t blocks,
    int32_t (*acc)[TM_LUT_SUMS])
{
    const __m256i m15 = _mm256_set1_epi8(15);
    for (size_t begin = 0; begin < blocks; begin += CHUNK) {
        const size_t end = blocks - begin < CHUNK ? blocks : begin + CHUNK;
        __m256i s_i16x16[MOST][2][2];
        for (int m = 0; m < count; m++)
            for (int y = 0; y < 2; y++)
                s_i16x16[m][y][0] = s_i16x16[m][y][1] = _mm256_setzero_si256();
        for (size_t first = begin; first < end; first += BLOCKS) {
            const size_t last = end - first < BLOCKS ? end : first + BLOCKS;
            __m256i low[MOST][2], high[MOST][2];
#pragma GCC unroll 2
            for (int m = 0; m < count; m++)
#pragma GCC unroll 2
                for (int y = 0; y < 2; y++)
                    low[m][y] = high[m][y] = _mm256_setzero_si256();
            for (size_t k = first; k < last; k++) {
                __builtin_prefetch(bytes + 64 * k + TM_LUT_AHEAD, 0, 2);
#pragma GCC unroll 2
                for (int y = 0; y < 2; y++) {
                    const __m256i w = _mm256_loadu_si256((const __m256i *)(bytes + 64 * k + 32 * y));
                    const __m256i one = _mm256_and_si256(_mm256_srli_epi16(w, 4), m15), two = _mm256_and_si256(w, m15);
#pragma GCC unroll 2
                    for (int m = 0; m < count; m++) {
                        const uint8_t *at = tables + (size_t)m * apart;
                        low[m][y] = tm_lut_add(low[m][y], _mm256_shuffle_epi8(table(bm, at, k, 0), one));
                        high[m][y] = tm_lut_add(high[m][y], _mm256_shuffle_epi8(table(bm, at, k, 1), one));
                        low[m][y] = tm_lut_add(low[m][y], _mm256_shuffle_epi8(table(bm, at, k, 2), two));
                        high[m][y] = tm_lut_add(high[m][y], _mm256_shuffle_epi8(table(bm, at, k, 3), two));
                    }
                }
            }
#pragma GCC unroll 2
            for (int m = 0; m < count; m++)
#pragma GCC unroll 2
                for (int y = 0; y < 2; y++)
                    tm_lut_flush(low[m][y], high[m][y], s_i16x16[m][y]);
        }
        const size_t flushes = (end - begin + BLOCKS - 1) / BLOCKS;
        for (int m = 0; m < count; m++)
            for (int y = 0; y < 2; y++) {
                const __m256i a = _mm256_permute2x128_si256(s_i16x16[m][y][0], s_i16x16[m][y][1], 0x20);
                const __m256i b = _mm256_permute2x128_si256(s_i16x16[m][y][0], s_i16x16[m][y][1], 0x31);
                if (bm == 32) {
                    tm_lut_widen(_mm256_add_epi16(a, b), 2 * flushes, acc[m] + 16 * y);
                } else {
                    tm_lut_widen(a, flushes, acc[m] + 32 * y);
                    tm_lut_widen(b, flushes, acc[m] + 32 * y + 16);
                }
            }
    }
}

static inline __attribute__((always_inline)) void sums_by(
    const int bm, const tm_ternary_matmul_args *args, size_t n, size_t rows, int32_t (*acc)[TM_LUT_SUMS])
{
    const size_t apart = tm_tl1_row(args->K), blocks = args->BK * (size_t)bm / 256;
    for (size_t k = 0; k < args->K; k += args->BK) {
        const uint8_t *bytes = tm_tl1_at(args, n, k / args->BK);
        const uint8_t *tables = args->tables + tm_tl1_row(k);
        for (size_t first = 0; first < rows; first += (size_t)bm, bytes += 64 * blocks) {
            size_t m = 0;
            for (; m + 2 <= args->M; m += 2)
                rows_by(2, bm, bytes, tables + m * apart, apart, blocks, (void *)(acc[m] + first));
            if (m < args->M)
                rows_by(1, bm, bytes, tables + m * apart, apart, blocks, (void *)(acc[m] + first));
        }
    }
}

static void sums(const tm_ternary_matmul_args *args, size_t n, size_t rows, int32_t (*acc)[TM_LUT_SUMS])
{
    if (args->bm == 32)
        sums_by(32, args, n, rows, acc);
    else
        sums_by(64, args, n, rows, acc);
}

static void body(void *args, size_t begin, size_t end) { tm_lut_body(args, begin, end, sums); }

/* 32 bytes. */
static inline __m256i at_once(const uint8_t *bytes) { return _mm256_loadu_si256((const __m256i *)bytes); }

static inline void two(size_t bm, const uint8_t *bytes, const uint8_t *others, uint8_t *to)
{
    const __m256i first = at_once(bytes), second = at_once(bytes + 32);
    if (bm == TM_TILE) {
        tm_lut_pairs(first, second, to);
        tm_lut_pairs(at_once(bytes + 64), at_once(bytes + 96), to + TM_TILE);
    } else { /* 16 rows of both groups, and 16 more */
        const __m256i third = at_once(others), fourth = at_once(others + 32);
        tm_lut_pairs(
            _mm256_permute2x128_si256(first, second, 0x20), _mm256_permute2x128_si256(third, fourth, 0x20), to);
        tm_lut_pairs(
            _mm256_permute2x128_si256(first, second, 0x31), _mm256_permute2x128_si256(third, fourth, 0x31),
            to + TM_TILE);
    }
}

static void arrange(const tm_ternary_matmul_args *args, size_t t, size_t group, size_t groups, uint8_t *to)
{
    tm_tl1_arrange(args, t, group, groups, to, two);
}

static void arranged(void *args, size_t begin, size_t end)
{
    tm_matmul_arranged(args, begin, end, TM_TILES_ROWS, tm_tiles_micro, arrange, TM_TL1_COLUMNS / 4);
}

int tm_ternary_matmul_tl1_avx2(void *given)
{
    tm_ternary_matmul_args *args = given;
    return args->M < TM_TL1_ARRANGED ? tm_lut_run(args, tm_tl1_each(args), TM_TL1_GRAIN, fill, body, TM_RANK(avx2))
                                     : tm_matmul_run(args, arranged, TM_RANK(avx2));
}

TM_END
#endif
