/* rms_norm: for each row of K numbers in bfloat16, with all roundings of transformers' RMS norms,
 *
 *     r = 1 / sqrt(sum(x^2) / K + eps);  out = bf16(weight * bf16(x * r)), in float32 before each rounding
 *
 * The sum has 32 parts in a fixed order, so its bits do not depend on the instruction set, and not on the number of
 * threads. Compilers make the vector code: the loops are inlined into a function of each set. Two passes, the second
 * from L1. A NaN or infinity gives a row of NaN, as in PyTorch. Page: docs/kernels/model_step.md. */
#ifndef TM_RMS_NORM_H
#define TM_RMS_NORM_H

#include "../half.h"
#include "../parallel.h"

typedef struct tm_rms_norm_args {
    tm_run run;
    const uint16_t *x;      /* (M, K), contiguous */
    const uint16_t *weight; /* K */
    uint16_t *out;          /* (M, K), contiguous */
    size_t M;
    size_t K;
    float eps;
} tm_rms_norm_args;

TM_KERNELS(rms_norm);

/* 16,384 elements take a few us, enough to wake a thread. */
enum { TM_NORM_GRAIN = 16384, TM_NORM_PARTS = 32 };

/* To nearest, ties to even; a NaN stays one. */
static inline __attribute__((always_inline)) uint16_t tm_to_bfloat(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

static inline __attribute__((always_inline)) void tm_norm_row(
    const uint16_t *restrict x, const uint16_t *restrict weight, uint16_t *restrict out, size_t K, float eps)
{
    float parts[TM_NORM_PARTS] = {0};
    size_t i = 0;
    for (; i + TM_NORM_PARTS <= K; i += TM_NORM_PARTS)
        for (size_t j = 0; j < TM_NORM_PARTS; j++) {
            const float value = tm_bfloat(x[i + j]);
            parts[j] += value * value;
        }
    for (size_t j = 0; i + j < K; j++) {
        const float value = tm_bfloat(x[i + j]);
        parts[j] += value * value;
    }
    for (size_t width = TM_NORM_PARTS / 2; width; width /= 2)
        for (size_t j = 0; j < width; j++)
            parts[j] += parts[j + width];
    const float r = 1.0f / __builtin_sqrtf(parts[0] / (float)K + eps);
    for (size_t k = 0; k < K; k++)
        out[k] = tm_to_bfloat(tm_bfloat(weight[k]) * tm_bfloat(tm_to_bfloat(tm_bfloat(x[k]) * r)));
}

static inline __attribute__((always_inline)) void tm_norm_rows(const tm_rms_norm_args *a, size_t begin, size_t end)
{
    const size_t K = a->K;
    for (size_t m = begin; m < end; m++)
        tm_norm_row(a->x + m * K, a->weight, a->out + m * K, K, a->eps);
}

static inline int tm_norm_run(tm_rms_norm_args *a, tm_body body, int32_t rank)
{
    a->run.used = tm_parallel(a->M, 1, (TM_NORM_GRAIN + a->K - 1) / a->K, a->run.threads, body, a);
    return tm_finish(&a->run, rank);
}

#endif
