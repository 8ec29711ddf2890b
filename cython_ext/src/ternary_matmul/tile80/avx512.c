/* ternary_matmul of tile80 with AVX-512 VNNI.
 *
 * Algorithm, few rows of activations: no digit is decoded. With q[0] a byte and q[i + 1] = 3 * q[i] modulo 256, digit i
 * is (3 * q[i] - q[i + 1]) / 256. U[i], the sums of q[i] * a, take six vpdpbusd; the digits' sums are (3 * U[i] - U[i +
 * 1]) / 256, taken once a chunk. Sums may wrap modulo 2^32. What is divided is exact while its magnitude is under 2^31,
 * and it is at most 256 * 2 * 128 * 4 * groups, so for groups < 8192: TM_TILE80_CHUNK is half of that. More rows:
 * weights are converted to tile64.
 *
 * Limit: for each 64 bytes 1 load, 10 additions, and for each row of activations 1 broadcast and 6 vpdpbusd. One row:
 * 16 instructions on two ports for 320 weights, 8 cycles, where tile64 takes 3.5 for 256. So tile80 is slower in the
 * caches and can be faster from memory, where 8 cycles for 64 bytes are more than a core reads.
 *
 * Rates: `python suites/performance/gemv.py --no-peers --beside tile80 --threads 1 16`. Page:
 * docs/kernels/tile80.md. */
#include "tile80.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avx512)
#include "../tiles_avx512.h"

enum { ROWS = 4 }; /* of activations at once: with six sums each, 24 of the 32 registers */

static inline __m512i thrice(__m512i q) { return _mm512_add_epi8(_mm512_add_epi8(q, q), q); }

static inline void settle(int32_t *acc, const __m512i *u)
{
#pragma GCC unroll 5
    for (int i = 0; i < TM_TILE80_DIGITS; i++) {
        const __m512i three = _mm512_add_epi32(_mm512_add_epi32(u[i], u[i]), u[i]);
        const __m512i sum_i32x16 = _mm512_srai_epi32(_mm512_sub_epi32(three, u[i + 1]), 8);
        _mm512_store_si512(acc + 16 * i, _mm512_add_epi32(_mm512_load_si512(acc + 16 * i), sum_i32x16));
    }
}

/* `rows` is a constant at each call, so that sums stay in registers. */
static inline __attribute__((always_inline)) void groups_by(
    const int rows, const enum tm_prefetch_level level, size_t ahead, const uint8_t *tile, size_t groups,
    const int8_t *a, size_t lda, int32_t (*acc)[TM_TILE80])
{
    __m512i u[ROWS][TM_TILE80_DIGITS + 1];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 6
        for (int i = 0; i <= TM_TILE80_DIGITS; i++)
            u[r][i] = _mm512_setzero_si512();
    for (size_t k = 0; k < groups; k++) {
        __m512i q = tm_tiles_kept(_mm512_loadu_si512(tile + k * TM_TILE)), a_i8x64[ROWS];
        tm_prefetch_line(tile + k * TM_TILE, level, ahead);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            a_i8x64[r] = tm_tiles_kept(tm_tiles_four(a + (size_t)r * lda + 4 * k));
#pragma GCC unroll 6
        for (int i = 0; i <= TM_TILE80_DIGITS; i++) {
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
                u[r][i] = tm_dot_64(u[r][i], q, a_i8x64[r]);
            if (i < TM_TILE80_DIGITS)
                q = thrice(q);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        settle(acc[r], u[r]);
}

static inline __attribute__((always_inline)) void tm_tile80_digits_by(
    const enum tm_prefetch_level level, size_t ahead, const uint8_t *tile, size_t groups, const int8_t *a, size_t lda,
    int rows, int32_t (*acc)[TM_TILE80])
{
    switch (rows) {
    case 1: groups_by(1, level, ahead, tile, groups, a, lda, acc); break;
    case 2: groups_by(2, level, ahead, tile, groups, a, lda, acc); break;
    case 3: groups_by(3, level, ahead, tile, groups, a, lda, acc); break;
    default: groups_by(4, level, ahead, tile, groups, a, lda, acc); break;
    }
}

#include "prefetched.h"

/* Digit 0 of q in the top two bits: with r = max(q - 1, 0), those of avg(r, avg(r, 0)), where avg rounds up. */
static inline __m512i digit(__m512i q)
{
    const __m512i r = _mm512_subs_epu8(q, _mm512_set1_epi8(1));
    return _mm512_avg_epu8(r, _mm512_avg_epu8(r, _mm512_setzero_si512()));
}

static inline __attribute__((always_inline)) void arrange_from(
    const int start, const uint8_t *first, const uint8_t *second, size_t groups, uint8_t *to)
{
    const __m512i top = _mm512_set1_epi8((char)0xc0);
    for (size_t k = 0; k < groups; k++) {
        __m512i q = _mm512_loadu_si512(first + k * TM_TILE), fields = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (int i = 0; i < start; i++)
            q = thrice(q);
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) {
            if (start + g == TM_TILE80_DIGITS)
                q = _mm512_loadu_si512(second + k * TM_TILE);
            /* The fields are shifted down by two bits a step, so the last is at the top. */
            fields = _mm512_ternarylogic_epi32(_mm512_srli_epi16(fields, 2), digit(q), top, 0xf8);
            q = thrice(q);
        }
        _mm512_store_si512(to + k * TM_TILE, fields);
    }
}

static void arrange(const tm_ternary_matmul_args *args, size_t t, size_t k, size_t groups, uint8_t *to)
{
    TM_TILE80_ARRANGE(arrange_from, tm_tile80_blocks_of(args, t, k), groups, to)
}

static void few(void *args, size_t begin, size_t end) { tm_tile80_tiles(args, begin, end, ROWS, tm_tile80_digits); }

static void many(void *args, size_t begin, size_t end)
{
    tm_matmul_arranged(args, begin, end, TM_TILES_ROWS, tm_tiles_micro, arrange, 1);
}

int tm_ternary_matmul_tile80_avx512(void *args)
{
    return tm_tile80_run(args, TM_TILE80_FEW, few, many, TM_RANK(avx512));
}

TM_END
#endif
