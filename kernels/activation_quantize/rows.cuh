/* Shared by kernels that quantize a row of activations: its largest magnitude, its scale and its codes. Macro: INPUT,
 * see element.cuh. */
#ifndef TRITMARK_ACTIVATION_ROWS
#define TRITMARK_ACTIVATION_ROWS
#include "../cuda/element.cuh"

#define ROUNDER 12582912.0f /* 1.5 * 2^23 */

__device__ __forceinline__ unsigned magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }

__device__ __forceinline__ float scale_of(unsigned largest)
{
    return __fdiv_rn(127.0f, fmaxf(__uint_as_float(largest), 1e-5f));
}

/* The scale that is stored: NaN for a row with a NaN or infinity. */
__device__ __forceinline__ float told(unsigned largest, float factor)
{
    return largest >= 0x7f800000u ? __uint_as_float(0x7fc00000u) : factor;
}

__device__ __forceinline__ unsigned warp_max(unsigned value)
{
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(0xffffffffu, value);
#else
    for (int apart = 16; apart; apart /= 2)
        value = max(value, __shfl_xor_sync(0xffffffffu, value, apart));
    return value;
#endif
}

/* Every thread gets the block's maximum. `shared` has a place for each warp. */
__device__ __forceinline__ unsigned block_max(unsigned value, unsigned *shared)
{
    value = warp_max(value);
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = value;
    __syncthreads();
    return warp_max(threadIdx.x % 32 < blockDim.x / 32 ? shared[threadIdx.x % 32] : 0u);
}

/* Four elements from `at`, zeros past K. `aligned`: the row is aligned to the bytes of four elements. */
__device__ __forceinline__ elements4 load4(const element *row, size_t at, size_t K, bool aligned)
{
    if (aligned && at + 4 <= K)
        return *(const elements4 *)(row + at);
    const element a = at < K ? row[at] : (element)0, b = at + 1 < K ? row[at + 1] : (element)0,
                  c = at + 2 < K ? row[at + 2] : (element)0, d = at + 3 < K ? row[at + 3] : (element)0;
#if INPUT == 32
    return make_float4(a, b, c, d);
#else
    return make_uint2(a | (unsigned)b << 16, c | (unsigned)d << 16);
#endif
}

__device__ __forceinline__ unsigned highest(float4 x)
{
    return max(max(magnitude(x.x), magnitude(x.y)), max(magnitude(x.z), magnitude(x.w)));
}

__device__ __forceinline__ unsigned rounded(float x, float factor)
{
    return __float_as_uint(__fadd_rn(__fmul_rn(x, factor), ROUNDER));
}

/* Lower `bad` to the index, `begin` further, of the first element that is not finite. */
__device__ __forceinline__ void find_nonfinite(const element *x, size_t K, size_t begin, unsigned long long *bad)
{
    for (size_t i = threadIdx.x; i < K; i += blockDim.x)
        if (magnitude(value(x[i])) >= 0x7f800000u) {
            atomicMin(bad, (unsigned long long)(begin + i));
            return;
        }
}

/* Four codes as the bytes of a word. */
__device__ __forceinline__ unsigned codes4(float4 x, float factor)
{
    const unsigned low = __byte_perm(rounded(x.x, factor), rounded(x.y, factor), 0x0040);
    const unsigned high = __byte_perm(rounded(x.z, factor), rounded(x.w, factor), 0x0040);
    return __byte_perm(low, high, 0x5410);
}
#endif
