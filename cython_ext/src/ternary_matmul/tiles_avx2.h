/* The micro kernels over tile64 with AVX2; see avx2.c and docs/kernels/tile64_avx512.md. Included behind TM_BEGIN. */
#ifndef TM_TILES_AVX2_H
#define TM_TILES_AVX2_H

#include "tiles.h"

enum {
    TM_TILES_FLUSH = 64,
    TM_TILES_NEAR = 128, /* groups whose 8 KiB of weights stay in L1 for the four passes over them */
    TM_TILES_ROWS = 5    /* of activations at once: two sums each, 10 of the 16 registers */
};

/* GCC 12 keeps two copies of sums of type __m256i, as int64 lanes and as the int16 lanes that are added, and spills. */
typedef int16_t tm_lanes_i16x16 __attribute__((vector_size(32)));

static inline __m256i tm_tiles_four(const int8_t *a)
{
    int32_t word;
    memcpy(&word, a, sizeof word);
    return _mm256_set1_epi32(word);
}

/* Adds 16 int16 sums, two for each of 8 rows, to int32 sums. */
static inline void tm_tiles_add_to(int32_t *acc, __m256i s_i16x16, __m256i ones)
{
    __m256i *sum = (__m256i *)acc;
    _mm256_store_si256(sum, _mm256_add_epi32(_mm256_load_si256(sum), _mm256_madd_epi16(s_i16x16, ones)));
}

/* Adds the products of one row of activations and all fields of groups [begin, end): 8 sums. */
static inline __attribute__((always_inline)) void tm_tiles_one_sums(
    const enum tm_prefetch_level level, size_t ahead, const uint8_t *tile, size_t begin, size_t end, const int8_t *a,
    __m256i s_i16x16[2][4])
{
    const __m256i m3 = _mm256_set1_epi8(3);
    for (size_t k = begin; k < end; k++) {
        const uint8_t *bytes = tile + k * TM_TILE;
        const __m256i a_i8x32 = tm_tiles_four(a + 4 * k);
        tm_prefetch_line(bytes, level, ahead);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            const __m256i w = _mm256_loadu_si256((const __m256i *)(bytes + 32 * h));
#pragma GCC unroll 4
            for (int g = 0; g < 4; g++)
                s_i16x16[h][g] = _mm256_add_epi16(
                    s_i16x16[h][g], _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(w, 2 * g), m3), a_i8x32));
        }
    }
}

/* One row of activations and all fields of a group. It is not inlined: among the other loops GCC 12 keeps two
 * of its values on the stack and does not align its loop, which is slower in the caches and from memory. */
static __attribute__((noinline)) void tm_tiles_one_row(
    const enum tm_prefetch_level level, size_t ahead, const uint8_t *tile, size_t groups, const int8_t *a, int32_t *acc)
{
    const __m256i ones = _mm256_set1_epi16(1);
    for (size_t begin = 0; begin < groups; begin += TM_TILES_FLUSH) {
        const size_t end = groups - begin < TM_TILES_FLUSH ? groups : begin + TM_TILES_FLUSH;
        __m256i s_i16x16[2][4];
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            s_i16x16[i / 4][i % 4] = _mm256_setzero_si256();
        tm_tiles_one_sums(level, ahead, tile, begin, end, a, s_i16x16);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            tm_tiles_add_to(acc + 16 * (i % 4) + 8 * (i / 4), s_i16x16[i / 4][i % 4], ones);
    }
}

/* Adds the products of `rows` rows of activations and fields 2 * pair and 2 * pair + 1 of half `half` of groups [begin,
 * end) to s_i16x16[rows][2]. A macro over the names of the functions that use it: around an inlined function GCC 12
 * keeps more addresses on the stack, and tile64 was up to 3 % slower. */
