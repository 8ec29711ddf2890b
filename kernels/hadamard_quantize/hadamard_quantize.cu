/* hadamard_quantize and hadamard_transform: for each row of K elements (float32, or float16 or bfloat16 as float32)
 *
 *     y = (x * signs) H / sqrt(block), in blocks of 64 to 1024, H the Walsh-Hadamard matrix in natural order
 *
 * and then the codes of y by the rule of activation_quantize, or y as floats. Additions are in the order h = 1, 2, 4,
 * ..., as in the kernels of the CPU, so both give the same bits. A row with a NaN or infinity in y has the scale NaN and
 * codes of 0: a caller that does not look at the scale gets products of NaN.
 *
 * A block has a row. 64 threads have a tile of 1024 elements, whatever the block is, with 16 elements each:
 * - from 16-byte loads four neighbours, four times: bits 0 and 1 of the index are in registers;
 * - through shared memory, bits 2 to 5;
 * - through shared memory, bits 6 to 9, of which a smaller block skips the upper ones. Here elements of a warp are
 *   neighbours, so its stores coalesce.
 * Four floats of padding after 64 keep all three accesses free of bank conflicts. Elements past K are zeros.
 * - one, two: the row stays in registers, a tile or two for each 64 threads.
 * - long: rows of any length, rotated a second time for the codes.
 *
 * Limit: latency for few rows (shared memory moves 4 KiB four times a tile), then memory.
 *
 * Rates: `python suites/performance/hadamard_cost.py --device cuda`. Page: docs/kernels/hadamard_quantize.md. */

/* Macros: MOST_THREADS of a block; INPUT, see element.cuh; OUTPUT, 32, 16 or 8 as INPUT, for the floats. */
#include "../activation_quantize/rows.cuh"
#include "../cuda/overlap.cuh"

#define TILE 1024
#define GROUP 64 /* threads of a tile */
#define EACH 16
#define LOADS 4
#define PADDED(at) ((at) + (at) / 64 * 4)

struct Tile {
    elements4 x[LOADS];
    unsigned signs[LOADS]; /* four bytes each */
};

__device__ __forceinline__ bool aligned_to(const void *pointer, unsigned bytes) { return (size_t)pointer % bytes == 0; }

/* Four elements from `at`, zeros past K. Both are multiples of 4, and K is below 2^24. `aligned`: the row is aligned to
 * the bytes of four elements. */
__device__ __forceinline__ elements4 elements_at(const element *row, unsigned at, unsigned K, bool aligned)
{
    elements4 four = {};
    if (at < K) {
        if (aligned)
            return *(const elements4 *)(row + at);
        const element *x = row + at;
#if INPUT == 32
        four = make_float4(x[0], x[1], x[2], x[3]);
#else
        four = make_uint2(x[0] | (unsigned)x[1] << 16, x[2] | (unsigned)x[3] << 16);
#endif
    }
    return four;
}

/* Four signs from `at`, as elements_at. */
__device__ __forceinline__ unsigned signs_at(const signed char *signs, unsigned at, unsigned K, bool aligned)
{
    if (at >= K)
        return 0;
    if (aligned)
        return *(const unsigned *)(signs + at);
    unsigned four = 0;
    for (int k = 0; k < 4; k++)
        four |= (unsigned)(unsigned char)signs[at + k] << 8 * k;
    return four;
}

__device__ __forceinline__ Tile
load_tile(const element *row, const signed char *signs, unsigned begin, unsigned K, bool wide, bool whole)
{
    Tile tile;
#pragma unroll
    for (int load = 0; load < LOADS; load++) {
        const unsigned at = begin + 4 * (load * GROUP + threadIdx.x % GROUP);
        tile.x[load] = elements_at(row, at, K, wide);
        tile.signs[load] = signs_at(signs, at, K, whole);
    }
    return tile;
}

/* Byte k of four as a float: the byte plus 128 becomes the last bits of 2^23. */
__device__ __forceinline__ float sign_of(unsigned four, int k)
{
    return __fadd_rn(__uint_as_float(__byte_perm(four ^ 0x80808080u, 0x4b000000u, 0x7540 + k)), -8388736.0f);
}

__device__ __forceinline__ void butterfly(float &a, float &b)
{
    const float sum = __fadd_rn(a, b), difference = __fsub_rn(a, b);
    a = sum;
    b = difference;
}

/* The butterfly of a * sign and b * other: products with signs are exact, so a multiply-add rounds as an addition. */
__device__ __forceinline__ void signed_butterfly(float &a, float &b, float sign, float other)
{
    const float second = __fmul_rn(b, other);
    b = __fmaf_rn(a, sign, -second);
    a = __fmaf_rn(a, sign, second);
}

/* The rotated tile in registers: v[e] is element 64 * e + (thread of the group). `shared` is the group's own. All
 * threads of the block call this. */
