/* ternary_matmul of tile64 with SSE4.1: like avx2.c, with 16 bytes: a quarter of a group, 4 of each 16 rows. */
#include "tiles.h"

#if TM_X86
#include "../intrinsics.h"

TM_BEGIN(sse41)

enum { FLUSH = 64, ROWS = 2 };

static inline __m128i four(const int8_t *a)
{
    int32_t word;
    memcpy(&word, a, sizeof word);
    return _mm_set1_epi32(word);
}

static inline __attribute__((always_inline)) void quarter_by(
    const int rows, int quarter, const uint8_t *tile, size_t groups, const int8_t *a, size_t lda,
    int32_t (*acc)[TM_TILE])
{
    const __m128i m3 = _mm_set1_epi8(3), ones = _mm_set1_epi16(1);
    for (size_t begin = 0; begin < groups; begin += FLUSH) {
        const size_t end = groups - begin < FLUSH ? groups : begin + FLUSH;
        __m128i s_i16x8[ROWS][4];
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int g = 0; g < 4; g++)
                s_i16x8[r][g] = _mm_setzero_si128();
        for (size_t k = begin; k < end; k++) {
            const __m128i w = _mm_loadu_si128((const __m128i *)(tile + k * TM_TILE + 16 * quarter));
            const __m128i c[4] = {
                _mm_and_si128(w, m3),
                _mm_and_si128(_mm_srli_epi16(w, 2), m3),
                _mm_and_si128(_mm_srli_epi16(w, 4), m3),
                _mm_and_si128(_mm_srli_epi16(w, 6), m3),
            };
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++) {
                const __m128i a_i8x16 = four(a + (size_t)r * lda + 4 * k);
#pragma GCC unroll 4
                for (int g = 0; g < 4; g++)
                    s_i16x8[r][g] = _mm_add_epi16(s_i16x8[r][g], _mm_maddubs_epi16(c[g], a_i8x16));
            }
        }
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int g = 0; g < 4; g++) {
                __m128i *sum = (__m128i *)(acc[r] + 16 * g + 4 * quarter);
                _mm_store_si128(sum, _mm_add_epi32(_mm_load_si128(sum), _mm_madd_epi16(s_i16x8[r][g], ones)));
            }
    }
}

static void micro(
    const uint8_t *tile, size_t groups, const int8_t *a, size_t lda, int rows, int there, int32_t (*acc)[TM_TILE])
{
    for (int quarter = 0; quarter < tm_tile_parts(there, 4); quarter++) {
        if (rows == 2)
            quarter_by(2, quarter, tile, groups, a, lda, acc);
        else
            quarter_by(1, quarter, tile, groups, a, lda, acc);
    }
}

static void body(void *args, size_t begin, size_t end) { tm_matmul_tiles(args, begin, end, ROWS, micro); }

int tm_ternary_matmul_sse41(void *args) { return tm_matmul_run(args, body, TM_RANK(sse41)); }

TM_END
#endif
