/* ternary_matmul of tile64 with a scale for each group, with AVX2: the loops of ../tiles_avx2.h, group by group.
 *
 * Algorithm: int16 sums begin with minus the sums of their activations. The sum of a group of 256 is then one of 128
 * products by weights from -1 to 2 in each lane, which int16 holds (dots_maddubs.h), so a group needs one pmaddwd.
 *
 * Limit: the vector ports. A group of 64 adds 6 instructions for each 8 rows of weights to the 60 of tile64.
 *
 * Rates: `tritmark run --suite speed --op ternary_matmul --variant avx2`. Versions: docs/kernels/tile64_grouped.md. */
#include "tile64_grouped.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avx2)
#include "../dots_maddubs.h"
#include "../tiles_avx2.h"

enum { TM_GROUPED_SUMS = 1 };

static inline void tm_grouped_start(const int8_t *x, size_t weights, int32_t *to) { *to = tm_dots_start(x, weights); }

/* Adds the scaled parts of 8 rows of weights to their sums. */
static inline __attribute__((always_inline)) void settle(float *sums, __m256 scales, __m256i s_i16x16, __m256i ones)
{
    const __m256 parts = _mm256_cvtepi32_ps(_mm256_madd_epi16(s_i16x16, ones));
    _mm256_store_ps(sums, _mm256_add_ps(_mm256_load_ps(sums), _mm256_mul_ps(scales, parts)));
}

/* The scales of 8 rows of weights from row r. */
static inline __attribute__((always_inline)) __m256 scales_of(const uint8_t *scales, int r)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(scales + 2 * r)));
}

/* Not inlined, like tm_tiles_one_row. */
static __attribute__((noinline)) void one_row(
    const enum tm_prefetch_level level, size_t ahead, const tm_grouped_run *run, float *sums)
{
    const size_t steps = run->weights / 4, bytes = tm_grouped_bytes(run->weights);
    const __m256i ones = _mm256_set1_epi16(1);
    const uint8_t *scales = run->tile;
    const int8_t *a = run->a;
    for (size_t g = 0; g < run->count; g++, scales += bytes, a += run->weights) {
        const __m256i start = _mm256_set1_epi32(run->starts[g]);
        __m256i s_i16x16[2][4];
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            s_i16x16[i / 4][i % 4] = start;
        tm_prefetch_lines(scales, TM_GROUPED_SCALES, level, ahead);
        tm_tiles_one_sums(level, ahead, scales + TM_GROUPED_SCALES, 0, steps, a, s_i16x16);
        float *const to = tm_grouped_sums_at(sums);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            const int r = 16 * (i % 4) + 8 * (i / 4);
            settle(to + r, scales_of(scales, r), s_i16x16[i / 4][i % 4], ones);
        }
    }
}

/* Fields 2 * pair and 2 * pair + 1 of half `half`, see tm_tiles_fields_by. */
static inline __attribute__((always_inline)) void fields_by(
    const int rows, const int pair, int half, const enum tm_prefetch_level level, size_t ahead,
    const tm_grouped_run *run, size_t first, size_t count, float (*sums)[TM_TILE])
{
    const size_t steps = run->weights / 4, bytes = tm_grouped_bytes(run->weights), lda = run->lda;
    const __m256i m3 = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1);
    const uint8_t *scales = run->tile + first * bytes;
    for (size_t g = first; g < first + count; g++, scales += bytes) {
        tm_lanes_i16x16 s_i16x16[TM_TILES_ROWS][2];
#pragma GCC unroll 5
        for (int r = 0; r < rows; r++)
            s_i16x16[r][0] = s_i16x16[r][1] =
                (tm_lanes_i16x16)_mm256_set1_epi32(run->starts[(size_t)r * run->starts_apart + g]);
        tm_prefetch_lines(scales, TM_GROUPED_SCALES, level, ahead);
        float *const to = tm_grouped_sums_at(sums[0]);
        TM_TILES_ADD_FIELDS(scales + TM_GROUPED_SCALES, 0, steps, run->a + g * run->weights)
#pragma GCC unroll 2
        for (int f = 0; f < 2; f++) {
            const int of = 16 * (2 * pair + f) + 8 * half;
            const __m256 scale = scales_of(scales, of);
#pragma GCC unroll 5
            for (int r = 0; r < rows; r++)
                settle(to + r * TM_TILE + of, scale, (__m256i)s_i16x16[r][f], ones);
        }
    }
}

/* Four passes over groups that stay in L1, see tm_tiles_rows_by. */
static inline __attribute__((always_inline)) void rows_by(
    const int rows, const enum tm_prefetch_level level, size_t ahead, const tm_grouped_run *run, float (*sums)[TM_TILE])
{
    const int second_pair = run->there > TM_TILE / 2, second_half = tm_tile_parts(run->there, 2) > 1;
    const size_t most = tm_grouped_fit(TM_TILES_NEAR, run->weights);
    for (size_t g = 0; g < run->count; g += most) {
        const size_t near = run->count - g < most ? run->count - g : most;
        fields_by(rows, 0, 0, level, ahead, run, g, near, sums);
        if (second_pair)
            fields_by(rows, 1, 0, TM_PREFETCH_NONE, 0, run, g, near, sums);
        if (second_half)
            fields_by(rows, 0, 1, TM_PREFETCH_NONE, 0, run, g, near, sums);
        if (second_pair)
            fields_by(rows, 1, 1, TM_PREFETCH_NONE, 0, run, g, near, sums);
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
    default: rows_by(5, level, ahead, run, sums); break;
    }
}

#include "kernel.h"

int tm_ternary_matmul_tile64_grouped_avx2(void *args) { return tm_grouped_run_by(args, begins, body, TM_RANK(avx2)); }

TM_END
#endif
