/* Shared by NEON and its dot products for q2_0. Included behind TM_BEGIN and the sums of one of them. */
#ifndef TM_Q2_0_NEON_H
#define TM_Q2_0_NEON_H

#include "../panels.h"
#include "../rows_neon.h"

/* Rows [begin, end) of the activations: the sum of each group, and a[4 * i + s] of each 64 at 16 * s + i. */
static void tm_q2_0_start(void *given, size_t begin, size_t end)
{
    const tm_ternary_matmul_args *args = given;
    const size_t groups = args->K / TM_Q2_0_GROUP;
    for (size_t m = begin; m < end; m++) {
        const int8_t *x = args->a + m * args->lda;
        int8_t *to = tm_q2_0_arranged(args, m);
        for (size_t g = 0; g < groups; g++, x += TM_Q2_0_GROUP, to += TM_Q2_0_GROUP) {
            args->act_sums[m * groups + g] = tm_sum(x, TM_Q2_0_GROUP);
            const int8x16x4_t fields = vld4q_s8(x);
            for (int s = 0; s < 4; s++)
                vst1q_s8(to + 16 * s, fields.val[s]);
        }
    }
}

/* What four rows of weights add to a sum: rows 0 and 1, rows 2 and 3. */
typedef struct tm_q2_0_terms {
    float64x2_t of[2];
} tm_q2_0_terms;

/* The terms of a group of each row, for `count` rows of activations: the sums of their products less `act_sums`, which
 * lie `apart`, times the groups' scales. */
static inline __attribute__((always_inline)) void tm_q2_0_group(
    const int count, const uint8_t *const *rows, size_t at, const int8_t *x, size_t lda, const int32_t *act_sums,
    size_t apart, tm_q2_0_terms *terms)
{
    tm_rows_sums sums;
    double scales[TM_ROWS];
    tm_rows_none(count, &sums);
#pragma GCC unroll 4
    for (int r = 0; r < TM_ROWS; r++)
        scales[r] = (double)tm_half_neon(tm_q2_0_stored(rows[r] + at));
    tm_rows_fields(count, 0, 16, &sums, rows, at + TM_Q2_0_CODES, x, lda);
#pragma GCC unroll 4
    for (int m = 0; m < count; m++) {
        const int32x4_t products = vsubq_s32(tm_rows_sum(&sums, m), vdupq_n_s32(act_sums[(size_t)m * apart]));
        terms[m].of[0] = vmulq_f64(vld1q_f64(scales), vcvtq_f64_s64(vmovl_s32(vget_low_s32(products))));
        terms[m].of[1] = vmulq_f64(vld1q_f64(scales + 2), vcvtq_f64_s64(vmovl_high_s32(products)));
    }
}

/* Four rows of weights from row n, of which `left` exist or more, by rows [first, first + count) of the activations.
 * Groups are added by fours (q2_0.h); an incomplete last four gets terms of 0. */
static inline __attribute__((always_inline)) void tm_q2_0_by(
    const int count, const tm_ternary_matmul_args *args, size_t n, size_t left, size_t first)
{
    const size_t groups = args->K / TM_Q2_0_GROUP, lda = tm_q2_0_padded(args->K);
    const int8_t *x = tm_q2_0_arranged(args, first);
    const int32_t *act_sums = args->act_sums + first * groups;
    const uint8_t *rows[TM_ROWS];
    const size_t there = left < TM_ROWS ? left : TM_ROWS;
    tm_q2_0_terms total[TM_MATMUL_BLOCK], of[TM_Q2_0_FOUR][TM_MATMUL_BLOCK];
    tm_rows_begin(args, n, there, groups * TM_Q2_0_BYTES, TM_ROWS, rows);
    memset(total, 0, sizeof total);
    for (size_t four = 0; four < groups; four += TM_Q2_0_FOUR) {
        for (size_t i = 0; i < TM_Q2_0_FOUR; i++) {
            const size_t g = four + i;
            if (g < groups)
                tm_q2_0_group(count, rows, g * TM_Q2_0_BYTES, x + g * TM_Q2_0_GROUP, lda, act_sums + g, groups, of[i]);
            else
                memset(of[i], 0, sizeof of[i]);
        }
        for (int m = 0; m < count; m++)
            for (int r = 0; r < 2; r++) {
                const float64x2_t low = vaddq_f64(of[0][m].of[r], of[1][m].of[r]);
                const float64x2_t high = vaddq_f64(of[2][m].of[r], of[3][m].of[r]);
                total[m].of[r] = vaddq_f64(total[m].of[r], vaddq_f64(low, high));
            }
    }
    for (int m = 0; m < count; m++)
        for (size_t r = 0; r < there; r++)
            tm_group_store(args, first + (size_t)m, n + r, total[m].of[r / 2][r % 2]);
}

static void tm_q2_0_body(void *given, size_t begin, size_t end)
{
    const tm_ternary_matmul_args *args = given;
    const size_t stop = TM_Q2_0_UNIT * end < args->N ? TM_Q2_0_UNIT * end : args->N;
    for (size_t n = TM_Q2_0_UNIT * begin; n < stop; n += TM_ROWS)
        for (size_t m = 0; m < args->M; m += TM_MATMUL_BLOCK)
            TM_ROWS_COUNTED(tm_q2_0_by, args->M - m, args, n, stop - n, m)
}

static int tm_q2_0_run_neon(tm_ternary_matmul_args *args, int32_t rank)
{
    tm_parallel(args->M, 1, TM_PANEL_GRAIN / args->K + 1, args->run.threads, tm_q2_0_start, args);
    return tm_matmul_run_by(args, TM_Q2_0_UNIT, tm_q2_0_body, rank);
}

#endif
