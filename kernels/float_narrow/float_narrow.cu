/* float_narrow: float32 to float16 or bfloat16, rounded to nearest even; past the largest finite value to infinity. A
 * NaN becomes the quiet NaN of its sign and its payload's leading bits, as IEEE 754 recommends and x86 and ARM do. The
 * GPU's own instruction loses both.
 *
 * - v1: 256 threads, grid-stride, one element a thread at a time: a warp reads 128 bytes and writes 64 by one
 *   instruction.
 * - words (the variant `vector`): four 16-byte loads in flight in a thread, and an 8-byte store for each. A block has
 *   one tile of 4096 elements.
 *
 * Limit: memory; 4 bytes read and 2 written an element. All indices are size_t.
 *
 * Rates: `tritmark run --suite gpu --op float_narrow --device cuda`. Versions: docs/kernels/cuda_elementwise.md. */
#include <cuda_fp16.h>

/* Macro: THREADS, of a block. */

struct Float16 {
    static __device__ __forceinline__ unsigned bits(float x)
    {
        const unsigned from = __float_as_uint(x), to = __half_as_ushort(__float2half_rn(x));
        return (from & 0x7fffffffu) > 0x7f800000u ? (from >> 16 & 0x8000u) | 0x7e00u | (from >> 13 & 0x01ffu) : to;
    }
};

struct Bfloat16 {
    /* Half of the last place is added, or a little less if the last kept bit is 0: that rounds to nearest even, and
     * overflow gives infinity. */
    static __device__ __forceinline__ unsigned bits(float x)
    {
        const unsigned from = __float_as_uint(x);
        return (from & 0x7fffffffu) > 0x7f800000u ? from >> 16 | 0x0040u : (from + 0x7fffu + (from >> 16 & 1u)) >> 16;
    }
};

template <class To> __device__ __forceinline__ void plain(
    const float *__restrict__ x, unsigned short *__restrict__ h, size_t n)
{
    const size_t stride = (size_t)blockDim.x * gridDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        h[i] = (unsigned short)To::bits(x[i]);
}

template <class To> __device__ __forceinline__ uint2 narrowed(float4 x)
{
    return make_uint2(To::bits(x.x) | To::bits(x.y) << 16, To::bits(x.z) | To::bits(x.w) << 16);
}

/* The elements past the last whole tile. */
template <class To> __device__ __forceinline__ void rest(const float *x, unsigned short *h, size_t begin, size_t n)
{
    for (size_t i = begin + threadIdx.x; i < n; i += THREADS)
        h[i] = (unsigned short)To::bits(x[i]);
}

template <class To> __device__ __forceinline__ void words(
    const float *__restrict__ x, unsigned short *__restrict__ h, size_t n)
{
    const size_t tile = THREADS * 16;
    for (size_t begin = blockIdx.x * tile; begin < n; begin += gridDim.x * tile) {
        if (n - begin < tile) {
            rest<To>(x, h, begin, n);
            return;
        }
        const float4 *from = (const float4 *)(x + begin) + threadIdx.x;
        uint2 *to = (uint2 *)(h + begin) + threadIdx.x;
        float4 a = __ldcs(from), b = __ldcs(from + THREADS), c = __ldcs(from + 2 * THREADS),
               d = __ldcs(from + 3 * THREADS);
        __stcs(to, narrowed<To>(a));
        __stcs(to + THREADS, narrowed<To>(b));
        __stcs(to + 2 * THREADS, narrowed<To>(c));
        __stcs(to + 3 * THREADS, narrowed<To>(d));
    }
}

#define FUNCTION(NAME, BODY, TO) \
    extern "C" __global__ void __launch_bounds__(THREADS) \
        NAME(const float *__restrict__ x, unsigned short *__restrict__ h, size_t n) \
    { \
        BODY<TO>(x, h, n); \
    }

FUNCTION(convert_gpu_narrow_float16_v1, plain, Float16)
FUNCTION(convert_gpu_narrow_float16_words, words, Float16)
FUNCTION(convert_gpu_narrow_bfloat16_v1, plain, Bfloat16)
FUNCTION(convert_gpu_narrow_bfloat16_words, words, Bfloat16)
