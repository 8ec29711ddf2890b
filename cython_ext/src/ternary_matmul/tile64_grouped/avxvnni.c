/* ternary_matmul of tile64 with a scale for each group, with AVX-VNNI: the loops of ../tiles_avxvnni.h, group by
 * group. */
#include "tile64_grouped.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avxvnni)
#include "../tiles_avxvnni.h"
#define TM_GROUPED_BIAS 0
#include "start_nested.h"

enum { NEAR = 128 }; /* groups of 4 columns that stay in L1 for the passes over them */

/* `halves` halves of each group's codes, from `first`, for `rows` rows of activations; rows * halves is 2. */
static inline __attribute__((always_inline)) void halves_by(
    const int rows, const int halves, int first, const enum tm_prefetch_level level, size_t ahead,
    const tm_grouped_run *run, size_t begin, size_t count, float (*sums)[TM_TILE])
{
    const size_t steps = run->weights / 4, bytes = tm_grouped_bytes(run->weights);
    const uint8_t *scales = run->tile + begin * bytes;
    for (size_t g = begin; g < begin + count; g++, scales += bytes) {
        tm_lanes_i32x8 u[TM_TILES_ROWS][2][4];
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int f = 0; f < 4; f++) {
                const int32_t start = run->starts[(size_t)r * run->starts_apart + g * TM_GROUPED_SUMS + (size_t)f];
                u[r][0][f] = (tm_lanes_i32x8)_mm256_set1_epi32(start);
                if (halves > 1)
                    u[r][1][f] = u[r][0][f];
            }
        tm_prefetch_lines(scales, TM_GROUPED_SCALES, level, ahead);
        tm_tiles_halves_sums(
            rows, halves, first, level, ahead, scales + TM_GROUPED_SCALES, steps, run->a + g * run->weights, run->lda,
            u);
        float *const to = tm_grouped_sums_at(sums[0]);
#pragma GCC unroll 2
        for (int h = 0; h < halves; h++)
#pragma GCC unroll 4
            for (int f = 0; f < 4; f++) {
                const int of = 16 * f + 8 * (first + h);
                const __m256 scale = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(scales + 2 * of)));
#pragma GCC unroll 2
                for (int r = 0; r < rows; r++) {
                    const tm_lanes_i32x8 part = f ? (u[r][h][f] - u[r][h][f - 1]) >> 2 * f : u[r][h][0];
                    float *const sum = to + r * TM_TILE + of;
                    const __m256 product = _mm256_mul_ps(scale, _mm256_cvtepi32_ps((__m256i)part));
                    _mm256_store_ps(sum, _mm256_add_ps(_mm256_load_ps(sum), product));
                }
            }
    }
}

static inline __attribute__((always_inline)) void tm_grouped_micro_by(
    const enum tm_prefetch_level level, size_t ahead, const tm_grouped_run *run, int rows, float (*sums)[TM_TILE])
{
    if (rows == 1) {
        halves_by(1, 2, 0, level, ahead, run, 0, run->count, sums);
        return;
    }
    const size_t most = tm_grouped_fit(NEAR, run->weights);
    for (size_t g = 0; g < run->count; g += most) {
        const size_t near = run->count - g < most ? run->count - g : most;
        halves_by(2, 1, 0, level, ahead, run, g, near, sums);
        if (tm_tile_parts(run->there, 2) > 1)
            halves_by(2, 1, 1, TM_PREFETCH_NONE, 0, run, g, near, sums);
    }
}

#include "kernel.h"

int tm_ternary_matmul_tile64_grouped_avxvnni(void *args)
{
    return tm_grouped_run_by(args, begins, body, TM_RANK(avxvnni));
}

TM_END
#endif
