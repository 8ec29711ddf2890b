/* ternary_matmul of tl2 with AVX-512: 64 bytes at a time, 32 rows of two adjacent sets of columns. Nibbles, and signs
 * as masks, are extracted once for up to 4 rows of activations. Sums are added at once (tm_lut_add), or most look-ups
 * of four rows are spilled.
 *
 * VBMI's vpermb could look up nibble and sign at once, in tables of 32 entries, and would save 4 masked subtractions of
 * 12 instructions for each 64 bytes and row of activations. It is not used: an instruction set of its own would rank
 * before avx512, and make this format the default for packing weights.
 *
 * Rates: `python suites/performance/gemv.py --format tl2 --no-peers --variant avx512`. Versions and what lost:
 * docs/kernels/lut.md. */
#include "tl2.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avx512)
#include "../lut_avx512.h"
#include "../rows_avx512.h"
#include "../lut_tiles_avx512.h"
#include "tl2_avx2.h"

/* Times 24 columns, 4 look-ups a half, between two additions to the int32 sums, for which the halves are added: 20 * 4
 * * 384 fits int16. */
enum { CHUNK = 10, PARTS = 2 };

static inline __m512i table(const uint8_t *tables, int vector, int which)
{
    return _mm512_load_si512(tables + vector * TM_TL2_TABLES + 64 * which);
}

/* Which bytes of a vector are negative; the top bits of `words` are the signs of rows 0 to 15. */
static inline __mmask64 signs_of(__m512i words)
{
    return _mm512_movepi8_mask(_mm512_packs_epi16(words, _mm512_slli_epi16(words, 1)));
}

/* 32 rows and `parts` times 2 vectors of nibbles, with signs or without, for `count` rows of activations. */
static inline __attribute__((always_inline)) void rows_by(
    const int count, const int has_signs, const uint8_t *bytes, const uint8_t *signs, const uint8_t *tables,
    size_t apart, size_t parts, int32_t (*acc)[TM_LUT_SUMS])
{
    const __m512i m15 = _mm512_set1_epi8(15), zero = _mm512_setzero_si512();
    /* The first half's high nibbles are triple 0 of 24 columns, or 4 in the second vector; the other half's are 2 or
     * 6. */
    const __m512i down[2] = {
        _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(4), 1),
        _mm512_inserti64x4(_mm512_set1_epi16(8), _mm256_set1_epi16(12), 1)};
    for (size_t begin = 0; begin < parts; begin += CHUNK) {
        const size_t end = parts - begin < CHUNK ? parts : begin + CHUNK;
        __m512i s_i16x32[TM_LUT_ROWS][2];
#pragma GCC unroll 4
        for (int m = 0; m < count; m++)
            s_i16x32[m][0] = s_i16x32[m][1] = zero;
        for (size_t first = begin; first < end; first += PARTS) {
            const size_t last = end - first < PARTS ? end : first + PARTS;
            __m512i low[TM_LUT_ROWS], high[TM_LUT_ROWS];
#pragma GCC unroll 4
            for (int m = 0; m < count; m++)
                low[m] = high[m] = zero;
            for (size_t part = first; part < last; part++) {
                __m512i words = zero;
                if (has_signs)
                    words = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(signs + 32 * part)));
#pragma GCC unroll 2
                for (int v = 0; v < 2; v++) {
                    const __m512i w = tm_loaded(bytes + 128 * part + 64 * v);
                    __builtin_prefetch(bytes + 128 * part + 64 * v + TM_LUT_AHEAD, 0, 2);
                    const __m512i on_top = has_signs ? _mm512_sllv_epi16(words, down[v]) : zero;
#pragma GCC unroll 2
                    for (int half = 0; half < 2; half++) {
                        const __m512i index = _mm512_and_si512(half ? w : _mm512_srli_epi16(w, 4), m15);
                        const __mmask64 sign = has_signs ? signs_of(half ? _mm512_slli_epi16(on_top, 2) : on_top) : 0;
#pragma GCC unroll 4
                        for (int m = 0; m < count; m++) {
                            const uint8_t *at = tables + (size_t)m * apart + PARTS * TM_TL2_TABLES * part;
                            __m512i a = _mm512_shuffle_epi8(table(at, v, 2 * half), index);
                            __m512i b = _mm512_shuffle_epi8(table(at, v, 2 * half + 1), index);
                            if (has_signs) {
                                a = _mm512_mask_sub_epi8(a, sign, zero, a);
                                b = _mm512_mask_sub_epi8(b, sign, zero, b);
                            }
                            low[m] = tm_lut_wide_add(low[m], a), high[m] = tm_lut_wide_add(high[m], b);
                        }
                    }
                }
            }
#pragma GCC unroll 4
            for (int m = 0; m < count; m++)
                tm_lut_wide_flush(low[m], high[m], s_i16x32[m]);
        }
        const size_t flushes = (end - begin + PARTS - 1) / PARTS;
#pragma GCC unroll 4
        for (int m = 0; m < count; m++) {
            const __m512i s0 = s_i16x32[m][0], s1 = s_i16x32[m][1];
            const __m512i s = _mm512_add_epi16(_mm512_shuffle_i64x2(s0, s1, 0x44), _mm512_shuffle_i64x2(s0, s1, 0xee));
            tm_lut_wide_widen(s, 2 * flushes, acc[m]);
        }
    }
}

