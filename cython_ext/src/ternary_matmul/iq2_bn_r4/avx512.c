/* ternary_matmul of iq2_bn_r4 with AVX-512 VNNI: a block of a four is one vector, 64 activations another. vpshufd
 * spreads each four of 16 columns to all four rows.
 *
 * One row of activations: four after four, one stream of memory. Codes stay in place, w & 3, w & 12, w & 48 and w &
 * 192, and their sums are shifted down at the end. A lane of the sum of w & 192 grows by 4 * 128 * -128 = -2^16 at most
 * for each block, so it fits int32 over the 2^13 blocks of CHUNK.
 *
 * Several rows: four fours by four rows of activations, 16 sums of shifted codes; the next fours are prefetched. Many
 * rows, 12 on Intel's cores: weights are converted to tile64, a stretch of a tile at a time (tiles.h).
 *
 * Limit: one row, the bandwidth of memory; several rows, shifts and ands on the ports of vpdpbusd (Intel).
 *
 * Rates: `python suites/performance/gemv.py --format iq2_bn_r4 --no-peers`. Versions and what lost:
 * docs/kernels/iq2_bn_r4.md. */
#include "iq2_bn_r4.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avx512)
#include "../rows_avx512.h"
#include "../tiles_avx512.h"
#include "../turned_avx512.h"

enum {
    CHUNK = 1 << 19, /* columns between two shifts of the sums */
    ARRANGED = 192, /* see tm_tiles_least */
};

/* Four columns of each 16, repeated in all 16. */
static inline __attribute__((always_inline)) __m512i spread(__m512i x, int s)
{
    switch (s) {
    case 0: return _mm512_shuffle_epi32(x, 0x00);
    case 1: return _mm512_shuffle_epi32(x, 0x55);
    case 2: return _mm512_shuffle_epi32(x, 0xaa);
    default: return _mm512_shuffle_epi32(x, 0xff);
    }
}

