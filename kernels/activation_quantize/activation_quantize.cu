/* activation_quantize: for each row of K elements (float32, or float16 or bfloat16 as float32)
 *
 *     s = 127 / max(absmax, 1e-5);  q = clamp(rint(x * s), -128, 127), the float32 product, ties to even;  sum of q
 *
 * Exact on every path: neither a maximum nor an integer sum depends on the order; then one IEEE division a row and one
 * IEEE product an element. A block has a row; its grid is M blocks.
 * - v1: 256 threads, an element at a time, the row read twice; both reductions by halving in shared memory.
 * - kept: the row stays in registers between its maximum and its codes, 16 elements a thread, so it has at most 16
 *   * blockDim.x. 16-byte loads and 4-byte stores if the row is aligned to them. Adding 1.5 * 2^23 to a product rounds
 *   it to an integer, ties to even, and leaves the code in the low byte; one dp4a sums four. Two barriers.
 * - long: rows of any length, in steps of 16 * blockDim.x, read a second time for the codes (mostly from L2).
 *
 * |x * s| is at most 127 * (1 + 2^-23), which rounds to 127, so for finite rows the clamp has nothing to do. NaN and
 * infinity have the largest absolute bits, so the maximum shows them. `bad` is then lowered to the index, in the (M, K)
 * array, of the row's first, and the row's scale is NaN: a caller that does not wait for `bad` gets products of NaN.
 *
 * Limit: latency for few rows, then memory: x read once, 1 byte written an element.
 *
 * Rates: `tritmark run --suite gpu --op activation_quantize --device cuda`. Versions: docs/kernels/cuda_quantize.md. */

/* Macros: threads of a block, THREADS_V1 of `v1`, MOST_THREADS of the others at most; INPUT, see rows.cuh. */
#include "../cuda/overlap.cuh"
#include "rows.cuh"

#define LOADS 4

extern "C" __global__ void __launch_bounds__(THREADS_V1) ternary_gpu_activation_v1(
    const element *__restrict__ x, signed char *__restrict__ q, float *__restrict__ scale, int *__restrict__ sum,
    size_t K, size_t stride, unsigned long long *bad)
{
    __shared__ unsigned largest[THREADS_V1];
    __shared__ int sums[THREADS_V1];
    const element *row = x + blockIdx.x * stride;
    signed char *codes = q + blockIdx.x * K;
    unsigned mine = 0;
    for (size_t i = threadIdx.x; i < K; i += THREADS_V1)
        mine = max(mine, magnitude(value(row[i])));
    largest[threadIdx.x] = mine;
    __syncthreads();
    for (unsigned apart = THREADS_V1 / 2; apart; apart /= 2) {
        if (threadIdx.x < apart)
            largest[threadIdx.x] = max(largest[threadIdx.x], largest[threadIdx.x + apart]);
        __syncthreads();
    }
    if (largest[0] >= 0x7f800000u)
        find_nonfinite(row, K, blockIdx.x * K, bad);
    const float factor = scale_of(largest[0]);
    int total = 0;
    for (size_t i = threadIdx.x; i < K; i += THREADS_V1) {
        int code = __float2int_rn(fmaxf(-128.0f, fminf(127.0f, rintf(__fmul_rn(value(row[i]), factor)))));
        codes[i] = (signed char)code;
        total += code;
    }
    sums[threadIdx.x] = total;
    __syncthreads();
    for (unsigned apart = THREADS_V1 / 2; apart; apart /= 2) {
        if (threadIdx.x < apart)
            sums[threadIdx.x] += sums[threadIdx.x + apart];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        scale[blockIdx.x] = told(largest[0], factor);
        sum[blockIdx.x] = sums[0];
    }
}

__device__ __forceinline__ int warp_sum(int value)
{
#if __CUDA_ARCH__ >= 800
    return __reduce_add_sync(0xffffffffu, value);
#else
    for (int apart = 16; apart; apart /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, apart);
    return value;
#endif
}

/* The first warp gets the block's sum. */
__device__ __forceinline__ int block_sum(int value, int *shared)
{
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = value;
    __syncthreads();
    return threadIdx.x < 32 ? warp_sum(threadIdx.x < blockDim.x / 32 ? shared[threadIdx.x] : 0) : 0;
}

