/* Rows of weights with their scales among the bytes, as model files have them: what scaled.cu and scaled_mma.cu share.
 *
 * GROUPED 1, tq2_0 (ggml): blocks of 256 weights of a row in 66 bytes: two halves of 32 bytes, then the float16 scale
 * of the block. Byte b of a half holds, from the lowest bits up, the codes w + 1 of its weights b, 32 + b, 64 + b, 96
 * + b.
 * GROUPED 0, iq2_bn (ik_llama.cpp): the float32 scale of the row, then blocks of 64 weights in 16 bytes. Byte b of a
 * block holds the codes of its weights b, 16 + b, 32 + b, 48 + b.
 *
 * In both, 16 bytes, a unit, are 64 weights of a row: field i of its words meets 16 contiguous activations. Four units
 * are 256 columns, a group, in iq2_bn too, where the last may have fewer. Rows follow each other without a gap, so
 * units of tq2_0 lie at even addresses, those of iq2_bn at multiples of 4.
 *
 * Each group's sum of codes times activations is exact in int32: its part. tq2_0 adds scale * part, which a double
 * holds, in the order of the groups, each sum rounded to double, as on the CPU. So the bits are the CPU's for any
 * scales. iq2_bn adds parts, in int32, and has one product with the scale at the end.
 *
 * Limits, rates and versions: docs/kernels/cuda_scaled.md. */
#ifndef TRITMARK_TERNARY_MATMUL_SCALED
#define TRITMARK_TERNARY_MATMUL_SCALED

#include "common.cuh"
#include <cuda_fp16.h>

#define COLUMNS 256 /* of a group */
#define UNIT 64     /* weights in 16 bytes */

#if GROUPED
typedef double Total; /* of the parts times their scales */
#else
typedef int Total; /* of the parts */
#endif

/* Bytes of a row. */
__device__ __forceinline__ long long row_bytes(int K)
{
#if GROUPED
    return (long long)(K / COLUMNS) * 66;
#else
    return 4 + (long long)(K / 4);
#endif
}

/* The offset of unit u (0..3) of group g in a row. */
__device__ __forceinline__ long long unit_at(int g, int u)
{
#if GROUPED
    return (long long)g * 66 + 16 * u;
#else
    return 4 + ((long long)g * 4 + u) * 16;
#endif
}

/* The column that field i of its first byte holds. */
__device__ __forceinline__ long long column_of(int g, int u, int i)
{
#if GROUPED
    return (long long)g * COLUMNS + 128 * (u / 2) + 16 * (u % 2) + 32 * i;
#else
    return (long long)g * COLUMNS + UNIT * u + 16 * i;
#endif
}

/* Whether a row has that unit: in tq2_0 each group has four. */
__device__ __forceinline__ bool has_unit(int g, int u, int K)
{
    return GROUPED || (long long)g * COLUMNS + UNIT * u < K;
}

/* The scale of a row of iq2_bn, or of group g of a row of tq2_0. */
__device__ __forceinline__ float scale_of(const unsigned char *row, int g)
{
#if GROUPED
    return __half2float(__ushort_as_half(*(const unsigned short *)(row + (long long)g * 66 + 64)));
#else
    return *(const float *)row;
#endif
}

/* A conversion that is exact. */
__device__ __forceinline__ double exact_double(int value)
{
#ifdef TRITMARK_SIMULATOR
    return (double)value;
#else
    /* 2^52 + 2^31 + value, minus both constants: a conversion has a quarter of an addition's rate. */
    return __hiloint2double(0x43300000, value ^ (int)0x80000000) - 4503601774854144.0;
#endif
}

/* 8 bytes that are used once or twice. */
__device__ __forceinline__ uint2 weights8(const unsigned char *from)
{
#ifdef TRITMARK_SIMULATOR
    return *(const uint2 *)from;
#else
    uint2 to;
    asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(to.x), "=r"(to.y) : "l"(from));
    return to;
#endif
}

/* Loads the 24 aligned bytes that contain a unit. Of the last 8 nothing is read at `end` or past it, and nothing if the
 * unit does not reach that far. */
__device__ __forceinline__ void unit_early(uint2 (&eights)[3], const unsigned char *at, const unsigned char *end)
{
    const unsigned char *from = (const unsigned char *)((unsigned long long)at & ~7ull);
    eights[0] = weights8(from);
    eights[1] = weights8(from + 8);
    eights[2] = make_uint2(0, 0);
    if (at != from) {
        if (from + 24 <= end)
            eights[2] = weights8(from + 16);
        else
            for (int i = 0; i < 3; i++)
                if (from + 18 + 2 * i <= end) {
                    const unsigned two = *(const unsigned short *)(from + 16 + 2 * i);
                    if (i < 2)
                        eights[2].x |= two << 16 * i;
                    else
                        eights[2].y = two;
                }
    }
}

/* The unit itself. */
__device__ __forceinline__ void unit_words(unsigned (&words)[4], const uint2 (&eights)[3], const unsigned char *at)
{
    const bool up = (unsigned long long)at & 4;
    const unsigned from[5] = {
        up ? eights[0].y : eights[0].x, up ? eights[1].x : eights[0].y, up ? eights[1].y : eights[1].x,
        up ? eights[2].x : eights[1].y, up ? eights[2].y : eights[2].x};
#pragma unroll
    for (int j = 0; j < 4; j++)
#if GROUPED
        words[j] = __byte_perm(from[j], from[j + 1], (unsigned long long)at & 2 ? 0x5432 : 0x3210);
#else
        words[j] = from[j];
#endif
}

/* One output of its total, the scale of its row in iq2_bn, and weight_scale / act_scale: kind 0 int32 (iq2_bn alone),
 * 1 float32, 2 bfloat16, 3 float16. */
__device__ __forceinline__ void store_total(void *out, long long at, Total total, float scale, double factor, int kind)
{
#if GROUPED
    const double sum = total;
#else
    if (kind == 0) {
        ((int *)out)[at] = total;
        return;
    }
    const double sum = __dmul_rn((double)scale, (double)total);
#endif
    const float value = __double2float_rn(__dmul_rn(sum, factor));
    if (kind == 1)
        ((float *)out)[at] = value;
    else
        ((unsigned short *)out)[at] = narrowed(value, kind);
}

#endif
