/* Shared by the CUDA kernels of ternary_matmul_a16: ternary weights of row16 as 16-bit floating point, loads of
 * activations, the tensor cores' product of the two, stores of outputs.
 *
 * Macro: INPUT, of the activations and of decoded weights: 16 (__half) or 8 (__nv_bfloat16). */
#ifndef TRITMARK_TERNARY_MATMUL_A16
#define TRITMARK_TERNARY_MATMUL_A16
#include "../cuda/tiles/mma.cuh"
#include "../cuda/tiles/operands.cuh"
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#if INPUT == 16
typedef __half input;
typedef __half2 input2;
#define TYPE "f16"
#define BASE 0x64006400u /* 1024 twice: the fraction counts ones */
#define STEP(i) ((15u - 2 * (i)) << 10) /* 4^-i */
#define BACK(i) (0xe400u - (unsigned)(i) * 0x800u + (1u << 2 * (i))) /* -(1024 * 4^-i + 1) */
#else
typedef __nv_bfloat16 input;
typedef __nv_bfloat162 input2;
#define TYPE "bf16"
#define BASE 0x43004300u /* 128 twice: the fraction counts ones, and up to 256 with the exponent's last bit */
#define STEP(i) ((127u - 2 * (i)) << 7)
#define BACK(i) (0xc300u - (unsigned)(i) * 0x100u + (1u << 2 * (i))) /* -(128 * 4^-i + 1) */
#endif

__device__ __forceinline__ unsigned twice(unsigned half) { return half | half << 16; }

/* Fields of a pair of halves, 0 to 2, 4^i of each as `mask` selects, as -1, 0, 1: exact, by one logical operation and
 * one multiply-add. In PTX, because compilers make two logical operations of the first for its two constants. */
__device__ __forceinline__ unsigned weights2(unsigned fields, unsigned mask, unsigned step, unsigned back)
{
#ifdef TRITMARK_SIMULATOR
    const unsigned raised = (fields & mask) | BASE; /* base + 4^i field */
#else
    unsigned raised;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(raised) : "r"(fields), "r"(mask), "r"(BASE));
#endif
    const input2 made = __hfma2(*(const input2 *)&raised, *(const input2 *)&step, *(const input2 *)&back);
    return *(const unsigned *)&made;
}

/* The 16 weights of a row16 word in their order. Bytes 0, 1 and 2, 3 go into the halves of a register each. */
__device__ __forceinline__ void weights16_of(unsigned (&to)[8], unsigned word)
{
    const unsigned low = __byte_perm(word, 0, 0x4140), high = __byte_perm(word, 0, 0x4342);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        to[2 * i] = weights2(low, 0x00030003u << 2 * i, twice(STEP(i)), twice(BACK(i)));
        to[2 * i + 1] = weights2(high, 0x00030003u << 2 * i, twice(STEP(i)), twice(BACK(i)));
    }
}

/* 8 activations from k, 0 beyond K. `fast`: rows are aligned to 16 bytes. */
__device__ __forceinline__ uint4 activations8(const unsigned short *row, long long k, int K, bool fast)
{
    if (fast && k + 8 <= K)
        return *(const uint4 *)(row + k);
    uint4 to = make_uint4(0, 0, 0, 0);
#pragma unroll 1
    for (int i = 0; i < 4; i++) { /* selects, because registers cannot be indexed */
        const long long at = k + 2 * i;
        const unsigned pair = (at < K ? row[at] : 0u) | (at + 1 < K ? (unsigned)row[at + 1] : 0u) << 16;
        to.x = i == 0 ? pair : to.x;
        to.y = i == 1 ? pair : to.y;
        to.z = i == 2 ? pair : to.z;
        to.w = i == 3 ? pair : to.w;
    }
    return to;
}

/* Both rounded to nearest even, the first in the lower half: float16 for kind 3, else bfloat16. */
__device__ __forceinline__ unsigned narrow_pair(float first, float second, int kind)
{
    if (kind == 3)
        return __half_as_ushort(__float2half_rn(first)) | (unsigned)__half_as_ushort(__float2half_rn(second)) << 16;
    return __bfloat16_as_ushort(__float2bfloat16_rn(first)) |
           (unsigned)__bfloat16_as_ushort(__float2bfloat16_rn(second)) << 16;
}

/* One output: kind 1 float32, 2 bfloat16, 3 float16. */
__device__ __forceinline__ void store_float(void *out, long long at, float value, int kind)
{
    if (kind == 1)
        ((float *)out)[at] = value;
    else
        ((unsigned short *)out)[at] = (unsigned short)narrow_pair(value, value, kind);
}

#ifdef TRITMARK_SIMULATOR
/* sum + a pair times a pair, each product and each sum rounded to float32 or exact. */
__device__ inline float dot2(unsigned a, unsigned b, float sum)
{
    const input2 left = *(const input2 *)&a, right = *(const input2 *)&b;
    sum += (float)left.x * (float)right.x;
    return sum + (float)left.y * (float)right.y;
}
#endif

/* mma of mma.cuh with 16 k. */
__device__ __forceinline__ void mma(
    float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1)
{
    MMA(dot2, "f", "m16n8k16.row.col.f32." TYPE "." TYPE ".f32");
}
#endif
