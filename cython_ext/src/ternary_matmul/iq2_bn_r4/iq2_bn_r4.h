/* ternary_matmul on the bytes of ik_llama.cpp's IQ2_BN_R4 (kernels/formats/iq2_bn_r4.py).
 *
 * Layout: four rows of weights lie side by side, a "four": their float32 scales, then 64 bytes for each 64 columns.
 * Byte 16*l + 4*r + i (l, r, i = 0..3) holds, at bits 2*s, the code w + 1 of row r, column 16*l + 4*s + i. So each 4
 * bytes belong to one row, a shift by 2*s gives 4 of its columns, and 4 adjacent activations meet all four rows. Sums
 * of the four rows lie side by side.
 *
 * Float output: (float)(((double)scale[n] * (double)acc) * f) with f = (double)weight_scale / (double)act_scale, the
 * same roundings on every path; the first product is exact while acc is under 2^29. Page: docs/kernels/iq2_bn_r4.md. */
#ifndef TM_IQ2_BN_R4_H
#define TM_IQ2_BN_R4_H

#include "../rows.h"
#include "../tiles.h"

enum {
    TM_FOUR = 4,         /* rows side by side */
    TM_FOUR_SCALES = 16, /* bytes of their scales */
    TM_FOUR_BLOCK = 64,  /* columns, and bytes, of a block */
    TM_FOURS = 4,        /* most fours that a micro kernel takes at once */
    TM_TILE_FOURS = TM_TILE / TM_FOUR,
};

TM_KERNELS(ternary_matmul_iq2_bn_r4);

/* See tm_arrange. */
void tm_four_arrange_avx512(const tm_ternary_matmul_args *args, size_t t, size_t k, size_t groups, uint8_t *to);

static inline size_t tm_four_bytes(size_t K) { return TM_FOUR_SCALES + K; }

/* acc[m][4 * f + r] = sum(code * a) over all K, for row r of `fours` fours and row m of `count` rows of activations.
 * The fours begin at `weights`, behind their scales, tm_four_bytes(K) apart. */
typedef void (*tm_fours_micro)(
    const uint8_t *weights, int fours, const int8_t *a, size_t lda, int count, size_t K,
    int32_t (*acc)[TM_FOUR * TM_FOURS]);

/* Writes one four's outputs for one row of activations. */
static inline void tm_four_store(
    const tm_ternary_matmul_args *args, size_t m, size_t four, const int32_t *acc, int32_t act_sum, double factor)
{
    const size_t at = tm_matmul_at(args, m, TM_FOUR * four);
    if (args->kind == TM_OUT_INT32) {
        for (size_t r = 0; r < TM_FOUR; r++)
            ((int32_t *)args->out)[at + r] = acc[r] - act_sum;
        return;
    }
    float scale[TM_FOUR], value[TM_FOUR];
    memcpy(scale, args->weights + four * tm_four_bytes(args->K), sizeof scale);
    for (size_t r = 0; r < TM_FOUR; r++)
        value[r] = (float)((double)scale[r] * (double)(acc[r] - act_sum) * factor);
    if (args->kind == TM_OUT_FLOAT32)
        memcpy((float *)args->out + at, value, sizeof value);
    else
        for (size_t r = 0; r < TM_FOUR; r++) /* a NaN scale must not be rounded to a number */
            ((uint16_t *)args->out)[at + r] = value[r] == value[r] ? tm_bfloat16(value[r]) : 0x7fc0;
}

/* For many rows of activations weights are converted to tile64 (../tiles.h), by whole blocks. */

/* Addresses of the columns of tile t's fours, from group k. Past the last four the first is repeated, and its sums are
 * not stored. */
static inline void tm_four_tile(
    const tm_ternary_matmul_args *args, size_t t, size_t k, const uint8_t *fours[TM_TILE_FOURS])
{
    const size_t first = t * TM_TILE_FOURS, left = args->N / TM_FOUR - first;
    for (size_t f = 0; f < TM_TILE_FOURS; f++)
        fours[f] = args->weights + (first + (f < left ? f : 0)) * tm_four_bytes(args->K) + TM_FOUR_SCALES + 4 * k;
}

/* See tm_sums_store. */
static inline void tm_four_tile_store(
    const tm_ternary_matmul_args *args, size_t m, size_t n, size_t count, const int32_t *acc, int32_t act_sum,
    double factor)
{
    for (size_t i = 0; i < count; i += TM_FOUR)
        tm_four_store(args, m, (n + i) / TM_FOUR, acc + i, act_sum, factor);
}

/* Fours [begin, end), `most` at a time, for up to `block` rows of activations at a time. */
static inline __attribute__((always_inline)) void tm_matmul_fours(
    const tm_ternary_matmul_args *args, size_t begin, size_t end, int most, int block, tm_fours_micro micro)
{
    for (size_t first = 0; first < args->M; first += TM_ROWS_SUMS) {
        const size_t last = args->M - first < TM_ROWS_SUMS ? args->M : first + TM_ROWS_SUMS;
        int32_t act_sum[TM_ROWS_SUMS];
        double factor[TM_ROWS_SUMS];
        for (size_t m = first; m < last; m++) {
            act_sum[m - first] = tm_sum(args->a + m * args->lda, args->K);
            factor[m - first] =
                args->kind == TM_OUT_INT32 ? 0 : (double)args->weight_scale / (double)args->act_scale[m];
        }
        for (size_t four = begin; four < end; four += (size_t)most) {
            const int fours = end - four < (size_t)most ? (int)(end - four) : most;
            const uint8_t *weights = args->weights + four * tm_four_bytes(args->K) + TM_FOUR_SCALES;
            for (size_t m = first; m < last; m += (size_t)block) {
                const int taken = last - m < (size_t)block ? (int)(last - m) : block;
                int32_t acc[TM_MATMUL_BLOCK][TM_FOUR * TM_FOURS];
                micro(weights, fours, args->a + m * args->lda, args->lda, taken, args->K, acc);
                for (int i = 0; i < taken; i++) {
                    const size_t row = m + (size_t)i - first;
                    for (int f = 0; f < fours; f++)
                        tm_four_store(
                            args, m + (size_t)i, four + (size_t)f, acc[i] + TM_FOUR * f, act_sum[row], factor[row]);
                }
            }
        }
    }
}

#endif
