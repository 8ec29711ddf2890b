/* ternary_matmul of i2_s_x86 with AVX-512 VNNI: two blocks at a time, 32 activations of each beside one another; 4 rows of weights share what is
 * loaded of the activations.
 *
 * One row of activations: codes stay where they are in their bytes, w & 3, w & 12, w & 48 and w & 192, and the four sums of a row come down by
 * their shifts at the end. For each 64 bytes 1 load, 4 ands and 4 vpdpbusd, and 16 sums, which hide vpdpbusd's latency. A lane's sum of w & 192 is
 * at most 64 * 2 * 128 * 4 in magnitude for each two blocks, so it fits int32 while K < 2^23. Several rows: 3 shifts more for each 64 bytes,
 * since 16 sums are all that fit; they are shared by the rows of activations. */
#include "i2_s_x86.h"

#if TM_X86
TM_BEGIN(avx512)

static inline __m512i halves(const int8_t *low, const int8_t *high)
{
    return _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)low)), _mm256_loadu_si256((const __m256i *)high), 1);
}

/* Compilers fold a load into each of several uses, which makes it four of them; some cores have one such load a cycle. */
static inline __m512i loaded(const uint8_t *bytes)
{
    __m512i w = _mm512_loadu_si512(bytes);
    __asm__("" : "+v"(w));
    return w;
}

static inline __m512i half(const void *low) { return _mm512_zextsi256_si512(_mm256_loadu_si256((const __m256i *)low)); }

static inline void one_row(const uint8_t *const *rows, const int8_t *a, size_t K, int32_t *acc)
{
    const size_t blocks = K / TM_I2_S_BLOCK;
    const __m512i masks[4] = {_mm512_set1_epi8((char)192), _mm512_set1_epi8(48), _mm512_set1_epi8(12), _mm512_set1_epi8(3)};
    __m512i s_i32x16[TM_ROWS][4];
#pragma GCC unroll 4
    for (int r = 0; r < TM_ROWS; r++)
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++)
            s_i32x16[r][g] = _mm512_setzero_si512();
    size_t k = 0;
    for (; k + 2 <= blocks; k += 2) {
        __m512i w[TM_ROWS];
#pragma GCC unroll 4
        for (int r = 0; r < TM_ROWS; r++)
            w[r] = loaded(rows[r] + k * TM_I2_S_BYTES);
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) {
            const int8_t *at = a + k * TM_I2_S_BLOCK + 32 * g;
            const __m512i x = halves(at, at + TM_I2_S_BLOCK);
#pragma GCC unroll 4
            for (int r = 0; r < TM_ROWS; r++)
                s_i32x16[r][g] = _mm512_dpbusd_epi32(s_i32x16[r][g], _mm512_and_si512(w[r], masks[g]), x);
        }
    }
    if (k < blocks) /* the last of an odd number, beside zeros */
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) {
            const __m512i x = half(a + k * TM_I2_S_BLOCK + 32 * g);
#pragma GCC unroll 4
            for (int r = 0; r < TM_ROWS; r++)
                s_i32x16[r][g] = _mm512_dpbusd_epi32(s_i32x16[r][g], _mm512_and_si512(half(rows[r] + k * TM_I2_S_BYTES), masks[g]), x);
        }
#pragma GCC unroll 4
    for (int r = 0; r < TM_ROWS; r++) {
        __m512i sum = s_i32x16[r][3];
#pragma GCC unroll 3
        for (int g = 0; g < 3; g++)
            sum = _mm512_add_epi32(sum, _mm512_srai_epi32(s_i32x16[r][g], (unsigned)(6 - 2 * g)));
        acc[r] = _mm512_reduce_add_epi32(sum);
    }
}

/* `count` is a constant at each call, so that the sums stay in registers. */
static inline __attribute__((always_inline)) void blocks_by(
    const int count, const uint8_t *const *rows, const int8_t *a, size_t lda, size_t K, int32_t (*acc)[TM_ROWS])
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
            w[r] = loaded(rows[r] + k * TM_I2_S_BYTES);
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) {
            __m512i c[TM_ROWS];
#pragma GCC unroll 4
            for (int r = 0; r < TM_ROWS; r++)
                c[r] = _mm512_and_si512(_mm512_srli_epi16(w[r], (unsigned)(6 - 2 * g)), m3);
#pragma GCC unroll 4
            for (int m = 0; m < count; m++) {
                const int8_t *at = a + (size_t)m * lda + k * TM_I2_S_BLOCK + 32 * g;
                const __m512i x = halves(at, at + TM_I2_S_BLOCK);
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
                const __m512i c = _mm512_and_si512(_mm512_srli_epi16(half(rows[r] + k * TM_I2_S_BYTES), (unsigned)(6 - 2 * g)), m3);
#pragma GCC unroll 4
                for (int m = 0; m < count; m++)
                    s_i32x16[m][r] = _mm512_dpbusd_epi32(s_i32x16[m][r], c, half(a + (size_t)m * lda + k * TM_I2_S_BLOCK + 32 * g));
            }
#pragma GCC unroll 4
    for (int m = 0; m < count; m++)
#pragma GCC unroll 4
        for (int r = 0; r < TM_ROWS; r++)
            acc[m][r] = _mm512_reduce_add_epi32(s_i32x16[m][r]);
}

static void micro(const uint8_t *const *rows, const int8_t *a, size_t lda, int count, size_t K, int32_t (*acc)[TM_ROWS])
{
    switch (count) {
    case 1: one_row(rows, a, K, acc[0]); break;
    case 2: blocks_by(2, rows, a, lda, K, acc); break;
    case 3: blocks_by(3, rows, a, lda, K, acc); break;
    default: blocks_by(4, rows, a, lda, K, acc); break;
    }
}

static void body(void *args, size_t begin, size_t end)
{
    tm_matmul_rows(args, begin, end, ((const tm_ternary_matmul_args *)args)->K / 4, TM_MATMUL_BLOCK, micro);
}

int tm_ternary_matmul_i2_s_x86_avx512(void *args) { return tm_matmul_rows_run(args, body, TM_RANK(avx512)); }

TM_END
#endif
