/* One row of activations times i2_s_x86 with vpdpbusd, row after row of the weights: with AVX-VNNI, and with AVX-512
 * for long rows. Included behind TM_BEGIN and the sums of one of them.
 *
 * Codes stay in place, w & 3, w & 12, w & 48 and w & 192, and a row's sums are shifted down at the end: for each 32
 * bytes 4 ands and 4 vpdpbusd. A lane of the sum of w & 192 grows by 4 * 128 * -128 = -2^16 at most for each block, so
 * it fits int32 over the 2^13 blocks of a chunk. */
#ifndef TM_I2_S_X86_ROW_AFTER_ROW_H
#define TM_I2_S_X86_ROW_AFTER_ROW_H

#include "../rows_avx2.h"

enum {
    TM_I2_S_CHUNK = 1 << 20, /* weights of a row between two shifts of the sums */
    TM_I2_S_SETS = 2, /* sets of sums: a block takes four vpdpbusd, as many cycles as the latency of one */
};

/* A block of a row; the codes of field g are added to s[g]. */
static inline __attribute__((always_inline)) void tm_i2_s_add_block(tm_dots s[4], const uint8_t *bytes, const int8_t *x)
{
    const __m256i masks[4] = {
        _mm256_set1_epi8((char)192), _mm256_set1_epi8(48), _mm256_set1_epi8(12), _mm256_set1_epi8(3)};
    const __m256i w = _mm256_loadu_si256((const __m256i *)bytes);
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++)
        s[g] = tm_dots_added(s[g], _mm256_and_si256(w, masks[g]), _mm256_loadu_si256((const __m256i *)(x + 32 * g)));
}

static inline __attribute__((always_inline)) int32_t
tm_i2_s_row(const enum tm_prefetch_level level, size_t ahead, const uint8_t *row, const int8_t *x, size_t K)
{
    const tm_dots zero = {0};
    tm_dots s[TM_I2_S_SETS][4];
    __m256i sum = _mm256_setzero_si256();
    for (size_t begin = 0; begin < K; begin += TM_I2_S_CHUNK) {
        const size_t end = K - begin < TM_I2_S_CHUNK ? K : begin + TM_I2_S_CHUNK;
#pragma GCC unroll 2
        for (int set = 0; set < TM_I2_S_SETS; set++)
#pragma GCC unroll 4
            for (int g = 0; g < 4; g++)
                s[set][g] = zero;
        size_t k = begin;
        for (; k + TM_I2_S_SETS * TM_I2_S_BLOCK <= end; k += TM_I2_S_SETS * TM_I2_S_BLOCK) {
            tm_prefetch_line(row + k / 4, level, ahead);
#pragma GCC unroll 2
            for (int set = 0; set < TM_I2_S_SETS; set++)
                tm_i2_s_add_block(s[set], row + k / 4 + set * TM_I2_S_BYTES, x + k + set * TM_I2_S_BLOCK);
        }
        if (k < end)
            tm_i2_s_add_block(s[0], row + k / 4, x + k);
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++)
            sum = _mm256_add_epi32(sum, _mm256_srai_epi32(tm_dots_sum(s[0][g] + s[1][g]), 6 - 2 * g));
    }
    return tm_sum_of(sum);
}

static inline __attribute__((always_inline)) void tm_i2_s_row_after_row(
    const enum tm_prefetch_level level, size_t ahead, const uint8_t *const *rows, const int8_t *x, size_t K,
    int32_t *acc)
{
    for (int r = 0; r < TM_ROWS; r++)
        acc[r] = tm_i2_s_row(level, ahead, rows[r], x, K);
}

#endif
