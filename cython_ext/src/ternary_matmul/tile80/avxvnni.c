/* ternary_matmul of tile80 with AVX-VNNI, for processors with vpdpbusd and without AVX-512: the sums of avx512.c, with
 * the same bound on a chunk, on halves of a group.
 *
 * For each 32 bytes: 1 load, 10 additions, and for each row of activations 1 broadcast and 6 vpdpbusd. One row takes
 * both halves of a group at once, two rows one half: 12 sums, which hide the latency of vpdpbusd. */
#include "tile80.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avxvnni)
#include "../tiles_avxvnni.h"
#include "arrange_avx2.h"

enum { ROWS = 2, HALVES = 2 };

static inline void settle(int32_t *acc, const tm_lanes_i32x8 *u)
{
#pragma GCC unroll 5
    for (int i = 0; i < TM_TILE80_DIGITS; i++) {
        const __m256i one = (__m256i)u[i], three = _mm256_add_epi32(_mm256_add_epi32(one, one), one);
        const __m256i sum_i32x8 = _mm256_srai_epi32(_mm256_sub_epi32(three, (__m256i)u[i + 1]), 8);
        __m256i *to = (__m256i *)(acc + 16 * i);
        _mm256_store_si256(to, _mm256_add_epi32(_mm256_load_si256(to), sum_i32x8));
    }
}

/* `halves` halves of each group, from `first`, for `rows` rows of activations; rows * halves is 2. */
static inline __attribute__((always_inline)) void digits_by(
    const int rows, const int halves, int first, const enum tm_prefetch_level level, size_t ahead, const uint8_t *tile,
    size_t groups, const int8_t *a, size_t lda, int32_t (*acc)[TM_TILE80])
{
    const tm_lanes_i32x8 zero = {0};
    tm_lanes_i32x8 u[ROWS][HALVES][TM_TILE80_DIGITS + 1];
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int h = 0; h < halves; h++)
#pragma GCC unroll 6
            for (int i = 0; i <= TM_TILE80_DIGITS; i++)
                u[r][h][i] = zero;
    for (size_t k = 0; k < groups; k++) {
        const uint8_t *bytes = tile + k * TM_TILE + 32 * first;
        __m256i a_i8x32[ROWS];
        tm_prefetch_line(bytes, level, ahead);
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++)
            a_i8x32[r] = tm_tiles_four(a + (size_t)r * lda + 4 * k);
#pragma GCC unroll 2
        for (int h = 0; h < halves; h++) {
            __m256i q = _mm256_loadu_si256((const __m256i *)(bytes + 32 * h));
#pragma GCC unroll 6
            for (int i = 0; i <= TM_TILE80_DIGITS; i++) {
#pragma GCC unroll 2
                for (int r = 0; r < rows; r++)
                    u[r][h][i] = (tm_lanes_i32x8)_mm256_dpbusd_avx_epi32((__m256i)u[r][h][i], q, a_i8x32[r]);
                if (i < TM_TILE80_DIGITS)
                    q = tm_thrice(q);
            }
        }
    }
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int h = 0; h < halves; h++)
            settle(acc[r] + 8 * (first + h), u[r][h]);
}

static inline __attribute__((always_inline)) void tm_tile80_digits_by(
    const enum tm_prefetch_level level, size_t ahead, const uint8_t *tile, size_t groups, const int8_t *a, size_t lda,
    int rows, int32_t (*acc)[TM_TILE80])
{
    if (rows == 1) {
        digits_by(1, HALVES, 0, level, ahead, tile, groups, a, lda, acc);
    } else {
        digits_by(2, 1, 0, TM_PREFETCH_NONE, 0, tile, groups, a, lda, acc);
        digits_by(2, 1, 1, TM_PREFETCH_NONE, 0, tile, groups, a, lda, acc);
    }
}

#include "prefetched.h"

static void few(void *args, size_t begin, size_t end) { tm_tile80_tiles(args, begin, end, ROWS, tm_tile80_digits); }

static void many(void *args, size_t begin, size_t end)
{
    tm_matmul_arranged(args, begin, end, TM_TILES_ROWS, tm_tiles_micro, tm_tile80_arrange, 1);
}

int tm_ternary_matmul_tile80_avxvnni(void *args)
{
    return tm_tile80_run(args, TM_TILE80_FEW, few, many, TM_RANK(avxvnni));
}

TM_END
#endif
