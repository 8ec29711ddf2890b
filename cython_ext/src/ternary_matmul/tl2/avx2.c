/* ternary_matmul of tl2 with AVX2. For each 32 bytes of nibbles and row of activations 4 look-ups, 4 changes of sign
 * and 4 additions; nibbles and signs are extracted once for two rows of activations.
 *
 * Rates: `python suites/performance/gemv.py --format tl2 --no-peers --variant avx2`. Versions and what lost:
 * docs/kernels/lut.md. */
#include "tl2.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avx2)
#include "tl2_avx2.h"

#include "../lut_tiles_avx2.h"

/* Times 24 columns, 8 look-ups, between two additions to the int32 sums; 80 * 384 fits int16. */
enum { CHUNK = 10, MOST = 2 };

/* `which`: low and high digits for the high nibbles of vector `nth`, then for the low nibbles. */
static inline __m256i table(const uint8_t *tables, int nth, int which)
{
    return _mm256_load_si256((const __m256i *)(tables + nth / 2 * TM_TL2_TABLES + nth % 2 * 32 + 64 * which));
}

/* The signs of triple t: above or below 0 for each byte. `odd` is words | 1, so that no shifted value is 0; the last
 * sign is that bit itself. */
static inline __m256i signs_of(__m256i words, __m256i odd, int t)
{
    const int last = t == TM_TL2_SIGNED / 3 - 1;
    const __m256i both =
        _mm256_packs_epi16(_mm256_slli_epi16(odd, 2 * t), _mm256_slli_epi16(last ? words : odd, 2 * t + 1));
    return last ? _mm256_or_si256(both, _mm256_set1_epi8(1)) : both;
}

/* 32 rows and `parts` times 4 vectors of nibbles, with signs or without, for `count` rows of activations. */
static inline __attribute__((always_inline)) void rows_by(
    const int count, const int has_signs, const uint8_t *bytes, const uint8_t *signs, const uint8_t *tables,
    size_t apart, size_t parts, int32_t (*acc)[TM_LUT_SUMS])
{
    const __m256i m15 = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    for (size_t begin = 0; begin < parts; begin += CHUNK) {
        const size_t end = parts - begin < CHUNK ? parts : begin + CHUNK;
        __m256i s_i16x16[MOST][2];
        for (int m = 0; m < count; m++)
            s_i16x16[m][0] = s_i16x16[m][1] = _mm256_setzero_si256();
        for (size_t part = begin; part < end; part++) {
            __m256i low[MOST], high[MOST], words = m15;
#pragma GCC unroll 2
            for (int m = 0; m < count; m++)
                low[m] = high[m] = _mm256_setzero_si256();
            if (has_signs)
                words = _mm256_loadu_si256((const __m256i *)(signs + 32 * part));
            const __m256i odd = _mm256_or_si256(words, ones);
#pragma GCC unroll 4
            for (int v = 0; v < 4; v++) {
                const __m256i w = _mm256_loadu_si256((const __m256i *)(bytes + 128 * part + 32 * v));
                if (v % 2)
                    __builtin_prefetch(bytes + 128 * part + 32 * v + TM_LUT_AHEAD, 0, 2);
#pragma GCC unroll 2
                for (int half = 0; half < 2; half++) {
                    const __m256i index = _mm256_and_si256(half ? w : _mm256_srli_epi16(w, 4), m15);
                    const __m256i sign = has_signs ? signs_of(words, odd, 2 * v + half) : m15;
#pragma GCC unroll 2
                    for (int m = 0; m < count; m++) {
                        const uint8_t *at = tables + (size_t)m * apart + 2 * TM_TL2_TABLES * part;
                        __m256i a = _mm256_shuffle_epi8(table(at, v, 2 * half), index);
                        __m256i b = _mm256_shuffle_epi8(table(at, v, 2 * half + 1), index);
                        if (has_signs)
                            a = _mm256_sign_epi8(a, sign), b = _mm256_sign_epi8(b, sign);
                        low[m] = tm_lut_add(low[m], a), high[m] = tm_lut_add(high[m], b);
                    }
                }
            }
#pragma GCC unroll 2
            for (int m = 0; m < count; m++)
                tm_lut_flush(low[m], high[m], s_i16x16[m]);
        }
        for (int m = 0; m < count; m++) {
            tm_lut_widen(s_i16x16[m][0], end - begin, acc[m]);
            tm_lut_widen(s_i16x16[m][1], end - begin, acc[m] + 16);
        }
    }
}

