/* The micro kernels over tile64 with AVX-VNNI; see avxvnni.c. Included behind TM_BEGIN(avxvnni). */
#ifndef TM_TILES_AVXVNNI_H
#define TM_TILES_AVXVNNI_H

#include "tiles.h"

enum { TM_TILES_ROWS = 2 };

/* GCC 12 keeps two copies of sums of type __m256i, as int64 lanes and as the int32 lanes that vpdpbusd takes, and
 * spills. */
typedef int32_t tm_lanes_i32x8 __attribute__((vector_size(32)));

static inline __m256i tm_tiles_four(const int8_t *a)
{
    int32_t word;
    memcpy(&word, a, sizeof word);
    return _mm256_set1_epi32(word);
}

static inline __attribute__((always_inline)) tm_lanes_i32x8 tm_tiles_dot(tm_lanes_i32x8 u, __m256i w, __m256i a)
{
    return (tm_lanes_i32x8)_mm256_dpbusd_avx_epi32((__m256i)u, w, a);
}

/* Adds (u - below) >> shift; `below` is the sum under the next smaller mask. */
static inline void tm_tiles_settle(int32_t *acc, tm_lanes_i32x8 u, tm_lanes_i32x8 below, int shift)
{
    const __m256i a_i32x8 = _mm256_srai_epi32(_mm256_sub_epi32((__m256i)u, (__m256i)below), shift);
    _mm256_store_si256((__m256i *)acc, _mm256_add_epi32(_mm256_load_si256((__m256i *)acc), a_i32x8));
}

/* Adds the products of `rows` rows of activations and `halves` halves of each group, from `first`, under the nested
 * masks; rows * halves is 2. */
static inline __attribute__((always_inline)) void tm_tiles_halves_sums(
    const int rows, const int halves, int first, const enum tm_prefetch_level level, size_t ahead, const uint8_t *tile,
    size_t groups, const int8_t *a, size_t lda, tm_lanes_i32x8 u[TM_TILES_ROWS][2][4])
{
    const __m256i m[3] = {_mm256_set1_epi8(3), _mm256_set1_epi8(15), _mm256_set1_epi8(63)};
    for (size_t k = 0; k < groups; k++) {
        const uint8_t *bytes = tile + k * TM_TILE + 32 * first;
        __m256i a_i8x32[TM_TILES_ROWS];
        tm_prefetch_line(bytes, level, ahead);
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++)
            a_i8x32[r] = tm_tiles_four(a + (size_t)r * lda + 4 * k);
#pragma GCC unroll 2
        for (int h = 0; h < halves; h++) {
            const __m256i w = _mm256_loadu_si256((const __m256i *)(bytes + 32 * h));
#pragma GCC unroll 4
            for (int g = 0; g < 4; g++) {
                const __m256i masked = g < 3 ? _mm256_and_si256(w, m[g]) : w;
#pragma GCC unroll 2
                for (int r = 0; r < rows; r++)
                    u[r][h][g] = tm_tiles_dot(u[r][h][g], masked, a_i8x32[r]);
            }
        }
    }
}

/* `halves` halves of each group, from `first`, for `rows` rows of activations. */
static inline __attribute__((always_inline)) void tm_tiles_halves_by(
    const int rows, const int halves, int first, const enum tm_prefetch_level level, size_t ahead, const uint8_t *tile,
    size_t groups, const int8_t *a, size_t lda, int32_t (*acc)[TM_TILE])
{
    const tm_lanes_i32x8 zero = {0};
    tm_lanes_i32x8 u[TM_TILES_ROWS][2][4];
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int h = 0; h < halves; h++)
#pragma GCC unroll 4
            for (int g = 0; g < 4; g++)
                u[r][h][g] = zero;
    tm_tiles_halves_sums(rows, halves, first, level, ahead, tile, groups, a, lda, u);
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int h = 0; h < halves; h++)
#pragma GCC unroll 4
            for (int g = 0; g < 4; g++)
                tm_tiles_settle(acc[r] + 16 * g + 8 * (first + h), u[r][h][g], g ? u[r][h][g - 1] : zero, 2 * g);
}

/* The last tile, if it has at most 16 rows: the first field of a half of each group. Four groups at a time: independent
 * sums hide the latency. */
static inline __attribute__((always_inline)) void tm_tiles_narrow_by(
    const int rows, int half, const uint8_t *tile, size_t groups, const int8_t *a, size_t lda, int32_t (*acc)[TM_TILE])
{
    enum { SETS = 4 };
    const __m256i m3 = _mm256_set1_epi8(3);
    const tm_lanes_i32x8 zero = {0};
    tm_lanes_i32x8 u[SETS][TM_TILES_ROWS];
#pragma GCC unroll 4
    for (int s = 0; s < SETS; s++)
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++)
            u[s][r] = zero;
    for (size_t k = 0; k < groups; k += SETS)
#pragma GCC unroll 4
        for (int s = 0; s < SETS; s++) {
            if (k + (size_t)s >= groups)
                break;
            const uint8_t *bytes = tile + (k + (size_t)s) * TM_TILE + 32 * half;
            const __m256i w = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)bytes), m3);
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++)
                u[s][r] = tm_tiles_dot(u[s][r], w, tm_tiles_four(a + (size_t)r * lda + 4 * (k + (size_t)s)));
        }
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++)
        tm_tiles_settle(acc[r] + 8 * half, u[0][r] + u[1][r] + u[2][r] + u[3][r], zero, 0);
}

static __attribute__((unused)) void tm_tiles_micro(
    const uint8_t *tile, size_t groups, const int8_t *a, size_t lda, int rows, int there, int32_t (*acc)[TM_TILE])
{
    if (there <= TM_TILE / 4) {
        for (int half = 0; half < tm_tile_parts(there, 2); half++)
            if (rows > 1)
                tm_tiles_narrow_by(2, half, tile, groups, a, lda, acc);
            else
                tm_tiles_narrow_by(1, half, tile, groups, a, lda, acc);
        return;
    }
    if (rows > 1) {
        tm_tiles_halves_by(2, 1, 0, TM_PREFETCH_NONE, 0, tile, groups, a, lda, acc);
        tm_tiles_halves_by(2, 1, 1, TM_PREFETCH_NONE, 0, tile, groups, a, lda, acc);
        return;
    }
    TM_PREFETCHED(tm_tiles_prefetch(), tm_tiles_halves_by(1, 2, 0, level, ahead, tile, groups, a, lda, acc));
}

#endif
