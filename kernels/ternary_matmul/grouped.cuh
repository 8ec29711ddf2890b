/* Weights of row16 with a float16 scale for each GROUP weights of a row (32, 64, 128, 256), and their sums: what the
 * kernels of row16_g32 to row16_g256 share.
 *
 * The words of row16 come first, then the scales: of the first group of every row, padded to whole 8 rows, then of the
 * second, and so on.
 *
 * A group's sum of weights times activations, its part, is exact in int32; weights4 (common.cuh) makes it 64 times as
 * large, at most 2^21. Accumulators begin at MAGIC, so their bits are a float32 of 1.5 * 2^23 plus the part: one
 * addition converts them. sum = fma(scale, part, sum) in float32, over the groups in order, as far as a warp takes
 * them. */
#ifndef TRITMARK_TERNARY_MATMUL_GROUPED
#define TRITMARK_TERNARY_MATMUL_GROUPED
#include "../cuda/tiles/grouped.cuh"
#include "common.cuh"

#define MAGIC 0x4b400000

/* The part that an accumulator from MAGIC holds. */
__device__ __forceinline__ float part_of(int sum) { return __int_as_float(sum) - 12582912.0f; }

/* A scale, loaded at this point. */
__device__ __forceinline__ unsigned short scale16(const unsigned short *from)
{
#ifdef TRITMARK_SIMULATOR
    return *from;
#else
    unsigned short to;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(to) : "l"(from));
    return to;
#endif
}

/* One output of 64 times its sum over the groups, and a factor: kind 1 float32, 2 bfloat16, 3 float16. */
__device__ __forceinline__ void store_sum(void *out, long long at, float sum, double factor, int kind)
{
    const float value = __double2float_rn(__dmul_rn((double)sum, factor * 0.015625));
    if (kind == 1)
        ((float *)out)[at] = value;
    else
        ((unsigned short *)out)[at] = narrowed(value, kind);
}
#endif
