/* The micro kernels over tile64 with AVX-512 VNNI; versions: docs/kernels/tile64_avx512.md. Included behind
 * TM_BEGIN(avx512). */
#ifndef TM_TILES_AVX512_H
#define TM_TILES_AVX512_H

#include "dot_avx512.h"
#include "tiles.h"

enum {
    TM_TILES_ROWS = 6, /* of activations at once: with four sums each, 24 of the 32 registers */
    TM_TILES_INTEL = 12, /* see tm_tiles_least */
};

/* Fewest rows of activations for which weights of another format are converted to tile64: 12 on Intel's cores, else
 * `elsewhere`. On Intel, shifts and shuffles use the two ports of vpdpbusd, and tile64 needs the fewest of them.
 * Compare both: docs/kernels/tile64_avx512.md. */
static inline size_t tm_tiles_least(size_t elsewhere)
{
    return __builtin_cpu_is("intel") ? (size_t)TM_TILES_INTEL : elsewhere;
}

static inline __m512i tm_tiles_four(const int8_t *a)
{
    int32_t word;
    memcpy(&word, a, sizeof word);
    return _mm512_set1_epi32(word);
}

static inline void tm_tiles_settle(int32_t *acc, __m512i u0, __m512i u1, __m512i u2, __m512i u3)
{
    __m512i a_i32x16[4] = {
        u0,
        _mm512_srai_epi32(_mm512_sub_epi32(u1, u0), 2),
        _mm512_srai_epi32(_mm512_sub_epi32(u2, u1), 4),
        _mm512_srai_epi32(_mm512_sub_epi32(u3, u2), 6),
    };
    for (int g = 0; g < 4; g++)
        _mm512_store_si512(acc + 16 * g, _mm512_add_epi32(_mm512_load_si512(acc + 16 * g), a_i32x16[g]));
}

/* Keeps a loaded vector in one register. Compilers otherwise fold the load into each use, or keep two copies. */
static inline __m512i tm_tiles_kept(__m512i v)
{
    __asm__("" : "+v"(v));
    return v;
}

/* The bits of w under a mask in memory: the sums leave no registers for masks. */
static inline __m512i tm_tiles_masked(__m512i w, const int32_t *mask)
{
    __m512i v;
    __asm__("vpandd %2%{1to16%}, %1, %0" : "=v"(v) : "v"(w), "m"(*mask));
    return v;
}

/* Adds the products of `rows` rows of activations under the nested masks. `rows` is a constant at each call, so that
 * the sums stay in registers. */
static inline __attribute__((always_inline)) void tm_tiles_groups_sums(
    const int rows, const enum tm_prefetch_level level, size_t ahead, const uint8_t *tile, size_t groups,
    const int8_t *a, size_t lda, __m512i u[TM_TILES_ROWS][4])
{
    static const int32_t masks[3] = {0x03030303, 0x0f0f0f0f, 0x3f3f3f3f};
    for (size_t k = 0; k < groups; k++) {
        const __m512i w = tm_tiles_kept(_mm512_loadu_si512(tile + k * TM_TILE));
        const __m512i w0 = tm_tiles_masked(w, masks), w1 = tm_tiles_masked(w, masks + 1),
                      w2 = tm_tiles_masked(w, masks + 2);
        tm_prefetch_line(tile + k * TM_TILE, level, ahead);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const __m512i a_i8x64 = tm_tiles_kept(tm_tiles_four(a + (size_t)r * lda + 4 * k));
            u[r][0] = tm_dot_64(u[r][0], w0, a_i8x64);
            u[r][1] = tm_dot_64(u[r][1], w1, a_i8x64);
            u[r][2] = tm_dot_64(u[r][2], w2, a_i8x64);
            u[r][3] = tm_dot_64(u[r][3], w, a_i8x64);
        }
    }
}

static inline __attribute__((always_inline)) void tm_tiles_groups_by(
    const int rows, const enum tm_prefetch_level level, size_t ahead, const uint8_t *tile, size_t groups,
    const int8_t *a, size_t lda, int32_t (*acc)[TM_TILE])
{
    __m512i u[TM_TILES_ROWS][4];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++)
            u[r][g] = _mm512_setzero_si512();
    tm_tiles_groups_sums(rows, level, ahead, tile, groups, a, lda, u);
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
        tm_tiles_settle(acc[r], u[r][0], u[r][1], u[r][2], u[r][3]);
}

/* Adds one group of one row to the sums under its masks. */
static inline __attribute__((always_inline)) void tm_tiles_one_group(
    const __m512i *masks, const uint8_t *bytes, const int8_t *a, __m512i *u)
{
    const __m512i w = _mm512_loadu_si512(bytes), a_i8x64 = tm_tiles_four(a);
#pragma GCC unroll 3
    for (int g = 0; g < 3; g++)
        u[g] = tm_dot_64(u[g], _mm512_and_si512(w, masks[g]), a_i8x64);
    u[3] = tm_dot_64(u[3], w, a_i8x64);
}

