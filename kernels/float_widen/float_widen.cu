/* float_widen: float16 or bfloat16 to float32, exactly. A NaN becomes the quiet NaN of its sign and payload, as IEEE
 * 754 recommends and x86 and ARM do. The GPU's own instruction loses both.
 *
 * - v1: 256 threads, grid-stride, one element a thread at a time: a warp reads 64 bytes and writes 128 by one
 *   instruction.
 * - pairs (the variant `vector`): two 16-byte loads, which two neighbouring threads exchange, so that their 16-byte
 *   stores are next to each other: the even thread reads what both write first, the odd one what they write second. Two
 *   shuffles for eight elements. A block has one tile of 4096 elements.
 *
 * Limit: memory; 2 bytes read and 4 written an element. All indices are size_t.
 *
 * Rates: `tritmark run --suite gpu --op float_widen --device cuda`. Versions: docs/kernels/cuda_elementwise.md. */
#include <cuda_fp16.h>

/* Macro: THREADS, of a block. */

/* `bits` holds 16 bits. */
struct Float16 {
    static __device__ __forceinline__ float value(unsigned bits)
    {
        const float exact = __half2float(__ushort_as_half((unsigned short)bits));
        return (bits & 0x7fffu) > 0x7c00u
                   ? __uint_as_float((bits & 0x8000u) << 16 | 0x7fc00000u | (bits & 0x03ffu) << 13)
                   : exact;
    }
};

struct Bfloat16 {
    static __device__ __forceinline__ float value(unsigned bits)
    {
        return __uint_as_float((bits & 0x7fffu) > 0x7f80u ? bits << 16 | 0x00400000u : bits << 16);
    }
};

template <class From> __device__ __forceinline__ void plain(
    const unsigned short *__restrict__ h, float *__restrict__ x, size_t n)
{
    const size_t stride = (size_t)blockDim.x * gridDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        x[i] = From::value(h[i]);
}

template <class From> __device__ __forceinline__ float4 widened(unsigned low, unsigned high)
{
    return make_float4(
        From::value(low & 0xffffu), From::value(low >> 16), From::value(high & 0xffffu), From::value(high >> 16));
}

/* The elements past the last whole tile. */
template <class From> __device__ __forceinline__ void rest(const unsigned short *h, float *x, size_t begin, size_t n)
{
    for (size_t i = begin + threadIdx.x; i < n; i += THREADS)
        x[i] = From::value(h[i]);
}

/* Between two neighbouring threads, each gets its half of what the even one holds, and then its half of what the odd
 * one holds. */
__device__ __forceinline__ uint4 exchange(uint4 own)
{
    const bool odd = threadIdx.x & 1;
    const unsigned a = __shfl_xor_sync(0xffffffffu, odd ? own.x : own.z, 1),
                   b = __shfl_xor_sync(0xffffffffu, odd ? own.y : own.w, 1);
    return odd ? make_uint4(a, b, own.z, own.w) : make_uint4(own.x, own.y, a, b);
}

template <class From> __device__ __forceinline__ void pairs(
    const unsigned short *__restrict__ h, float *__restrict__ x, size_t n)
{
    const size_t tile = THREADS * 16;
    for (size_t begin = blockIdx.x * tile; begin < n; begin += gridDim.x * tile) {
        if (n - begin < tile) {
            rest<From>(h, x, begin, n);
            return;
        }
        const uint4 *from = (const uint4 *)(h + begin) + (threadIdx.x & 1u) * (THREADS / 2) + (threadIdx.x >> 1);
        uint4 a = __ldcs(from), b = __ldcs(from + THREADS);
        a = exchange(a);
        b = exchange(b);
        float4 *to = (float4 *)(x + begin) + threadIdx.x;
        __stcs(to, widened<From>(a.x, a.y));
        __stcs(to + THREADS, widened<From>(a.z, a.w));
        __stcs(to + 2 * THREADS, widened<From>(b.x, b.y));
        __stcs(to + 3 * THREADS, widened<From>(b.z, b.w));
    }
}

#define FUNCTION(NAME, BODY, FROM) \
    extern "C" __global__ void __launch_bounds__(THREADS) \
        NAME(const unsigned short *__restrict__ h, float *__restrict__ x, size_t n) \
    { \
        BODY<FROM>(h, x, n); \
    }

FUNCTION(convert_gpu_widen_float16_v1, plain, Float16)
FUNCTION(convert_gpu_widen_float16_pairs, pairs, Float16)
FUNCTION(convert_gpu_widen_bfloat16_v1, plain, Bfloat16)
FUNCTION(convert_gpu_widen_bfloat16_pairs, pairs, Bfloat16)
