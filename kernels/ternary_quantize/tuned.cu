/* ternary_quantize for blocks of 32, 64, 128 and 256, codes as int8 or packed in the same pass, of float32, float16 or
 * bfloat16 (codes as int8 alone): scale = max(absmax, 1e-8f); q = (x > 0.5f * scale) - (x < -0.5f * scale)
 *
 * Layout: a warp takes 512 consecutive floats in a step, four float4 a lane, all loaded before the first is used:
 *
 *     x[g] = floats at step + 128 * (l / 8) + 32 * g + 4 * (l % 8),  g = 0..3
 *
 * So one load instruction covers four whole 128-byte lines, and
 * - a block of 32, 64 or 128 lies within 8 lanes (three shuffles for each maximum), one of 256 within 16 (four);
 * - a lane has all of its 4 bytes of I2_S and of TQ2_0: packing takes no exchange, a warp stores 128 contiguous bytes;
 * - a word of row16 (16 consecutive elements) takes 3 shuffles for 16 elements, 16 bytes of int8 codes a lane take 4.
 *
 * Exact: a maximum does not round, half of a float of at least 1e-8 neither, and no difference rounds across zero. NaN
 * and infinity show in the maximum; the lanes of such a block then look for theirs and lower *bad to its index.
 *
 * Limit: memory. Bytes an element: 4 read; 1 (int8) or 1/4 (packed) written, and 4 / block for the scale. 8 to 12
 * instructions an element, where 132 multiprocessors at 1.7 GHz issue about 30 for each element that 4.2 TB/s bring.
 *
 * All addresses are multiples of 16 bytes. Any n >= 1 that memory holds (64-bit indices). A last, partial step takes
 * missing elements for 0, which also pads packed output. Macros: THREADS, of a block; INPUT, see element.cuh.
 * Rates: `tritmark run --suite gpu --op ternary_quantize --device cuda`. Versions: docs/kernels/cuda_quantize.md. */
#include "../cuda/element.cuh"