__device__ __forceinline__ void rotate(const Tile &tile, unsigned size, float factor, float *shared, float *v)
{
    const unsigned thread = threadIdx.x % GROUP;
#pragma unroll
    for (int load = 0; load < LOADS; load++) {
        const unsigned four = tile.signs[load];
        float4 x = values(tile.x[load]);
        signed_butterfly(x.x, x.y, sign_of(four, 0), sign_of(four, 1));
        signed_butterfly(x.z, x.w, sign_of(four, 2), sign_of(four, 3));
        butterfly(x.x, x.z);
        butterfly(x.y, x.w);
        *(float4 *)(shared + PADDED(4 * (load * GROUP + thread))) = x;
    }
    __syncthreads();
    float *own = shared + PADDED(thread / 4 * 64) + thread % 4;
#pragma unroll
    for (int e = 0; e < EACH; e++)
        v[e] = own[4 * e];
#pragma unroll
    for (int h = 1; h < EACH; h *= 2)
#pragma unroll
        for (int e = 0; e < EACH; e++)
            if (!(e & h))
                butterfly(v[e], v[e + h]);
#pragma unroll
    for (int e = 0; e < EACH; e++)
        own[4 * e] = v[e];
    __syncthreads();
#pragma unroll
    for (int e = 0; e < EACH; e++)
        v[e] = shared[PADDED(64 * e) + thread];
#pragma unroll
    for (int h = 1; h < EACH; h *= 2)
        if (size > 64 * h) {
#pragma unroll
            for (int e = 0; e < EACH; e++)
                if (!(e & h))
                    butterfly(v[e], v[e + h]);
        }
#pragma unroll
    for (int e = 0; e < EACH; e++)
        v[e] = __fmul_rn(v[e], factor);
}

/* The larger magnitude, NaN if either is. */
__device__ __forceinline__ float larger(float largest, float y)
{
#if !defined(TRITMARK_SIMULATOR) && __CUDA_ARCH__ >= 800
    float found;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(largest), "f"(fabsf(y)));
    return found;
#else
    return __uint_as_float(max(__float_as_uint(largest), magnitude(y)));
#endif
}

__device__ __forceinline__ float largest_of(const float *v, float largest)
{
#pragma unroll
    for (int e = 0; e < EACH; e++)
        largest = larger(largest, v[e]);
    return largest;
}

/* Write the codes of a tile that begins at `begin`; returns their sum. A row that is not finite has codes of 0. Elements
 * past K are zeros, and so are their codes. */
__device__ __forceinline__ int put(
    signed char *codes, const float *v, float scale, unsigned begin, unsigned K, bool finite)
{
    codes += begin + threadIdx.x % GROUP;
    if (!finite) {
        for (int e = 0; e < EACH; e++)
            if (begin + 64 * e < K)
                codes[64 * e] = 0;
        return 0;
    }
    unsigned total = 0;
    const bool whole = begin + TILE <= K;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const unsigned bits = rounded(v[e], scale); /* the code is in its low byte */
        total += bits;
        if (whole || begin + 64 * e < K)
            codes[64 * e] = (signed char)bits;
    }
    return (int)(total - EACH * __float_as_uint(ROUNDER));
}

__device__ __forceinline__ int warp_total(int value)
{
#if __CUDA_ARCH__ >= 800
    return __reduce_add_sync(0xffffffffu, value);
#else
    for (int apart = 16; apart; apart /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, apart);
    return value;
#endif
}

/* Store the row's scale and sum. `shared` has a place for each warp. */
__device__ __forceinline__ void finish(float *scale, int *sum, unsigned largest, float factor, int total, int *shared)
{
    total = warp_total(total);
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = total;
    __syncthreads();
    if (threadIdx.x < 32) {
        total = warp_total(threadIdx.x < blockDim.x / 32 ? shared[threadIdx.x] : 0);
        if (threadIdx.x == 0) {
            scale[blockIdx.x] = told(largest, factor);
            sum[blockIdx.x] = total;
        }
    }
}

#ifndef OUTPUT
template <int STEPS>
__device__ __forceinline__ void kept(
    const element *x, const signed char *signs, signed char *q, float *scale, int *sum, unsigned K, size_t stride,
    unsigned size, float factor, float *shared, unsigned *maxima, int *sums)
{
    wait_for_the_one_before();
    const element *row = x + blockIdx.x * stride;
    const bool wide = aligned_to(row, sizeof(elements4)), whole = aligned_to(signs, 4);
    const unsigned group = threadIdx.x / GROUP, groups = blockDim.x / GROUP;
    float *own = shared + group * PADDED(TILE);
    Tile tiles[STEPS];
#pragma unroll
    for (int step = 0; step < STEPS; step++)
        tiles[step] = load_tile(row, signs, TILE * (step * groups + group), K, wide, whole);
    let_the_next_begin();
    float v[STEPS][EACH];
    float found = 0.0f;
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        if (step)
            __syncthreads(); /* the step before has read its tile */
        rotate(tiles[step], size, factor, own, v[step]);
        found = largest_of(v[step], found);
    }
    const unsigned largest = block_max(__float_as_uint(found), maxima);
    const float by = scale_of(largest);
    int total = 0;