static inline __attribute__((always_inline)) void sums_by(
    const int count, const tm_ternary_matmul_args *args, size_t n, size_t rows, int32_t (*acc)[TM_LUT_SUMS])
{
    const size_t apart = tm_tl2_row(args), tripled = tm_tl2_tripled(args);
    const uint8_t *tables = args->tables;
    for (size_t k = 0; k < tripled; k += args->BK, tables += args->BK / TM_TL2_TRIPLES * TM_TL2_TABLES)
        for (size_t r = 0; r < rows; r += TM_TL2_ROWS)
            rows_by(
                count, 1, tm_tl2_nibbles(args, n + r, k), tm_tl2_signs(args, n + r, k), tables, apart,
                args->BK / TM_TL2_SIGNED, (void *)(acc[0] + r));
    for (size_t k = 0; k < args->K - tripled; k += TM_TL2_PAIRED, tables += 4 * TM_TL2_TABLES)
        for (size_t r = 0; r < rows; r += TM_TL2_ROWS)
            rows_by(count, 0, tm_tl2_pairs(args, n + r, k), NULL, tables, apart, 2, (void *)(acc[0] + r));
}

static void sums(const tm_ternary_matmul_args *args, size_t n, size_t rows, int32_t (*acc)[TM_LUT_SUMS])
{
    switch (args->M) {
    case 1: sums_by(1, args, n, rows, acc); break;
    case 2: sums_by(2, args, n, rows, acc); break;
    case 3: sums_by(3, args, n, rows, acc); break;
    default: sums_by(4, args, n, rows, acc); break;
    }
}

static void body(void *args, size_t begin, size_t end) { tm_lut_body(args, begin, end, sums); }

/* 32 bytes of 32 rows each, as the quarters of a tile: blocks of 8 rows lie in the order 0, 2, 1, 3. */
static inline __m512i quarters(__m512i eights)
{
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 1, 3, 4, 6, 5, 7), eights);
}

static inline __m512i both(const uint8_t *low, const uint8_t *high)
{
    return tm_halves((const int8_t *)low, (const int8_t *)high);
}

/* Six groups of 24 columns of triples. */
static inline __attribute__((always_inline)) void triples(
    const uint8_t *const nibbles[2], const uint8_t *const signs[2], uint8_t *to)
{
    const __m512i m15 = _mm512_set1_epi8(15), twos = tm_lut_codes(_mm_set1_epi8(2)), words = both(signs[0], signs[1]);
    const __m512i codes[3] = {
        tm_lut_codes(TM_LUT_TRIPLE_CODES_0), tm_lut_codes(TM_LUT_TRIPLE_CODES_1), tm_lut_codes(TM_LUT_TRIPLE_CODES_2)};
    __m512i column[TM_TL2_SIGNED];
#pragma GCC unroll 8
    for (int t = 0; t < TM_TL2_SIGNED / 3; t++) {
        const __m512i w = quarters(both(nibbles[0] + t / 2 * 32, nibbles[1] + t / 2 * 32));
        const __m512i index = _mm512_and_si512(t % 2 ? w : _mm512_srli_epi16(w, 4), m15);
        const __m512i of = _mm512_slli_epi16(words, (unsigned)(2 * t)), next = _mm512_slli_epi16(of, 1);
        const __mmask64 sign = _mm512_movepi8_mask(quarters(_mm512_packs_epi16(of, next)));
#pragma GCC unroll 3
        for (int i = 0; i < 3; i++) {
            const __m512i code = _mm512_shuffle_epi8(codes[i], index);
            column[3 * t + i] = _mm512_mask_sub_epi8(code, sign, twos, code);
        }
        /* Groups whose columns are all there come first, so that few columns wait. */
#pragma GCC unroll 2
        for (int g = 3 * t / 4; g < 3 * (t + 1) / 4; g++)
            tm_lut_group(column + 4 * g, to + g * TM_TILE);
    }
}

static inline void pairs(const uint8_t *low, const uint8_t *high, uint8_t *to)
{
    tm_lut_pairs(quarters(both(low, high)), to);
}

void tm_tl2_arrange_avx512(const tm_ternary_matmul_args *args, size_t t, size_t group, size_t groups, uint8_t *to)
{
    tm_tl2_arrange(args, t, group, groups, to, triples, pairs);
}

static void arranged(void *args, size_t begin, size_t end)
{
    tm_matmul_arranged(args, begin, end, TM_TILES_ROWS, tm_tiles_micro, tm_tl2_arrange_avx512, TM_TL2_SIGNED / 4);
}

int tm_ternary_matmul_tl2_avx512(void *given)
{
    tm_ternary_matmul_args *args = given;
    return args->M < TM_TL2_ARRANGED ? tm_lut_run(args, tm_tl2_each(args), TM_TL2_GRAIN, fill, body, TM_RANK(avx512))
                                     : tm_matmul_run(args, arranged, TM_RANK(avx512));
}

TM_END
#endif
