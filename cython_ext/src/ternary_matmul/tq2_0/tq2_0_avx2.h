/* Shared by AVX2 and AVX-VNNI for tq2_0. Included behind TM_BEGIN and the sums of one of them. */
#ifndef TM_TQ2_0_AVX2_H
#define TM_TQ2_0_AVX2_H

#include "../fours.h"
#include "../panels_avx2.h"
#include "../rows_avx2.h"

static inline float tm_tq2_0_scale(const uint8_t *group) { return _cvtsh_ss(tm_tq2_0_stored(group)); }

/* The sums of a group, lane by lane. */
static inline __attribute__((always_inline)) __m256i tm_tq2_0_lanes(const uint8_t *group, const int8_t *x)
{
    const __m256i m3 = _mm256_set1_epi8(3);
    tm_dots s[2] = {{0}, {0}};
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        const __m256i w = _mm256_loadu_si256((const __m256i *)(group + 32 * h));
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++)
            s[h] = tm_dots_added(
                s[h], _mm256_and_si256(_mm256_srli_epi16(w, 2 * g), m3),
                _mm256_loadu_si256((const __m256i *)(x + TM_TQ2_0_HALF * h + 32 * g)));
    }
    return tm_dots_sum(s[0] + s[1]);
}

static inline int32_t tm_tq2_0_one(const uint8_t *group, const int8_t *x)
{
    return tm_sum_of(tm_tq2_0_lanes(group, x));
}

static inline __attribute__((always_inline)) __m128i tm_tq2_0_four(const uint8_t *groups, const int8_t *x)
{
    __m256i s_i32x8[TM_FOUR];
#pragma GCC unroll 4
    for (size_t i = 0; i < TM_FOUR; i++)
        s_i32x8[i] = tm_tq2_0_lanes(groups + i * TM_TQ2_0_BYTES, x + i * TM_TQ2_0_GROUP);
    return tm_sums_of(s_i32x8);
}

/* Bytes 16 * q to 16 * q + 15 of a group's 64 hold the weights from 128 * (q / 2) + 16 * (q % 2), and those 32, 64 and
 * 96 further. */
static inline __attribute__((always_inline)) void tm_tq2_0_decode(const uint8_t *const *groups, tm_panel_step *codes)
{
#pragma GCC unroll 1
    for (int q = 0; q < 4; q++)
#pragma GCC unroll 2
        for (int v = 0; v < TM_PANEL_VECTORS; v++) {
            __m256i w[4];
            tm_panel_dwords(groups + 8 * v, 16 * (size_t)q, w);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
#pragma GCC unroll 4
                for (int s = 0; s < 4; s++)
                    codes[32 * (q / 2) + 4 * (q % 2) + 8 * s + i][v] = tm_panel_codes(w[i], s);
        }
}

static void tm_tq2_0_panel(const tm_ternary_matmul_args *args, size_t n, size_t count, size_t first, size_t last)
{
    const tm_paneled how = {tm_tq2_0_decode, TM_TQ2_0_GROUP, TM_TQ2_0_BYTES, TM_TQ2_0_SCALE, 1};
    tm_panel(args, n, count, first, last, how);
}

static void tm_tq2_0_body(void *given, size_t begin, size_t end)
{
    const tm_ternary_matmul_args *args = given;
    const tm_grouped form = {TM_TQ2_0_GROUP, TM_TQ2_0_BYTES, tm_tq2_0_scale};
    if (args->M == 1)
        tm_groups_fours(args, begin, end, form, TM_TQ2_0_SCALE, tm_tq2_0_one, tm_tq2_0_four, args->a, NULL);
    else
        tm_panels(args, begin, end, TM_ROWS, TM_PANEL, TM_PANEL_SUMS, tm_tq2_0_panel);
}

static int tm_tq2_0_run(tm_ternary_matmul_args *args, int32_t rank)
{
    return tm_panel_run(args, TM_TQ2_0_GROUP, TM_ROWS, tm_tq2_0_body, rank);
}

#endif
