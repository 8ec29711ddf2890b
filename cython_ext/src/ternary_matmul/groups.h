/* ternary_matmul over formats with a scale for each group of a row's weights: the loops around a kernel of one group.
 * See docs/kernels/panels.md.
 *
 * A row of weights is contiguous, group after group. The sum of a group's products is exact in int32. Its product with
 * the scale is exact in float64, and is added to the row's sum in the order of the groups. So the bits are the same for
 * every instruction set, number of threads and number of rows. At the end one product and one rounding, as for formats
 * with one scale. */
#ifndef TM_GROUPS_H
#define TM_GROUPS_H

#include "rows.h"

enum { TM_FEW = 4 }; /* most rows of activations that AVX-512 handles like one (four_rows.h) */

/* sum(code * x) of one group of weights and activations. */
typedef int32_t (*tm_group_one)(const uint8_t *group, const int8_t *x);

/* acc[m][r] = sum(code * a) of one group of row r of the weights and row m of the activations. */
typedef void (*tm_group_micro)(
    const uint8_t *const *groups, const int8_t *a, size_t lda, int count, int32_t (*acc)[TM_ROWS]);

/* The scale of a group. */
typedef float (*tm_group_scale)(const uint8_t *group);

/* A format's properties, for the loops. */
typedef struct tm_grouped {
    size_t weights, bytes; /* of a group, its scale included */
    tm_group_scale scale;
} tm_grouped;

/* The sums of the activations of each group, for all rows, which correct the codes' offset of 1. */
static inline __attribute__((always_inline)) void tm_group_sums(const tm_ternary_matmul_args *args, size_t weights)
{
    const size_t groups = args->K / weights;
    for (size_t m = 0; m < args->M; m++)
        for (size_t g = 0; g < groups; g++)
            args->act_sums[m * groups + g] = tm_sum(args->a + m * args->lda + g * weights, weights);
}

/* Bytes of room for these sums. */
static inline size_t tm_groups_room(size_t M, size_t K, size_t weights) { return sizeof(int32_t) * M * (K / weights); }

static inline void tm_group_store(const tm_ternary_matmul_args *args, size_t m, size_t n, double sum)
{
    const float value = (float)(sum * ((double)args->weight_scale / (double)args->act_scale[m]));
    if (args->kind == TM_OUT_FLOAT32)
        ((float *)args->out)[tm_matmul_at(args, m, n)] = value;
    else /* a NaN scale must not be rounded to a number */
        ((uint16_t *)args->out)[tm_matmul_at(args, m, n)] = value == value ? tm_bfloat16(value) : 0x7fc0;
}

/* One row of activations, rows [begin, end) of the weights in units of TM_ROWS, row after row; see tm_matmul_one. */
static inline __attribute__((always_inline)) void tm_groups_one(
    const tm_ternary_matmul_args *args, size_t begin, size_t end, tm_grouped form, tm_group_one one)
{
    const size_t groups = args->K / form.weights, last = TM_ROWS * end < args->N ? TM_ROWS * end : args->N;
    for (size_t n = TM_ROWS * begin; n < last; n++) {
        const uint8_t *row = args->weights + n * groups * form.bytes;
        double sum = 0;
        for (size_t g = 0; g < groups; g++) {
            const int32_t part = one(row + g * form.bytes, args->a + g * form.weights) - args->act_sums[g];
            sum += (double)form.scale(row + g * form.bytes) * (double)part;
        }
        tm_group_store(args, 0, n, sum);
    }
}

/* Rows [begin, end) of the weights, in units of TM_ROWS, which share loads of up to `block` rows of activations. */
static inline __attribute__((always_inline)) void tm_groups_rows(
    const tm_ternary_matmul_args *args, size_t begin, size_t end, tm_grouped form, int block, tm_group_micro micro)
{
    const size_t groups = args->K / form.weights;
    for (size_t first = 0; first < args->M; first += TM_ROWS_SUMS) {
        const size_t last = args->M - first < TM_ROWS_SUMS ? args->M : first + TM_ROWS_SUMS;
        for (size_t n = TM_ROWS * begin; n < TM_ROWS * end && n < args->N; n += TM_ROWS) {
            const uint8_t *rows[TM_ROWS];
            const size_t count = tm_rows_at(args, n, groups * form.bytes, rows);
            for (size_t m = first; m < last; m += (size_t)block) {
                const int taken = last - m < (size_t)block ? (int)(last - m) : block;
                double sum[TM_MATMUL_BLOCK][TM_ROWS] = {{0}};
                int32_t acc[TM_MATMUL_BLOCK][TM_ROWS] = {{0}};
                for (size_t g = 0; g < groups; g++) {
                    const uint8_t *at[TM_ROWS];
                    double scale[TM_ROWS];
                    for (int r = 0; r < TM_ROWS; r++) {
                        at[r] = rows[r] + g * form.bytes;
                        scale[r] = (double)form.scale(at[r]);
                    }
                    micro(at, args->a + m * args->lda + g * form.weights, args->lda, taken, acc);
                    for (int i = 0; i < taken; i++) {
                        const int32_t act_sum = args->act_sums[(m + (size_t)i) * groups + g];
                        for (int r = 0; r < TM_ROWS; r++)
                            sum[i][r] += scale[r] * (double)(acc[i][r] - act_sum);
                    }
                }
                for (int i = 0; i < taken; i++)
                    for (size_t r = 0; r < count; r++)
                        tm_group_store(args, m + (size_t)i, n + r, sum[i][r]);
            }
        }
    }
}

/* Sums the activations of each group of `weights`, then runs `body` over all weights in units of TM_ROWS rows. */
static inline int tm_groups_run(tm_ternary_matmul_args *args, size_t weights, tm_body body, int32_t rank)
{
    tm_group_sums(args, weights);
    return tm_matmul_run_by(args, TM_ROWS, body, rank);
}

#endif
