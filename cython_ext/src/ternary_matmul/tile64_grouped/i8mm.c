/* ternary_matmul of tile64 with a scale for each group, with the int8 matrix products of Armv8.6: the loops of
 * ../tiles_i8mm.h, group by group. */
#include "tile64_grouped.h"

#if TM_ARM
#include "../../intrinsics.h"

TM_BEGIN(i8mm)
#include "../tiles_i8mm.h"
#include "start_neon.h"
#include "dots_neon.h"

/* One quarter of each group's codes for 2 * `pairs` rows of activations, of which `rows` exist. */
static inline __attribute__((always_inline)) void quarter_by(
    const int pairs, int rows, int quarter, const tm_grouped_run *run, float (*sums)[TM_TILE])
{
    const size_t steps = run->weights / 4, bytes = tm_grouped_bytes(run->weights);
    const uint8_t *scales = run->tile;
    for (size_t g = 0; g < run->count; g++, scales += bytes) {
        int32x4_t u[2][4][2];
        tm_tiles_quarter_sums(
            pairs, rows, quarter, scales + TM_GROUPED_SCALES, steps, run->a + g * run->weights, run->lda, u);
#pragma GCC unroll 4
        for (int f = 0; f < 4; f++) {
            const int of = 16 * f + 4 * quarter;
            const float32x4_t scale = tm_grouped_scales(scales, of);
            const int32x4_t down = vdupq_n_s32(-2 * f);
#pragma GCC unroll 2
            for (int p = 0; p < pairs; p++) {
                const int32x4_t low = f ? vshlq_s32(vsubq_s32(u[p][f][0], u[p][f - 1][0]), down) : u[p][0][0];
                const int32x4_t high = f ? vshlq_s32(vsubq_s32(u[p][f][1], u[p][f - 1][1]), down) : u[p][0][1];
                const int32_t *const starts = run->starts + (size_t)(2 * p) * run->starts_apart + g * TM_GROUPED_SUMS;
                tm_grouped_settle(sums[2 * p] + of, scale, vaddq_s32(vuzp1q_s32(low, high), vdupq_n_s32(starts[0])));
                if (2 * p + 1 < rows)
                    tm_grouped_settle(
                        sums[2 * p + 1] + of, scale,
                        vaddq_s32(vuzp2q_s32(low, high), vdupq_n_s32(starts[run->starts_apart])));
            }
        }
    }
}

static inline __attribute__((always_inline)) void tm_grouped_micro_by(
    const enum tm_prefetch_level level, size_t ahead, const tm_grouped_run *run, int rows, float (*sums)[TM_TILE])
{
    (void)level, (void)ahead;
    if (rows == 1)
        tm_grouped_quarters(1, 4, 0, run, sums);
    else
        for (int quarter = 0; quarter < tm_tile_parts(run->there, 4); quarter++) {
            if (rows == 2)
                quarter_by(1, 2, quarter, run, sums);
            else
                quarter_by(2, rows, quarter, run, sums);
        }
}

#include "kernel.h"

int tm_ternary_matmul_tile64_grouped_i8mm(void *args) { return tm_grouped_run_by(args, begins, body, TM_RANK(i8mm)); }

TM_END
#endif
