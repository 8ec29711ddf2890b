/* ternary_matmul of tile80 with AVX2.
 *
 * One or two rows of activations: each digit is multiplied by its activations with maddubs, into int16 sums, of which
 * 64 fit (../avx2.c). Half of a group at a time, so that five sums a row stay in registers; the second half of 64
 * groups comes from L1. More rows: weights are converted to tile64, which is faster.
 *
 * Limit: decoding. A digit takes four instructions, the step to the next two more: for 32 bytes and 160 weights 28, and
 * 10 for each row, while tile64 takes 7 and 8 for 128. So a Zen 3 core decodes less than it reads, and tile64 is
 * faster.
 *
 * Rates: `python suites/performance/gemv.py --no-peers --beside tile80 --variant avx2`. Page:
 * docs/kernels/tile80.md. */
#include "tile80.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avx2)
#include "../tiles_avx2.h"
#include "arrange_avx2.h"

enum { ROWS = TM_TILE80_FEW_AVX2 };

/* Half `half` of each group. `rows` is a constant at each call, so that sums stay in registers. */
static inline __attribute__((always_inline)) void half_by(
    const int rows, int half, const enum tm_prefetch_level level, size_t ahead, const uint8_t *tile, size_t groups,
    const int8_t *a, size_t lda, int32_t (*acc)[TM_TILE80])
{
    const __m256i ones = _mm256_set1_epi16(1);
    tm_lanes_i16x16 s_i16x16[ROWS][TM_TILE80_DIGITS];
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 5
        for (int i = 0; i < TM_TILE80_DIGITS; i++)
            s_i16x16[r][i] = (tm_lanes_i16x16){0};
    for (size_t k = 0; k < groups; k++) {
        const uint8_t *bytes = tile + k * TM_TILE + 32 * half;
        __m256i q = tm_tile80_biased(bytes), a_i8x32[ROWS];
        tm_prefetch_line(bytes, level, ahead);
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++)
            a_i8x32[r] = tm_tiles_four(a + (size_t)r * lda + 4 * k);
#pragma GCC unroll 5
        for (int i = 0; i < TM_TILE80_DIGITS; i++) {
            const __m256i code = tm_digit_taken(&q);
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++)
                s_i16x16[r][i] += (tm_lanes_i16x16)_mm256_maddubs_epi16(code, a_i8x32[r]);
        }
    }
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 5
        for (int i = 0; i < TM_TILE80_DIGITS; i++)
            tm_tiles_add_to(acc[r] + 16 * i + 8 * half, (__m256i)s_i16x16[r][i], ones);
}

static inline __attribute__((always_inline)) void tm_tile80_digits_by(
    const enum tm_prefetch_level level, size_t ahead, const uint8_t *tile, size_t groups, const int8_t *a, size_t lda,
    int rows, int32_t (*acc)[TM_TILE80])
{
    for (size_t k = 0; k < groups; k += TM_TILES_FLUSH) {
        const size_t near = groups - k < TM_TILES_FLUSH ? groups - k : TM_TILES_FLUSH;
        const uint8_t *bytes = tile + k * TM_TILE;
        if (rows == 1) {
            half_by(1, 0, level, ahead, bytes, near, a + 4 * k, lda, acc);
            half_by(1, 1, TM_PREFETCH_NONE, 0, bytes, near, a + 4 * k, lda, acc);
        } else {
            half_by(2, 0, level, ahead, bytes, near, a + 4 * k, lda, acc);
            half_by(2, 1, TM_PREFETCH_NONE, 0, bytes, near, a + 4 * k, lda, acc);
        }
    }
}

#include "prefetched.h"

static void few(void *args, size_t begin, size_t end) { tm_tile80_tiles(args, begin, end, ROWS, tm_tile80_digits); }

static void many(void *args, size_t begin, size_t end)
{
    tm_matmul_arranged(args, begin, end, TM_TILES_ROWS, tm_tiles_micro, tm_tile80_arrange, 1);
}

int tm_ternary_matmul_tile80_avx2(void *args) { return tm_tile80_run(args, ROWS, few, many, TM_RANK(avx2)); }

TM_END
#endif