/* The sums of four rows, of which each quarter holds a part. */
static inline __m128i rows_of(__m512i v_i32x16)
{
    const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(v_i32x16), _mm512_extracti64x4_epi64(v_i32x16, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

static inline __attribute__((always_inline)) void one_row(
    const enum tm_prefetch_level level, size_t ahead, const uint8_t *weights, const int8_t *x, size_t K, int32_t *acc)
{
    const __m512i masks[4] = {
        _mm512_set1_epi8(3), _mm512_set1_epi8(12), _mm512_set1_epi8(48), _mm512_set1_epi8((char)192)};
    __m512i sum = _mm512_setzero_si512();
    for (size_t begin = 0; begin < K; begin += CHUNK) {
        const size_t end = K - begin < CHUNK ? K : begin + CHUNK;
        __m512i s_i32x16[4];
#pragma GCC unroll 4
        for (int s = 0; s < 4; s++)
            s_i32x16[s] = _mm512_setzero_si512();
        for (size_t k = begin; k < end; k += TM_FOUR_BLOCK) {
            const __m512i w = tm_loaded(weights + k), a_i8x64 = _mm512_loadu_si512(x + k);
            tm_prefetch_line(weights + k, level, ahead);
#pragma GCC unroll 4
            for (int s = 0; s < 4; s++)
                s_i32x16[s] = tm_dot_64(s_i32x16[s], _mm512_and_si512(w, masks[s]), spread(a_i8x64, s));
        }
#pragma GCC unroll 4
        for (int s = 0; s < 4; s++)
            sum = _mm512_add_epi32(sum, _mm512_srai_epi32(s_i32x16[s], (unsigned)(2 * s)));
    }
    _mm_storeu_si128((__m128i *)acc, rows_of(sum));
}

/* `count` and `fours` are constants at each call, so that sums stay in registers. */
static inline __attribute__((always_inline)) void blocks_by(
    const int fours, const int count, const uint8_t *weights, const int8_t *a, size_t lda, size_t K,
    int32_t (*acc)[TM_FOUR * TM_FOURS])
{
    const __m512i m3 = _mm512_set1_epi8(3);
    __m512i s_i32x16[TM_MATMUL_BLOCK][TM_FOURS];
#pragma GCC unroll 4
    for (int m = 0; m < count; m++)
#pragma GCC unroll 4
        for (int f = 0; f < fours; f++)
            s_i32x16[m][f] = _mm512_setzero_si512();
    for (size_t k = 0; k < K; k += TM_FOUR_BLOCK) {
        __m512i w[TM_FOURS];
#pragma GCC unroll 4
        for (int f = 0; f < fours; f++) {
            const uint8_t *four = weights + (size_t)f * tm_four_bytes(K) + k;
            w[f] = tm_loaded(four);
            /* Prefetches the next fours: the hardware does not follow four streams of short rows. */
            _mm_prefetch((const char *)four + (size_t)fours * tm_four_bytes(K), _MM_HINT_T0);
        }
#pragma GCC unroll 4
        for (int s = 0; s < 4; s++) {
            __m512i c[TM_FOURS];
#pragma GCC unroll 4
            for (int f = 0; f < fours; f++)
                c[f] = _mm512_and_si512(_mm512_srli_epi16(w[f], (unsigned)(2 * s)), m3);
#pragma GCC unroll 4
            for (int m = 0; m < count; m++) {
                const __m512i x = spread(_mm512_loadu_si512(a + (size_t)m * lda + k), s);
#pragma GCC unroll 4
                for (int f = 0; f < fours; f++)
                    s_i32x16[m][f] = _mm512_dpbusd_epi32(s_i32x16[m][f], c[f], x);
            }
        }
    }
#pragma GCC unroll 4
    for (int m = 0; m < count; m++)
#pragma GCC unroll 4
        for (int f = 0; f < fours; f++)
            _mm_storeu_si128((__m128i *)(acc[m] + TM_FOUR * f), rows_of(s_i32x16[m][f]));
}

static inline __attribute__((always_inline)) void counted(
    const int fours, const uint8_t *weights, const int8_t *a, size_t lda, int count, size_t K,
    int32_t (*acc)[TM_FOUR * TM_FOURS])
{
    switch (count) {
    case 1: blocks_by(fours, 1, weights, a, lda, K, acc); break;
    case 2: blocks_by(fours, 2, weights, a, lda, K, acc); break;
    case 3: blocks_by(fours, 3, weights, a, lda, K, acc); break;
    default: blocks_by(fours, 4, weights, a, lda, K, acc); break;
    }
}

static void micro(
    const uint8_t *weights, int fours, const int8_t *a, size_t lda, int count, size_t K,
    int32_t (*acc)[TM_FOUR * TM_FOURS])
{
    switch (fours) {
    case 1: counted(1, weights, a, lda, count, K, acc); break;
    case 2: counted(2, weights, a, lda, count, K, acc); break;
    case 3: counted(3, weights, a, lda, count, K, acc); break;
    default: counted(4, weights, a, lda, count, K, acc); break;
    }
}

static void one(
    const uint8_t *weights, int fours, const int8_t *a, size_t lda, int count, size_t K,
    int32_t (*acc)[TM_FOUR * TM_FOURS])
{
    (void)fours, (void)lda, (void)count;
    TM_PREFETCHED(tm_weights_prefetch(tm_weights_plain), one_row(level, ahead, weights, a, K, acc[0]));
}

static void body(void *given, size_t begin, size_t end)
{
    const tm_ternary_matmul_args *args = given;
    if (args->M == 1)
        tm_matmul_fours(args, begin, end, 1, 1, one);
    else
        tm_matmul_fours(args, begin, end, TM_FOURS, TM_MATMUL_BLOCK, micro);
}

/* Converts whole blocks to groups of a tile. 128 bits of a block hold 16 columns of a four; those of four fours are a
 * quarter's. */
void tm_four_arrange_avx512(const tm_ternary_matmul_args *args, size_t t, size_t k, size_t groups, uint8_t *to)
{
    const uint8_t *fours[TM_TILE_FOURS];
    tm_four_tile(args, t, k, fours);
    for (size_t at = 0; at < groups; at += TM_FOUR_BLOCK / 4) {
        __m512i w[4][4]; /* 16 columns, quarter of the tile */
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) {
            __m512i of[4];
#pragma GCC unroll 4
            for (int f = 0; f < 4; f++) {
                of[f] = tm_loaded(fours[4 * q + f] + 4 * at);
                _mm_prefetch(
                    (const char *)fours[4 * q + f] + 4 * at + TM_TILE_FOURS * tm_four_bytes(args->K), _MM_HINT_T1);
            }
            const __m512i low01 = _mm512_shuffle_i64x2(of[0], of[1], 0x44);
            const __m512i high01 = _mm512_shuffle_i64x2(of[0], of[1], 0xee);
            const __m512i low23 = _mm512_shuffle_i64x2(of[2], of[3], 0x44);
            const __m512i high23 = _mm512_shuffle_i64x2(of[2], of[3], 0xee);
            w[0][q] = _mm512_shuffle_i64x2(low01, low23, 0x88);
            w[1][q] = _mm512_shuffle_i64x2(low01, low23, 0xdd);
            w[2][q] = _mm512_shuffle_i64x2(high01, high23, 0x88);
            w[3][q] = _mm512_shuffle_i64x2(high01, high23, 0xdd);
        }
#pragma GCC unroll 4
        for (int l = 0; l < 4; l++) {
            __m512i turned[4];
            tm_tiles_turned(w[l], turned);
#pragma GCC unroll 4
            for (size_t s = 0; s < 4; s++)
                _mm512_store_si512(to + (at + 4 * (size_t)l + s) * TM_TILE, turned[s]);
        }
    }
}

static void arranged(void *args, size_t begin, size_t end)
{
    tm_matmul_arranged_by(
        args, begin, end, TM_TILES_ROWS, tm_tiles_micro, tm_four_arrange_avx512, TM_FOUR_BLOCK / 4, tm_four_tile_store);
}

int tm_ternary_matmul_iq2_bn_r4_avx512(void *given)
{
    tm_ternary_matmul_args *args = given;
    return args->M < tm_tiles_least(ARRANGED) ? tm_matmul_run_by(args, TM_FOUR, body, TM_RANK(avx512))
                                              : tm_matmul_run(args, arranged, TM_RANK(avx512));
}

TM_END
#endif