/* Adds the products of one row of activations to two sets of sums, from odd and even groups. */
static inline __attribute__((always_inline)) void tm_tiles_one_sums(
    const enum tm_prefetch_level level, size_t ahead, const uint8_t *tile, size_t groups, const int8_t *a,
    __m512i u[2][4])
{
    const __m512i masks[3] = {_mm512_set1_epi8(3), _mm512_set1_epi8(15), _mm512_set1_epi8(63)};
    size_t k = 0;
    for (; k + 2 <= groups; k += 2) {
#pragma GCC unroll 2
        for (size_t s = 0; s < 2; s++) {
            tm_prefetch_line(tile + (k + s) * TM_TILE, level, ahead);
            tm_tiles_one_group(masks, tile + (k + s) * TM_TILE, a + 4 * (k + s), u[s]);
        }
    }
    if (k < groups)
        tm_tiles_one_group(masks, tile + k * TM_TILE, a + 4 * k, u[0]);
}

static inline __attribute__((always_inline)) void tm_tiles_one_row(
    const enum tm_prefetch_level level, size_t ahead, const uint8_t *tile, size_t groups, const int8_t *a, int32_t *acc)
{
    __m512i u[2][4];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        u[i / 4][i % 4] = _mm512_setzero_si512();
    tm_tiles_one_sums(level, ahead, tile, groups, a, u);
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++)
        u[0][g] = _mm512_add_epi32(u[0][g], u[1][g]);
    tm_tiles_settle(acc, u[0][0], u[0][1], u[0][2], u[0][3]);
}

/* The last tile, if it has at most 16 rows: one field, so a quarter of the products. `sets` groups at a time:
 * independent sums hide the latency. */
static inline __attribute__((always_inline)) void tm_tiles_narrow_by(
    const int rows, const int sets, const uint8_t *tile, size_t groups, const int8_t *a, size_t lda,
    int32_t (*acc)[TM_TILE])
{
    const __m512i m3 = _mm512_set1_epi8(3);
    __m512i u[4][TM_TILES_ROWS];
#pragma GCC unroll 4
    for (int s = 0; s < sets; s++)
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++)
            u[s][r] = _mm512_setzero_si512();
    size_t k = 0;
    for (; k + (size_t)sets <= groups; k += (size_t)sets)
#pragma GCC unroll 4
        for (int s = 0; s < sets; s++) {
            const size_t at = k + (size_t)s;
            const __m512i w = _mm512_and_si512(_mm512_loadu_si512(tile + at * TM_TILE), m3);
#pragma GCC unroll 6
            for (int r = 0; r < rows; r++)
                u[s][r] = tm_dot_64(u[s][r], w, tm_tiles_four(a + (size_t)r * lda + 4 * at));
        }
    for (; k < groups; k++) {
        const __m512i w = _mm512_and_si512(_mm512_loadu_si512(tile + k * TM_TILE), m3);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++)
            u[0][r] = tm_dot_64(u[0][r], w, tm_tiles_four(a + (size_t)r * lda + 4 * k));
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        __m512i sum = _mm512_add_epi32(_mm512_load_si512(acc[r]), u[0][r]);
#pragma GCC unroll 3
        for (int s = 1; s < sets; s++)
            sum = _mm512_add_epi32(sum, u[s][r]);
        _mm512_store_si512(acc[r], sum);
    }
}

static __attribute__((noinline)) void tm_tiles_narrow(
    const uint8_t *tile, size_t groups, const int8_t *a, size_t lda, int rows, int32_t (*acc)[TM_TILE])
{
    switch (rows) {
    case 1: tm_tiles_narrow_by(1, 4, tile, groups, a, lda, acc); break;
    case 2: tm_tiles_narrow_by(2, 4, tile, groups, a, lda, acc); break;
    case 3: tm_tiles_narrow_by(3, 4, tile, groups, a, lda, acc); break;
    case 4: tm_tiles_narrow_by(4, 3, tile, groups, a, lda, acc); break;
    case 5: tm_tiles_narrow_by(5, 2, tile, groups, a, lda, acc); break;
    default: tm_tiles_narrow_by(6, 2, tile, groups, a, lda, acc); break;
    }
}

static inline __attribute__((always_inline)) void tm_tiles_micro_by(
    const enum tm_prefetch_level level, size_t ahead, const uint8_t *tile, size_t groups, const int8_t *a, size_t lda,
    int rows, int there, int32_t (*acc)[TM_TILE])
{
    if (there <= TM_TILE / 4) {
        tm_tiles_narrow(tile, groups, a, lda, rows, acc);
        return;
    }
    switch (rows) {
    case 1: tm_tiles_one_row(level, ahead, tile, groups, a, acc[0]); break;
    case 2: tm_tiles_groups_by(2, level, ahead, tile, groups, a, lda, acc); break;
    case 3: tm_tiles_groups_by(3, level, ahead, tile, groups, a, lda, acc); break;
    case 4: tm_tiles_groups_by(4, level, ahead, tile, groups, a, lda, acc); break;
    case 5: tm_tiles_groups_by(5, level, ahead, tile, groups, a, lda, acc); break;
    default: tm_tiles_groups_by(6, level, ahead, tile, groups, a, lda, acc); break;
    }
}

#include "tiles_prefetched.h"

#endif
