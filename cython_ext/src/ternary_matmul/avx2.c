/* ternary_matmul with AVX2: each code is shifted out and goes with its activations through maddubs into int16 sums.
 *
 * A maddubs adds at most 2 * 2 * 128 = 512 in magnitude, so 64 of them fit int16 (the lowest sum is exactly -32768,
 * the highest 32512); then pmaddwd by 1 moves them to int32. 32 bytes are half of a group: 8 of each 16 rows. */
#include "ternary_matmul.h"

#if TM_X86
TM_BEGIN(avx2)

enum { FLUSH = 64, ROWS = 2 };

static inline __m256i four(const int8_t *a)
{
    int32_t word;
    memcpy(&word, a, sizeof word);
    return _mm256_set1_epi32(word);
}

/* `halves` halves of each group from `first` on, for `rows` rows of activations; rows * halves is 2, which takes 8
 * of the 16 registers. */
static inline __attribute__((always_inline)) void halves_by(
    const int rows, const int halves, int first, int fetch, const uint8_t *tile, size_t groups, const int8_t *a,
    size_t lda, int32_t (*acc)[TM_TILE])
{
    const __m256i m3 = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1);
    for (size_t begin = 0; begin < groups; begin += FLUSH) {
        const size_t end = groups - begin < FLUSH ? groups : begin + FLUSH;
        __m256i s_i16x16[ROWS][2][4];
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int h = 0; h < halves; h++)
#pragma GCC unroll 4
                for (int g = 0; g < 4; g++)
                    s_i16x16[r][h][g] = _mm256_setzero_si256();
        for (size_t k = begin; k < end; k++) {
            const uint8_t *bytes = tile + k * TM_TILE + 32 * first;
            if (halves == 2)
                tm_ahead(bytes, fetch);
#pragma GCC unroll 2
            for (int h = 0; h < halves; h++) {
                const __m256i w = _mm256_loadu_si256((const __m256i *)(bytes + 32 * h));
                const __m256i c[4] = {
                    _mm256_and_si256(w, m3),
                    _mm256_and_si256(_mm256_srli_epi16(w, 2), m3),
                    _mm256_and_si256(_mm256_srli_epi16(w, 4), m3),
                    _mm256_and_si256(_mm256_srli_epi16(w, 6), m3),
                };
#pragma GCC unroll 2
                for (int r = 0; r < rows; r++) {
                    const __m256i a_i8x32 = four(a + (size_t)r * lda + 4 * k);
#pragma GCC unroll 4
                    for (int g = 0; g < 4; g++)
                        s_i16x16[r][h][g] = _mm256_add_epi16(s_i16x16[r][h][g], _mm256_maddubs_epi16(c[g], a_i8x32));
                }
            }
        }
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int h = 0; h < halves; h++)
#pragma GCC unroll 4
                for (int g = 0; g < 4; g++) {
                    __m256i *sum = (__m256i *)(acc[r] + 16 * g + 8 * (first + h));
                    _mm256_store_si256(
                        sum, _mm256_add_epi32(_mm256_load_si256(sum), _mm256_madd_epi16(s_i16x16[r][h][g], ones)));
                }
    }
}

static void micro(const uint8_t *tile, size_t groups, const int8_t *a, size_t lda, int rows, int32_t (*acc)[TM_TILE])
{
    if (rows == 1) {
        halves_by(1, 2, 0, tm_fetches_ahead(), tile, groups, a, lda, acc);
    } else {
        halves_by(2, 1, 0, 0, tile, groups, a, lda, acc);
        halves_by(2, 1, 1, 0, tile, groups, a, lda, acc);
    }
}

static void body(void *args, size_t begin, size_t end) { tm_matmul_tiles(args, begin, end, ROWS, micro); }

int tm_ternary_matmul_avx2(void *args) { return tm_matmul_run(args, body, TM_RANK(avx2)); }

TM_END
#endif