#define TM_TILES_ADD_FIELDS(tile, begin, end, a) \
    for (size_t k = (begin); k < (end); k++) { \
        const uint8_t *bytes = (tile) + k * TM_TILE + 32 * half; \
        const __m256i w = _mm256_loadu_si256((const __m256i *)bytes); \
        const __m256i c[2] = { \
            _mm256_and_si256(_mm256_srli_epi16(w, 4 * pair), m3), \
            _mm256_and_si256(_mm256_srli_epi16(w, 4 * pair + 2), m3), \
        }; \
        tm_prefetch_line(bytes, level, ahead); \
        TM_PRAGMA(GCC unroll 5) \
        for (int r = 0; r < rows; r++) { \
            const __m256i a_i8x32 = tm_tiles_four((a) + (size_t)r * lda + 4 * k); \
            TM_PRAGMA(GCC unroll 2) \
            for (int g = 0; g < 2; g++) \
                s_i16x16[r][g] += (tm_lanes_i16x16)_mm256_maddubs_epi16(c[g], a_i8x32); \
        } \
    }

/* Fields 2 * pair and 2 * pair + 1 of half `half` of each group. `rows` and `pair` are constants at each call, so that
 * sums stay in registers and shifts are immediates. */
static inline __attribute__((always_inline)) void tm_tiles_fields_by(
    const int rows, const int pair, int half, const enum tm_prefetch_level level, size_t ahead, const uint8_t *tile,
    size_t groups, const int8_t *a, size_t lda, int32_t (*acc)[TM_TILE])
{
    const __m256i m3 = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1);
    for (size_t begin = 0; begin < groups; begin += TM_TILES_FLUSH) {
        const size_t end = groups - begin < TM_TILES_FLUSH ? groups : begin + TM_TILES_FLUSH;
        tm_lanes_i16x16 s_i16x16[TM_TILES_ROWS][2];
#pragma GCC unroll 5
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int g = 0; g < 2; g++)
                s_i16x16[r][g] = (tm_lanes_i16x16){0};
        TM_TILES_ADD_FIELDS(tile, begin, end, a)
#pragma GCC unroll 5
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int g = 0; g < 2; g++)
                tm_tiles_add_to(acc[r] + 16 * (2 * pair + g) + 8 * half, (__m256i)s_i16x16[r][g], ones);
    }
}

/* The first of the four passes prefetches the weights; each pass takes a quarter of the sums. Sums past the last row of
 * weights are left out. */
static inline __attribute__((always_inline)) void tm_tiles_rows_by(
    const int rows, const enum tm_prefetch_level level, size_t ahead, const uint8_t *tile, size_t groups,
    const int8_t *a, size_t lda, int there, int32_t (*acc)[TM_TILE])
{
    const int second_pair = there > TM_TILE / 2, second_half = tm_tile_parts(there, 2) > 1;
    for (size_t k = 0; k < groups; k += TM_TILES_NEAR) {
        const size_t near = groups - k < TM_TILES_NEAR ? groups - k : TM_TILES_NEAR;
        tm_tiles_fields_by(rows, 0, 0, level, ahead, tile + k * TM_TILE, near, a + 4 * k, lda, acc);
        if (second_pair)
            tm_tiles_fields_by(rows, 1, 0, TM_PREFETCH_NONE, 0, tile + k * TM_TILE, near, a + 4 * k, lda, acc);
        if (second_half)
            tm_tiles_fields_by(rows, 0, 1, TM_PREFETCH_NONE, 0, tile + k * TM_TILE, near, a + 4 * k, lda, acc);
        if (second_pair)
            tm_tiles_fields_by(rows, 1, 1, TM_PREFETCH_NONE, 0, tile + k * TM_TILE, near, a + 4 * k, lda, acc);
    }
}

static inline __attribute__((always_inline)) void tm_tiles_micro_by(
    const enum tm_prefetch_level level, size_t ahead, const uint8_t *tile, size_t groups, const int8_t *a, size_t lda,
    int rows, int there, int32_t (*acc)[TM_TILE])
{
    switch (rows) {
    case 1: tm_tiles_one_row(level, ahead, tile, groups, a, acc[0]); break;
    case 2: tm_tiles_rows_by(2, level, ahead, tile, groups, a, lda, there, acc); break;
    case 3: tm_tiles_rows_by(3, level, ahead, tile, groups, a, lda, there, acc); break;
    case 4: tm_tiles_rows_by(4, level, ahead, tile, groups, a, lda, there, acc); break;
    default: tm_tiles_rows_by(5, level, ahead, tile, groups, a, lda, there, acc); break;
    }
}

#include "tiles_prefetched.h"

#endif