namespace ternary_tuned {

typedef unsigned long long u64;

enum Output { INT8, I2S, ROW16, TQ2 };

const unsigned ALL = 0xffffffffu;
const unsigned INFINITE = 0x7f800000u; /* magnitudes with these bits or larger are infinity or NaN */
const int STEP = 512;                  /* floats of a warp's step */

/* Bits of the larger magnitude; NaN wins. */
__device__ __forceinline__ unsigned larger(float a, float b)
{
#if !defined(TRITMARK_SIMULATOR) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    float most;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(fabsf(a)), "f"(fabsf(b)));
    return __float_as_uint(most);
#else
    return max(__float_as_uint(a) & 0x7fffffffu, __float_as_uint(b) & 0x7fffffffu);
#endif
}

__device__ __forceinline__ unsigned largest(float4 x)
{
    return larger(__uint_as_float(larger(x.x, x.y)), __uint_as_float(larger(x.z, x.w)));
}

/* Four comparisons: 0xff in byte j if the j-th is true. */
struct Signs {
    unsigned above, below; /* x > half; x < -half */
};

/* The signs of four floats, each spread over a byte. */
__device__ __forceinline__ unsigned signs(float a, float b, float c, float d)
{
#ifndef TRITMARK_SIMULATOR
    unsigned ab, cd, all;
    asm("prmt.b32 %0, %1, %2, 0x00fb;" : "=r"(ab) : "r"(__float_as_uint(a)), "r"(__float_as_uint(b)));
    asm("prmt.b32 %0, %1, %2, 0x00fb;" : "=r"(cd) : "r"(__float_as_uint(c)), "r"(__float_as_uint(d)));
    asm("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(all) : "r"(ab), "r"(cd));
    return all;
#else
    return (__float_as_uint(a) >> 31) * 0xffu | (__float_as_uint(b) >> 31) * 0xff00u |
           (__float_as_uint(c) >> 31) * 0xff0000u | (__float_as_uint(d) >> 31) * 0xff000000u;
#endif
}

/* A difference is rounded, but never across zero, and an exact zero is +0: its sign is the comparison. */
__device__ __forceinline__ Signs compared(float4 x, float half)
{
    Signs found;
    found.above = signs(half - x.x, half - x.y, half - x.z, half - x.w);
    found.below = signs(half + x.x, half + x.y, half + x.z, half + x.w);
    return found;
}

/* The four codes as int8: 0xff, 0 or 1. */
__device__ __forceinline__ unsigned int8_codes(Signs found) { return found.below | (found.above & 0x01010101u); }

/* The four fields q + 1, each at the two bits of its byte whose lower one is set in `ones`. */
__device__ __forceinline__ unsigned fields(Signs found, unsigned ones)
{
    return (found.above & (ones << 1)) | (~(found.above | found.below) & ones);
}

/* The first `left` of the four floats at x, zeros for the rest; `left` may be 0 or more than 4. */
__device__ __forceinline__ float4 load_part(const element *x, int left)
{
    return make_float4(
        left > 0 ? value(x[0]) : 0.0f, left > 1 ? value(x[1]) : 0.0f, left > 2 ? value(x[2]) : 0.0f,
        left > 3 ? value(x[3]) : 0.0f);
}

/* Lower *bad to the first of this lane's 16 floats, from index `at`, that is not finite. Rare, so it reads them
 * again. */
__device__ __forceinline__ void report(const element *x, u64 at, u64 n, u64 *bad)
{
#pragma unroll 1
    for (int e = 0; e < 16; e++) {
        const u64 i = at + 32 * (e >> 2) + (e & 3);
        if (i < n && (__float_as_uint(value(x[i])) & 0x7fffffffu) >= INFINITE) {
            atomicMin(bad, i);
            return;
        }
    }
}

/* q[g] of four lanes that differ in their two lowest bits i become, in lane i, the words of g = i from lanes 0 to 3. */
__device__ __forceinline__ uint4 transposed(const unsigned (&q)[4], int lane)
{
    const bool odd = lane & 1, high = lane & 2;
    const unsigned a = __shfl_xor_sync(ALL, odd ? q[0] : q[1], 1);
    const unsigned b = __shfl_xor_sync(ALL, odd ? q[2] : q[3], 1);
    const unsigned low0 = odd ? a : q[0], low1 = odd ? q[1] : a;
    const unsigned high0 = odd ? b : q[2], high1 = odd ? q[3] : b;
    const unsigned c = __shfl_xor_sync(ALL, high ? low0 : high0, 2);
    const unsigned d = __shfl_xor_sync(ALL, high ? low1 : high1, 2);
    return high ? make_uint4(c, d, high0, high1) : make_uint4(low0, low1, c, d);
}

/* As `transposed`, but the four words are merged by OR. */
__device__ __forceinline__ unsigned merged(const unsigned (&p)[4], int lane)
{
    const bool odd = lane & 1, high = lane & 2;
    const unsigned low = (odd ? p[1] : p[0]) | __shfl_xor_sync(ALL, odd ? p[0] : p[1], 1);
    const unsigned up = (odd ? p[3] : p[2]) | __shfl_xor_sync(ALL, odd ? p[2] : p[3], 1);
    return (high ? up : low) | __shfl_xor_sync(ALL, high ? low : up, 2);
}

/* A step of a warp, which is in its lanes' registers; `step` is the index in x of its first float. WHOLE: all of it
 * lies below n; else x has its first `left` floats. */
template <int BLOCK, int OUT, bool WHOLE>
__device__ __forceinline__ void finish(
    const float4 (&v)[4], const element *x, void *codes, float *scales, u64 *bad, u64 n, u64 step, int left, int lane)
{
    const int G = lane >> 3, s = lane & 7;
    const int SAME = BLOCK >= 128 ? 4 : BLOCK / 32; /* quarters of the same block */
    const int BLOCKS = 4 / SAME;                    /* blocks that a lane meets */
    const int LANES = BLOCK == 256 ? 16 : 8;        /* lanes that share a block */
    float half[BLOCKS];
    float scale = 0.0f;
    unsigned any = 0;
    const int mine = lane & (LANES - 1);
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
        unsigned most = largest(v[b * SAME]);
#pragma unroll
        for (int g = 1; g < SAME; g++)
            most = max(most, largest(v[b * SAME + g]));
#pragma unroll
        for (int away = 1; away < LANES; away *= 2)
            most = max(most, __shfl_xor_sync(ALL, most, away));
        any = max(any, most);
        const float of_block = __uint_as_float(max(most, __float_as_uint(1e-8f)));
        half[b] = 0.5f * of_block;
        /* Lane b of those that share the blocks keeps the scale of block b, so that one store writes all. */
        if (mine == b)
            scale = of_block;
    }
    if (any >= INFINITE)
        report(x, step + 128 * G + 4 * s, n, bad);
    if (mine < BLOCKS) {
        const int at = lane / LANES * BLOCKS + mine;
        if (WHOLE || at * BLOCK < left)
            scales[step / BLOCK + at] = scale;
    }
    if (OUT == INT8) {
        unsigned q[4];
#pragma unroll
        for (int g = 0; g < 4; g++)
            q[g] = int8_codes(compared(v[g], half[g / SAME]));
        signed char *to = (signed char *)codes + step;
        if (WHOLE) {
            *(uint4 *)(to + 128 * G + 32 * (s & 3) + 16 * (s >> 2)) = transposed(q, lane);
        } else {
            const int at = 128 * G + 4 * s;
#pragma unroll
            for (int g = 0; g < 4; g++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    if (at + 32 * g + j < left)
                        to[at + 32 * g + j] = (signed char)(q[g] >> 8 * j);
        }
    } else if (OUT == ROW16) {
        unsigned p[4];
#pragma unroll
        for (int g = 0; g < 4; g++)
            p[g] = fields(compared(v[g], half[g / SAME]), 0x01010101u << (2 * (s & 3)));
        const int at = 8 * G + 2 * (s & 3) + (s >> 2);
        const unsigned word = merged(p, lane);
        if (WHOLE || at / 4 * 64 < left)
            ((unsigned *)codes)[step / 16 + at] = word;
    } else if (OUT == I2S) {
        unsigned word = 0;
#pragma unroll
        for (int g = 0; g < 4; g++)
            word |= fields(compared(v[g], half[g / SAME]), 0x01010101u << (6 - 2 * g));
        if (WHOLE || 128 * G < left)
            ((unsigned *)codes)[step / 16 + lane] = word;
    } else {
        unsigned word = 0;
#pragma unroll
        for (int g = 0; g < 4; g++)
            word |= fields(compared(v[g], half[g / SAME]), 0x01010101u << (2 * g));
        const unsigned d = __half_as_ushort(__float2half_rn(2.0f * half[0]));
        unsigned char *to = (unsigned char *)codes + step / 256 * 66;
        if (WHOLE) {
            /* Two blocks are 33 words; those of the second begin in the middle of word 16, behind the first one's d. */
            const unsigned first_d = __shfl_sync(ALL, d, 0) << 16;
            const unsigned before = __shfl_up_sync(ALL, word, 1);
            const unsigned late = __byte_perm(lane == 16 ? first_d : before, word, 0x5432);
            ((unsigned *)to)[lane] = lane < 16 ? word : late;
            if (lane == 31)
                ((unsigned *)to)[32] = __byte_perm(word, d, 0x5432);
        } else if ((lane & 16) * 16 < left) {
            unsigned short *block = (unsigned short *)(to + (lane >> 4) * 66);
            block[2 * (lane & 15)] = (unsigned short)word;
            block[2 * (lane & 15) + 1] = (unsigned short)(word >> 16);
            if ((lane & 15) == 0)
                block[32] = (unsigned short)d;
        }
    }
}

/* Every warp of the grid takes steps at the distance of the number of warps. */
template <int BLOCK, int OUT> __device__ __forceinline__ void run(
    const element *x, void *codes, float *scales, u64 *bad, u64 n)
{
    const int lane = threadIdx.x & 31;
    const int offset = 128 * (lane >> 3) + 4 * (lane & 7);
    const u64 warps = (u64)gridDim.x * blockDim.x / 32;
    u64 step = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32 * STEP;
    float4 v[4];
    for (; step + STEP <= n; step += warps * STEP) {
#pragma unroll
        for (int g = 0; g < 4; g++)
            v[g] = values(*(const elements4 *)(x + step + offset + 32 * g));
        finish<BLOCK, OUT, true>(v, x, codes, scales, bad, n, step, 0, lane);
    }
    if (step < n) {
        const int left = (int)(n - step);
#pragma unroll
        for (int g = 0; g < 4; g++)
            v[g] = load_part(x + step + offset + 32 * g, left - offset - 32 * g);
        finish<BLOCK, OUT, false>(v, x, codes, scales, bad, n, step, left, lane);
    }
}

} // namespace ternary_tuned

extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_int8_32(
    const element *x, signed char *codes, float *scales, unsigned long long *bad, unsigned long long n)
{
    ternary_tuned::run<32, ternary_tuned::INT8>(x, codes, scales, bad, n);
}

extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_int8_64(
    const element *x, signed char *codes, float *scales, unsigned long long *bad, unsigned long long n)
{
    ternary_tuned::run<64, ternary_tuned::INT8>(x, codes, scales, bad, n);
}

extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_int8_128(
    const element *x, signed char *codes, float *scales, unsigned long long *bad, unsigned long long n)
{
    ternary_tuned::run<128, ternary_tuned::INT8>(x, codes, scales, bad, n);
}

extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_int8_256(
    const element *x, signed char *codes, float *scales, unsigned long long *bad, unsigned long long n)
{
    ternary_tuned::run<256, ternary_tuned::INT8>(x, codes, scales, bad, n);
}

#if INPUT == 32
extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_i2s_32(
    const element *x, unsigned char *codes, float *scales, unsigned long long *bad, unsigned long long n)
{
    ternary_tuned::run<32, ternary_tuned::I2S>(x, codes, scales, bad, n);
}

extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_i2s_64(
    const element *x, unsigned char *codes, float *scales, unsigned long long *bad, unsigned long long n)
{
    ternary_tuned::run<64, ternary_tuned::I2S>(x, codes, scales, bad, n);
}

extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_i2s_128(
    const element *x, unsigned char *codes, float *scales, unsigned long long *bad, unsigned long long n)
{
    ternary_tuned::run<128, ternary_tuned::I2S>(x, codes, scales, bad, n);
}

extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_i2s_256(
    const element *x, unsigned char *codes, float *scales, unsigned long long *bad, unsigned long long n)
{
    ternary_tuned::run<256, ternary_tuned::I2S>(x, codes, scales, bad, n);
}

extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_row16_32(
    const element *x, unsigned char *codes, float *scales, unsigned long long *bad, unsigned long long n)
{
    ternary_tuned::run<32, ternary_tuned::ROW16>(x, codes, scales, bad, n);
}

extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_row16_64(
    const element *x, unsigned char *codes, float *scales, unsigned long long *bad, unsigned long long n)
{
    ternary_tuned::run<64, ternary_tuned::ROW16>(x, codes, scales, bad, n);
}

extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_row16_128(
    const element *x, unsigned char *codes, float *scales, unsigned long long *bad, unsigned long long n)
{
    ternary_tuned::run<128, ternary_tuned::ROW16>(x, codes, scales, bad, n);
}

extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_row16_256(
    const element *x, unsigned char *codes, float *scales, unsigned long long *bad, unsigned long long n)
{
    ternary_tuned::run<256, ternary_tuned::ROW16>(x, codes, scales, bad, n);
}

extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_tq2_0_256(
    const element *x, unsigned char *codes, float *scales, unsigned long long *bad, unsigned long long n)
{
    ternary_tuned::run<256, ternary_tuned::TQ2>(x, codes, scales, bad, n);
}
#endif
