/* i2s_quantize: q[i] = rint(clamp(x[i] / scale, -2, 1)), the division in float32, ties to even. x is float32, float16
 * or bfloat16; the latter become float32 first.
 *
 * - v1: the first kernel (specification, 1.2): 256 threads, grid-stride, an IEEE division, one element a thread at a
 *   time.
 * - words (the variant `vector`): no division. The quotient is a monotone function of x, so the code changes at three
 *   values of x that are found once, on the host, by dividing (steps.py). Two 16-byte loads in flight in a thread (four
 *   8-byte loads for 16 bits), and a 4-byte store for each: a warp reads 512 bytes and writes 128 by one instruction. A
 *   block has one tile of 2048 elements. Loads and stores are plain: evict-first ones are slower.
 *
 * NaN and infinity: x * 0 is NaN for them and 0 for all others, so a sum of such products, one instruction an element,
 * shows whether a thread has met any. Only then it looks for the first. `bad` is lowered to its index.
 *
 * Limit: memory; 4 (or 2) bytes read and 1 written an element.
 *
 * All indices are size_t. At most 32 registers a thread: cuda.py limits the compiler, launch bounds would override it.
 *
 * Rates: `tritmark run --suite gpu --op i2s_quantize --device cuda`. Versions: docs/kernels/cuda_elementwise.md. */

/* Macros: THREADS, of a block; INPUT, of what is read, see element.cuh. */
#include "../cuda/element.cuh"

#define LOADS (8 / (int)sizeof(element)) /* under way in a thread: 32 bytes */

__device__ __forceinline__ bool nonfinite(float x) { return (__float_as_uint(x) & 0x7fffffffu) >= 0x7f800000u; }

extern "C" __global__ void i2s_gpu_quantize_v1(
    const element *__restrict__ x, signed char *__restrict__ q, float scale, size_t n, unsigned long long *bad)
{
    __shared__ float shared_scale[1];
    if (threadIdx.x == 0)
        shared_scale[0] = scale;
    __syncthreads();
    const size_t stride = (size_t)blockDim.x * gridDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        const float wide = value(x[i]);
        q[i] = (signed char)__float2int_rn(fmaxf(-2.0f, fminf(1.0f, __fdiv_rn(wide, shared_scale[0]))));
        if (nonfinite(wide))
            atomicMin(bad, (unsigned long long)i);
    }
}

/* `one` is the largest x of code 0, `two` the largest magnitude of code -1. */
__device__ __forceinline__ unsigned code(float x, float one, float two)
{
    return x > one ? 1u : x < -two ? 0xfeu : x < -one ? 0xffu : 0u;
}

__device__ __forceinline__ unsigned codes(float4 x, float one, float two)
{
    return code(x.x, one, two) | code(x.y, one, two) << 8 | code(x.z, one, two) << 16 | code(x.w, one, two) << 24;
}

__device__ __forceinline__ float suspect(float4 x, float so_far)
{
    return __fmaf_rn(x.x, 0.0f, __fmaf_rn(x.y, 0.0f, __fmaf_rn(x.z, 0.0f, __fmaf_rn(x.w, 0.0f, so_far))));
}

/* The elements of a tile that a thread owns: four at `begin`, and four after each further 4 * THREADS. */
__device__ __forceinline__ void find_nonfinite(const element *x, size_t begin, unsigned long long *bad)
{
    for (int load = 0; load < LOADS; load++)
        for (int k = 0; k < 4; k++)
            if (nonfinite(value(x[begin + load * 4 * THREADS + k]))) {
                atomicMin(bad, (unsigned long long)(begin + load * 4 * THREADS + k));
                return;
            }
}

/* The elements past the last whole tile. */
__device__ __forceinline__ void rest(
    const element *x, signed char *q, float one, float two, size_t begin, size_t n, unsigned long long *bad)
{
    for (size_t i = begin + threadIdx.x; i < n; i += THREADS) {
        const float wide = value(x[i]);
        q[i] = (signed char)code(wide, one, two);
        if (nonfinite(wide))
            atomicMin(bad, (unsigned long long)i);
    }
}

extern "C" __global__ void i2s_gpu_quantize_words(
    const element *__restrict__ x, signed char *__restrict__ q, float one, float two, size_t n, unsigned long long *bad)
{
    const size_t tile = (size_t)THREADS * 4 * LOADS;
    for (size_t begin = blockIdx.x * tile; begin < n; begin += gridDim.x * tile) {
        if (n - begin < tile) {
            rest(x, q, one, two, begin, n, bad);
            return;
        }
        const elements4 *from = (const elements4 *)(x + begin) + threadIdx.x;
        unsigned *to = (unsigned *)(q + begin) + threadIdx.x;
        elements4 four[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            four[i] = from[i * THREADS];
        float found = 0.0f;
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            to[i * THREADS] = codes(values(four[i]), one, two);
            found = suspect(values(four[i]), found);
        }
        if (found != 0.0f)
            find_nonfinite(x, begin + 4 * threadIdx.x, bad);
    }
}
