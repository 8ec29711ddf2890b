/* Shared by products of row16 weights: loads of weights, copies into shared memory, outputs of 16 bits. */
#ifndef TRITMARK_CUDA_TILES_OPERANDS
#define TRITMARK_CUDA_TILES_OPERANDS

#ifdef TRITMARK_SIMULATOR
#include <cuda_fp16.h>
#endif

#define CHUNK 64 /* weights in 16 bytes of row16 */

/* 16 bytes that are used once, without allocation in L1. */
__device__ __forceinline__ uint4 weights16(const uint4 *from)
{
#ifdef TRITMARK_SIMULATOR
    return *from;
#else
    uint4 to;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w)
                 : "l"(from));
    return to;
#endif
}

/* 16 bytes into shared memory through L1: the first `bytes` are copied, the rest are 0. Complete after
 * cp.async.wait_all. */
__device__ __forceinline__ void copy_async(void *to, const void *from, int bytes)
{
#ifdef TRITMARK_SIMULATOR
    for (int i = 0; i < 16; i++)
        ((unsigned char *)to)[i] = i < bytes ? ((const unsigned char *)from)[i] : 0;
#else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"((unsigned)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(bytes)
                 : "memory");
#endif
}

/* Rounded to nearest even; NaN stays NaN. */
__device__ __forceinline__ unsigned bfloat16_bits(float value)
{
    const unsigned bits = value == value ? __float_as_uint(value) : 0x7fc00000u;
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

/* The bits of kind 2, bfloat16, or 3, float16: rounded to nearest even; NaN stays NaN. */
__device__ __forceinline__ unsigned short narrowed(float value, int kind)
{
    if (kind != 3)
        return (unsigned short)bfloat16_bits(value);
#ifdef TRITMARK_SIMULATOR
    return __half_as_ushort(__float2half_rn(value));
#else
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#endif
}
#endif
