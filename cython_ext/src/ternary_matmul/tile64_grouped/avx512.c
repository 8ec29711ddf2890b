/* ternary_matmul of tile64 with a scale for each group, with AVX-512 VNNI: the loops of ../tiles_avx512.h, group by
 * group.
 *
 * Algorithm: sums under the nested masks begin with what subtracts the activations from each field (start_nested.h),
 * loaded in place of zeros, and with the bits of 1.5 * 2^23. So the integers are the bits of floats, and one float
 * subtraction takes the difference of two masks and converts it. Field f keeps its factor of 4^f up to the end of K: a
 * power of two changes no rounding. At the end of a group a row of activations then has 5 instructions for its parts,
 * and four products and additions with the scales, which up to six rows share.
 *
 * Limit: vpdpbusd and what shares its ports. Of a group of 64, one row of activations has 64 vpdpbusd and 13 further
 * vector instructions at the end of the group.
 *
 * Rates: `tritmark run --suite speed --op ternary_matmul --variant avx512`. Versions: docs/kernels/tile64_grouped.md. */
#include "tile64_grouped.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avx512)
#include "../tiles_avx512.h"
#define TM_GROUPED_BIAS 0x4b400000 /* 1.5 * 2^23 as a float: an integer up to 2^22 in magnitude is added to its bits */
#include "start_nested.h"

/* The scales of a tile's rows, 16 to a vector. */
static inline __attribute__((always_inline)) void scales_of(const uint8_t *scales, __m512 of[4])
{
#pragma GCC unroll 4
    for (int f = 0; f < 4; f++)
        of[f] = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(scales + 32 * f)));
}

/* Adds the scaled parts of a row of activations to its sums, which have units of 4^-f in field f. The sum under the
 * last mask may exceed 2^22, so its difference is one of integers. */
static inline __attribute__((always_inline)) void settle(float *sums, const __m512 scales[4], const __m512i u[4])
{
    const __m512 bias = _mm512_castsi512_ps(_mm512_set1_epi32(TM_GROUPED_BIAS));
    const __m512 parts[4] = {
        _mm512_sub_ps(_mm512_castsi512_ps(u[0]), bias),
        _mm512_sub_ps(_mm512_castsi512_ps(u[1]), _mm512_castsi512_ps(u[0])),
        _mm512_sub_ps(_mm512_castsi512_ps(u[2]), _mm512_castsi512_ps(u[1])),
        _mm512_cvtepi32_ps(_mm512_sub_epi32(u[3], u[2])),
    };
#pragma GCC unroll 4
    for (int f = 0; f < 4; f++) {
        const __m512 product = _mm512_mul_ps(scales[f], parts[f]);
        _mm512_store_ps(sums + 16 * f, _mm512_add_ps(_mm512_load_ps(sums + 16 * f), product));
    }
}

/* Brings the sums of a row to units of 1. */
static inline void same_units(float *sums)
{
    for (int f = 1; f < 4; f++) {
        const __m512 unit = _mm512_set1_ps(1.0f / (float)(1 << 2 * f));
        _mm512_store_ps(sums + 16 * f, _mm512_mul_ps(_mm512_load_ps(sums + 16 * f), unit));
    }
}

static inline __attribute__((always_inline)) void begin_at(const int32_t *starts, __m512i u[4])
{
#pragma GCC unroll 4
    for (int f = 0; f < 4; f++)
        u[f] = _mm512_set1_epi32(starts[f]);
}

static inline __attribute__((always_inline)) void one_row(
    const enum tm_prefetch_level level, size_t ahead, const tm_grouped_run *run, float *sums)
{
    const size_t steps = run->weights / 4, bytes = tm_grouped_bytes(run->weights);
    const uint8_t *scales = run->tile;
    for (size_t g = 0; g < run->count; g++, scales += bytes) {
        __m512i u[2][4];
        __m512 scale[4];
        begin_at(run->starts + g * TM_GROUPED_SUMS, u[0]);
#pragma GCC unroll 4
        for (int f = 0; f < 4; f++)
            u[1][f] = _mm512_setzero_si512();
        tm_prefetch_lines(scales, TM_GROUPED_SCALES, level, ahead);
        tm_tiles_one_sums(level, ahead, scales + TM_GROUPED_SCALES, steps, run->a + g * run->weights, u);
#pragma GCC unroll 4
        for (int f = 0; f < 4; f++)
            u[0][f] = _mm512_add_epi32(u[0][f], u[1][f]);
        scales_of(scales, scale);
        settle(tm_grouped_sums_at(sums), scale, u[0]);
    }
}

/* `rows` is a constant at each call, so that the sums stay in registers. */
static inline __attribute__((always_inline)) void rows_by(
    const int rows, const enum tm_prefetch_level level, size_t ahead, const tm_grouped_run *run, float (*sums)[TM_TILE])
{
    const size_t steps = run->weights / 4, bytes = tm_grouped_bytes(run->weights);
    const uint8_t *scales = run->tile;
    for (size_t g = 0; g < run->count; g++, scales += bytes) {
        __m512i u[TM_TILES_ROWS][4];
        __m512 scale[4];
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++)
            begin_at(run->starts + (size_t)r * run->starts_apart + g * TM_GROUPED_SUMS, u[r]);
        tm_prefetch_lines(scales, TM_GROUPED_SCALES, level, ahead);
        tm_tiles_groups_sums(
            rows, level, ahead, scales + TM_GROUPED_SCALES, steps, run->a + g * run->weights, run->lda, u);
        scales_of(scales, scale);
        float *const to = tm_grouped_sums_at(sums[0]);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++)
            settle(to + r * TM_TILE, scale, u[r]);
    }
}

static inline __attribute__((always_inline)) void tm_grouped_micro_by(
    const enum tm_prefetch_level level, size_t ahead, const tm_grouped_run *run, int rows, float (*sums)[TM_TILE])
{
    switch (rows) {
    case 1: one_row(level, ahead, run, sums[0]); break;
    case 2: rows_by(2, level, ahead, run, sums); break;
    case 3: rows_by(3, level, ahead, run, sums); break;
    case 4: rows_by(4, level, ahead, run, sums); break;
    case 5: rows_by(5, level, ahead, run, sums); break;
    default: rows_by(6, level, ahead, run, sums); break;
    }
}

#define TM_GROUPED_LAST same_units
#include "kernel.h"

int tm_ternary_matmul_tile64_grouped_avx512(void *args)
{
    return tm_grouped_run_by(args, begins, body, TM_RANK(avx512));
}

TM_END
#endif
