/* The products of all experts of a layer, in one call: rows offsets[e] to offsets[e + 1] of the activations times the
 * weights of expert e. See docs/kernels/experts.md. */
#ifndef TM_MATMUL_EXPERTS_H
#define TM_MATMUL_EXPERTS_H

#include "formats.h"

typedef struct tm_experts_args {
    tm_run run; /* `bad`: index of the first offset outside the contract; then nothing is written */
    tm_kernel kernel; /* of a format with tiles of 64 rows */
    int32_t rank; /* of its instruction set */
    int32_t kind; /* enum tm_matmul_out */
    const tm_matmul_format *format;
    const int8_t *a;
    const uint8_t *weights;    /* of each expert, expert_bytes apart */
    const float *weight_scale; /* one for each expert */
    const float *act_scale;    /* one for each row of activations */
    const int32_t *offsets;    /* E + 1, ascending from 0 to M */
    void *out;                 /* M x N, contiguous */
    size_t lda, expert_bytes, M, E, N, K;
    int32_t *act_sums; /* formats with a scale for each group: their room for M rows */
    size_t *costs;     /* room for E + 1 */
} tm_experts_args;

int tm_experts(void *args);

#endif