static inline __attribute__((always_inline)) void sums_by(
    const int count, const tm_ternary_matmul_args *args, size_t n, size_t rows, size_t m, int32_t (*acc)[TM_LUT_SUMS])
{
    const size_t apart = tm_tl2_row(args), tripled = tm_tl2_tripled(args);
    const uint8_t *tables = args->tables + m * apart;
    for (size_t k = 0; k < tripled; k += args->BK, tables += args->BK / TM_TL2_TRIPLES * TM_TL2_TABLES)
        for (size_t r = 0; r < rows; r += TM_TL2_ROWS)
            rows_by(
                count, 1, tm_tl2_nibbles(args, n + r, k), tm_tl2_signs(args, n + r, k), tables, apart,
                args->BK / TM_TL2_SIGNED, (void *)(acc[m] + r));
    for (size_t k = 0; k < args->K - tripled; k += TM_TL2_PAIRED, tables += 4 * TM_TL2_TABLES)
        for (size_t r = 0; r < rows; r += TM_TL2_ROWS)
            rows_by(count, 0, tm_tl2_pairs(args, n + r, k), NULL, tables, apart, 2, (void *)(acc[m] + r));
}

static void sums(const tm_ternary_matmul_args *args, size_t n, size_t rows, int32_t (*acc)[TM_LUT_SUMS])
{
    size_t m = 0;
    for (; m + 2 <= args->M; m += 2)
        sums_by(2, args, n, rows, m, acc);
    if (m < args->M)
        sums_by(1, args, n, rows, m, acc);
}

static void body(void *args, size_t begin, size_t end) { tm_lut_body(args, begin, end, sums); }

/* 32 bytes of 32 rows, as two quarters of a tile: blocks of 8 rows lie in the order 0, 2, 1, 3. */
static inline __m256i quarters(__m256i eights) { return _mm256_permute4x64_epi64(eights, 0xd8); }

static inline __m256i at_once(const uint8_t *bytes) { return _mm256_loadu_si256((const __m256i *)bytes); }

/* Six groups of 24 columns of triples, by vectors of 32 rows. */
static inline void triples(const uint8_t *const nibbles[2], const uint8_t *const signs[2], uint8_t *to)
{
    const __m256i m15 = _mm256_set1_epi8(15);
    __m256i column[TM_TL2_SIGNED][2];
#pragma GCC unroll 2
    for (int nth = 0; nth < 2; nth++) {
        const __m256i twos = tm_lut_codes(_mm_set1_epi8(2), nth), words = at_once(signs[nth]);
        const __m256i codes[3] = {
            tm_lut_codes(TM_LUT_TRIPLE_CODES_0, nth), tm_lut_codes(TM_LUT_TRIPLE_CODES_1, nth),
            tm_lut_codes(TM_LUT_TRIPLE_CODES_2, nth)};
#pragma GCC unroll 8
        for (int t = 0; t < TM_TL2_SIGNED / 3; t++) {
            const __m256i w = quarters(at_once(nibbles[nth] + t / 2 * 32)), sign = quarters(signs_of(words, words, t));
            const __m256i index = _mm256_and_si256(t % 2 ? w : _mm256_srli_epi16(w, 4), m15);
#pragma GCC unroll 3
            for (int i = 0; i < 3; i++) {
                const __m256i code = _mm256_shuffle_epi8(codes[i], index);
                column[3 * t + i][nth] = _mm256_blendv_epi8(code, _mm256_sub_epi8(twos, code), sign);
            }
        }
    }
#pragma GCC unroll 6
    for (int g = 0; g < TM_TL2_SIGNED / 4; g++)
        tm_lut_group((const __m256i(*)[2])(column + 4 * g), to + g * TM_TILE);
}

static inline void pairs(const uint8_t *low, const uint8_t *high, uint8_t *to)
{
    tm_lut_pairs(quarters(at_once(low)), quarters(at_once(high)), to);
}

static void arrange(const tm_ternary_matmul_args *args, size_t t, size_t group, size_t groups, uint8_t *to)
{
    tm_tl2_arrange(args, t, group, groups, to, triples, pairs);
}

static void arranged(void *args, size_t begin, size_t end)
{
    tm_matmul_arranged(args, begin, end, TM_TILES_ROWS, tm_tiles_micro, arrange, TM_TL2_SIGNED / 4);
}

int tm_ternary_matmul_tl2_avx2(void *given)
{
    tm_ternary_matmul_args *args = given;
    return args->M < TM_TL2_ARRANGED ? tm_lut_run(args, tm_tl2_each(args), TM_TL2_GRAIN, fill, body, TM_RANK(avx2))
                                     : tm_matmul_run(args, arranged, TM_RANK(avx2));
}

TM_END
#endif