#pragma unroll
    for (int step = 0; step < STEPS; step++)
        total += put(q + (size_t)blockIdx.x * K, v[step], by, TILE * (step * groups + group), K, largest < 0x7f800000u);
    finish(scale, sum, largest, by, total, sums);
}

extern "C" __global__ void __launch_bounds__(MOST_THREADS) ternary_gpu_hadamard_one(
    const element *x, const signed char *signs, signed char *q, float *scale, int *sum, unsigned K, size_t stride,
    unsigned size, float factor)
{
    extern __shared__ __align__(16) float hadamard_shared[];
    __shared__ unsigned maxima[32];
    __shared__ int sums[32];
    kept<1>(x, signs, q, scale, sum, K, stride, size, factor, hadamard_shared, maxima, sums);
}

/* One resident block is enough: for two the compiler would spill. */
extern "C" __global__ void __launch_bounds__(MOST_THREADS, 1) ternary_gpu_hadamard_two(
    const element *x, const signed char *signs, signed char *q, float *scale, int *sum, unsigned K, size_t stride,
    unsigned size, float factor)
{
    extern __shared__ __align__(16) float hadamard_shared[];
    __shared__ unsigned maxima[32];
    __shared__ int sums[32];
    kept<2>(x, signs, q, scale, sum, K, stride, size, factor, hadamard_shared, maxima, sums);
}

extern "C" __global__ void __launch_bounds__(MOST_THREADS) ternary_gpu_hadamard_long(
    const element *x, const signed char *signs, signed char *q, float *scale, int *sum, unsigned K, size_t stride,
    unsigned size, float factor)
{
    extern __shared__ __align__(16) float hadamard_shared[];
    __shared__ unsigned maxima[32];
    __shared__ int sums[32];
    wait_for_the_one_before();
    const element *row = x + blockIdx.x * stride;
    const bool wide = aligned_to(row, sizeof(elements4)), whole = aligned_to(signs, 4);
    const unsigned group = threadIdx.x / GROUP, groups = blockDim.x / GROUP;
    float *own = hadamard_shared + group * PADDED(TILE);
    float v[EACH];
    float found = 0.0f;
    for (unsigned first = 0; first < K; first += TILE * groups) {
        rotate(load_tile(row, signs, first + TILE * group, K, wide, whole), size, factor, own, v);
        found = largest_of(v, found);
        __syncthreads();
    }
    let_the_next_begin();
    const unsigned largest = block_max(__float_as_uint(found), maxima);
    const float by = scale_of(largest);
    int total = 0;
    for (unsigned first = 0; first < K; first += TILE * groups) {
        rotate(load_tile(row, signs, first + TILE * group, K, wide, whole), size, factor, own, v);
        total += put(q + (size_t)blockIdx.x * K, v, by, first + TILE * group, K, largest < 0x7f800000u);
        __syncthreads();
    }
    finish(scale, sum, largest, by, total, sums);
}
#else
#if OUTPUT == 32
typedef float output;
#else
typedef unsigned short output; /* its bits */
#endif

__device__ __forceinline__ output narrowed(float y)
{
#if OUTPUT == 32
    return y;
#elif OUTPUT == 16
    return __half_as_ushort(__float2half_rn(y));
#else
    const unsigned bits = __float_as_uint(y);
    return magnitude(y) > 0x7f800000u ? (output)0x7fc0u : (output)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#endif
}

extern "C" __global__ void __launch_bounds__(MOST_THREADS) ternary_gpu_hadamard_floats(
    const element *x, const signed char *signs, output *y, unsigned K, size_t stride, unsigned size, float factor)
{
    extern __shared__ __align__(16) float hadamard_shared[];
    wait_for_the_one_before();
    const element *row = x + blockIdx.x * stride;
    const bool wide = aligned_to(row, sizeof(elements4)), whole = aligned_to(signs, 4);
    const unsigned group = threadIdx.x / GROUP, groups = blockDim.x / GROUP, thread = threadIdx.x % GROUP;
    float *own = hadamard_shared + group * PADDED(TILE);
    float v[EACH];
    for (unsigned first = 0; first < K; first += TILE * groups) {
        const unsigned begin = first + TILE * group;
        rotate(load_tile(row, signs, begin, K, wide, whole), size, factor, own, v);
#pragma unroll
        for (int e = 0; e < EACH; e++)
            if (begin + 64 * e < K)
                y[(size_t)blockIdx.x * K + begin + 64 * e + thread] = narrowed(v[e]);
        __syncthreads();
    }
    let_the_next_begin();
}
#endif
