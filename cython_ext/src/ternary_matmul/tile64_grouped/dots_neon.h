/* The micro kernel with the dot products of NEON, shared by dotprod.c and i8mm.c. Included behind TM_BEGIN and
 * ../dot_neon.h. */
#ifndef TM_GROUPED_DOTS_NEON_H
#define TM_GROUPED_DOTS_NEON_H

/* `quarters` quarters of each group's codes, from `first`, for `rows` rows of activations; see tm_dot_quarters. */
static inline __attribute__((always_inline)) void tm_grouped_quarters(
    const int rows, const int quarters, int first, const tm_grouped_run *run, float (*sums)[TM_TILE])
{
    const size_t steps = run->weights / 4, bytes = tm_grouped_bytes(run->weights);
    const uint8_t *scales = run->tile;
    for (size_t g = 0; g < run->count; g++, scales += bytes) {
        int32x4_t u[4][4][4];
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int f = 0; f < 4; f++) {
                const int32_t start = run->starts[(size_t)r * run->starts_apart + g * TM_GROUPED_SUMS + (size_t)f];
#pragma GCC unroll 4
                for (int q = 0; q < quarters; q++)
                    u[r][q][f] = vdupq_n_s32(start);
            }
        tm_dot_quarters_sums(
            rows, quarters, first, scales + TM_GROUPED_SCALES, steps, run->a + g * run->weights, run->lda, u);
#pragma GCC unroll 4
        for (int q = 0; q < quarters; q++) {
            float32x4_t scale[4];
#pragma GCC unroll 4
            for (int f = 0; f < 4; f++)
                scale[f] = tm_grouped_scales(scales, 16 * f + 4 * (first + q));
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                const int32x4_t *const of = u[r][q];
                float *const to = sums[r] + 4 * (first + q);
                tm_grouped_settle(to, scale[0], of[0]);
                tm_grouped_settle(to + 16, scale[1], vshrq_n_s32(vsubq_s32(of[1], of[0]), 2));
                tm_grouped_settle(to + 32, scale[2], vshrq_n_s32(vsubq_s32(of[2], of[1]), 4));
                tm_grouped_settle(to + 48, scale[3], of[3]);
            }
        }
    }
}

#endif
