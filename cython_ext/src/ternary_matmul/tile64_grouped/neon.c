/* ternary_matmul of tile64 with a scale for each group, with NEON of every aarch64 processor: the loops of
 * ../tiles_neon.h, group by group. A group of 256 adds 64 products of at most 3 * 128 in magnitude to an int16 lane, so
 * no lane is flushed before its end. */
#include "tile64_grouped.h"

#if TM_ARM
#include "../../intrinsics.h"

TM_BEGIN(neon)
#include "../tiles_neon.h"
#include "start_neon.h"

/* `quarters` quarters of each group's codes, from `first`, for `rows` rows of activations; rows * quarters is 2. */
static inline __attribute__((always_inline)) void quarters_by(
    const int rows, const int quarters, int first, const tm_grouped_run *run, float (*sums)[TM_TILE])
{
    const size_t steps = run->weights / 4, bytes = tm_grouped_bytes(run->weights);
    const uint8_t *scales = run->tile;
    for (size_t g = 0; g < run->count; g++, scales += bytes) {
        int16x8_t low[TM_TILES_ROWS][2][4], high[TM_TILES_ROWS][2][4];
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int q = 0; q < quarters; q++)
#pragma GCC unroll 4
                for (int f = 0; f < 4; f++)
                    low[r][q][f] = high[r][q][f] = vdupq_n_s16(0);
        tm_tiles_quarters_sums(
            rows, quarters, first, scales + TM_GROUPED_SCALES, 0, steps, run->a + g * run->weights, run->lda, low,
            high);
#pragma GCC unroll 2
        for (int q = 0; q < quarters; q++)
#pragma GCC unroll 4
            for (int f = 0; f < 4; f++) {
                const int of = 16 * f + 4 * (first + q);
                const float32x4_t scale = tm_grouped_scales(scales, of);
#pragma GCC unroll 2
                for (int r = 0; r < rows; r++) {
                    const int32x4_t start =
                        vdupq_n_s32(run->starts[(size_t)r * run->starts_apart + g * TM_GROUPED_SUMS]);
                    const int32x4_t part = vpaddq_s32(vpaddlq_s16(low[r][q][f]), vpaddlq_s16(high[r][q][f]));
                    tm_grouped_settle(sums[r] + of, scale, vaddq_s32(part, start));
                }
            }
    }
}

static inline __attribute__((always_inline)) void tm_grouped_micro_by(
    const enum tm_prefetch_level level, size_t ahead, const tm_grouped_run *run, int rows, float (*sums)[TM_TILE])
{
    (void)level, (void)ahead;
    if (rows == 1)
        for (int first = 0; first < tm_tile_parts(run->there, 4); first += 2)
            quarters_by(1, 2, first, run, sums);
    else
        for (int first = 0; first < tm_tile_parts(run->there, 4); first++)
            quarters_by(2, 1, first, run, sums);
}

#include "kernel.h"

int tm_ternary_matmul_tile64_grouped_neon(void *args) { return tm_grouped_run_by(args, begins, body, TM_RANK(neon)); }

TM_END
#endif