/* Write four codes from `at`, none past K; returns their sum. Elements past K are zero, and so are their codes. */
__device__ __forceinline__ int put(signed char *codes, float4 x, float factor, size_t at, size_t K, bool aligned)
{
    const unsigned four = codes4(x, factor);
    if (aligned && at + 4 <= K)
        *(unsigned *)(codes + at) = four;
    else
        for (int k = 0; k < 4; k++)
            if (at + k < K)
                codes[at + k] = (signed char)(four >> 8 * k);
    return __dp4a((int)four, 0x01010101, 0);
}

__device__ __forceinline__ bool aligned_to(const void *pointer, unsigned bytes) { return (size_t)pointer % bytes == 0; }

extern "C" __global__ void __launch_bounds__(MOST_THREADS) ternary_gpu_activation_kept(
    const element *x, signed char *q, float *scale, int *sum, size_t K, size_t stride, unsigned long long *bad)
{
    wait_for_the_one_before();
    __shared__ unsigned largest[32];
    __shared__ int sums[32];
    const element *row = x + blockIdx.x * stride;
    signed char *codes = q + blockIdx.x * K;
    const bool wide = aligned_to(row, sizeof(elements4)), whole = aligned_to(codes, 4);
    elements4 own[LOADS];
#pragma unroll
    for (int load = 0; load < LOADS; load++)
        own[load] = load4(row, 4 * (load * blockDim.x + threadIdx.x), K, wide);
    let_the_next_begin();
    unsigned mine = 0;
#pragma unroll
    for (int load = 0; load < LOADS; load++)
        mine = max(mine, highest(values(own[load])));
    mine = block_max(mine, largest);
    const float factor = scale_of(mine);
    int total = 0;
#pragma unroll
    for (int load = 0; load < LOADS; load++) {
        const size_t at = 4 * (load * blockDim.x + threadIdx.x);
        if (at < K)
            total += put(codes, values(own[load]), factor, at, K, whole);
    }
    total = block_sum(total, sums);
    if (threadIdx.x == 0) {
        scale[blockIdx.x] = told(mine, factor);
        sum[blockIdx.x] = total;
    }
    if (mine >= 0x7f800000u)
        find_nonfinite(row, K, blockIdx.x * K, bad);
}

/* One resident block is enough: for two the compiler would spill if x has 16 bits. */
extern "C" __global__ void __launch_bounds__(MOST_THREADS, 1) ternary_gpu_activation_long(
    const element *x, signed char *q, float *scale, int *sum, size_t K, size_t stride, unsigned long long *bad)
{
    wait_for_the_one_before();
    __shared__ unsigned largest[32];
    __shared__ int sums[32];
    const element *row = x + blockIdx.x * stride;
    signed char *codes = q + blockIdx.x * K;
    const bool wide = aligned_to(row, sizeof(elements4)), whole = aligned_to(codes, 4);
    const size_t step = (size_t)4 * LOADS * blockDim.x;
    unsigned mine = 0;
    for (size_t begin = 4 * threadIdx.x; begin < K; begin += step) {
        elements4 own[LOADS];
#pragma unroll
        for (int load = 0; load < LOADS; load++)
            own[load] = load4(row, begin + 4 * load * blockDim.x, K, wide);
#pragma unroll
        for (int load = 0; load < LOADS; load++)
            mine = max(mine, highest(values(own[load])));
    }
    let_the_next_begin();
    mine = block_max(mine, largest);
    const float factor = scale_of(mine);
    int total = 0;
    for (size_t begin = 4 * threadIdx.x; begin < K; begin += step) {
        elements4 own[LOADS];
#pragma unroll
        for (int load = 0; load < LOADS; load++)
            own[load] = load4(row, begin + 4 * load * blockDim.x, K, wide);
#pragma unroll
        for (int load = 0; load < LOADS; load++) {
            const size_t at = begin + 4 * load * blockDim.x;
            if (at < K)
                total += put(codes, values(own[load]), factor, at, K, whole);
        }
    }
    total = block_sum(total, sums);
    if (threadIdx.x == 0) {
        scale[blockIdx.x] = told(mine, factor);
        sum[blockIdx.x] = total;
    }
    if (mine >= 0x7f800000u)
        find_nonfinite(row, K, blockIdx.x * K, bad);
}
