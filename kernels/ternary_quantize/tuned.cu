/* ternary_quantize for blocks of 32, 64, 128 and 256, codes as int8 or packed in the same pass.
 *
 *     scale = max(absmax, 1e-8f);  q = (x > 0.5f * scale) - (x < -0.5f * scale)
 *
 * v1 (v1.cu)   the first algorithm (specification, 2.2): a thread an element, the maximum through shared memory. Eight
 *              barriers for 256 elements, 4-byte loads, and packed output takes a second pass over x.
 * tuned        a warp takes 512 consecutive floats in a step, four float4 a lane, all loaded before the first is used.
 *              Lane l has the floats 4 * (l % 8) .. + 3 of each quarter (32 floats) of the 128 that its 8 lanes share:
 *
 *                  x[g] = floats at step + 128 * (l / 8) + 32 * g + 4 * (l % 8),  g = 0..3
 *
 *              so that one load instruction covers four whole 128-byte lines, and
 *              - a block of 32, 64 or 128 lies within 8 lanes (three shuffles for each maximum), one of 256 within 16
 *                (four);
 *              - a lane has all of its 4 bytes of I2_S and of TQ2_0, whose byte j holds the elements j, j + 32, j + 64
 *                and j + 96: packing takes no exchange at all, and a warp stores 128 consecutive bytes;
 *              - a word of row16 (16 consecutive elements) is in 4 lanes, which exchange quarters: 3 shuffles for 16
 *                elements;
 *              - int8 codes take 4 shuffles for 16 elements to be stored as 16 bytes a lane.
 *
 * Bytes an element: 4 read; written 1 (int8) or 1/4 (packed), and 4 / block for the scale. Instructions an element,
 * counted in what nvcc 13.0 makes for sm_90, addresses and loop included: 8 to 12. Three quarters of one are the
 * maximum (|x| and the NaN come with it from sm_80 on) and four the code: the signs of half - x and half + x are the
 * comparisons, and byte permutations spread four signs over the bytes of a word. 132 multiprocessors at 1.7 GHz issue
 * about 30 for each element that 4.2 TB/s bring.
 *
 * int8 codes are made of float16 and bfloat16 too, which become float32 first.
 *
 * Measured on an H200, nothing of it in the L2 beforehand (us a call; TB/s of bytes read and written), with the version
 * of this file that still had the candidates below as template parameters, and evict-first loads and stores:
 *
 *                      n = 2^29                    n = 2^25                    n = 2^21
 *                   tuned      v1_warp     v1   tuned      v1_warp     v1   tuned      v1_warp     v1
 *     output block     us  TB/s     us     us      us  TB/s     us     us      us  TB/s     us     us
 *     int8     32     625  4.40   2761   5094    40.9  4.20    174    320    4.31  2.50   12.4   21.8
 *     int8     64     618  4.40   1898   5347    40.3  4.21    121    336    4.24  2.51    9.2   22.7
 *     int8    128     614  4.40   1510   5608    40.1  4.21     97    353    4.20  2.51    8.1   23.8
 *     int8    256     613  4.39   1378   5881    39.9  4.21     90    369    4.25  2.47    7.8   24.8
 *     i2s      32     533  4.41   3601   5968    35.2  4.17    228    376    4.05  2.27   16.6   26.0
 *     i2s      64     527  4.39   2754   6209    34.9  4.14    177    392    3.96  2.29   13.8   27.0
 *     i2s     128     524  4.39   2378   6471    34.6  4.15    154    407    3.91  2.30   12.6   28.1
 *     i2s     256     524  4.37   2265   6736    34.4  4.16    148    424    3.87  2.31   12.2   29.2
 *     row16    32     533  4.41   3455   5820    35.6  4.13    219    367    4.15  2.21   16.3   25.7
 *     row16    64     526  4.40   2620   6077    35.1  4.13    168    382    4.07  2.22   13.4   26.8
 *     row16   128     526  4.37   2243   6333    34.8  4.12    145    399    3.95  2.27   12.3   27.8
 *     row16   256     522  4.39   2137   6602    34.7  4.12    141    416    3.97  2.25   11.8   28.8
 *     tq2_0   256     523  4.39   2454   6920    34.8  4.12    161    436    3.92  2.28   13.0   30.0
 *
 * Kernels that read and write as much and do nothing else reach 4.40 TB/s (4 bytes read, 1 written) and 4.39 (4 read,
 * 1/4 written) at 2^29, 4.23 and 4.15 at 2^25, 2.61 and 2.45 at 2^21; reading alone 4.59 at 2^29. So the rate does not
 * depend on the block; what 32 costs more than 256, about 2 percent, are its scales.
 *
 * Tried and not better by half a percent at 2^29, nor at 2^25 but once (row16 in blocks of 128, 0.6 percent): 1024
 * floats a warp; the next 512 under way while these are worked on; int8 codes in stores of 4 bytes without an exchange;
 * loads that ask for 256 bytes; 128 or 512 threads; grids of 1 and 4 waves. At 2^21 some save 1 to 4 percent, which is
 * 0.05 to 0.14 us.
 *
 * Plain loads and stores, as they are now, are 2 percent faster than evict-first ones where launches go by turns over
 * several arrays (i2s_quantize.cu has the table; over one set of arrays there is no difference, which hid it). On an
 * H200 at 2^28, launches by turns over three sets, us and TB/s; torch.compile looks for no NaN:
 *
 *     output block   plain         evict-first   torch.compile
 *     int8     128   307.5, 4.39   313.8, 4.31   307.5, 4.39 (308.4 not tuned)
 *     int8      32   313.1, 4.39   319.7, 4.30   313.1, 4.39 (not tuned)
 *     i2s      128   261.2, 4.40   264.2, 4.35
 *
 * Measured once more, plain, all of it by turns, torch.compile tuned (max-autotune); 16-bit inputs are 3 bytes a float:
 *
 *     block           32            64            128           256
 *     int8            312.9, 4.40   309.7, 4.39   307.9, 4.39   306.8, 4.39
 *     torch.compile   313.1, 4.40   308.8, 4.40   307.3, 4.39   306.0, 4.40
 *     row16           267.1, 4.40   264.6, 4.38   262.9, 4.37   262.5, 4.36
 *     float16         219.5, 3.82                 193.8, 4.20
 *     torch.compile   196.4, 4.27                 194.9, 4.18
 *     bfloat16        210.0, 3.99                 195.4, 4.17
 *     torch.compile   196.0, 4.28                 199.3, 4.08
 *
 * What blocks of 32 lose with 16-bit inputs is not known: it is not the memory.
 *
 * Exact: a maximum does not round, half of a float of at least 1e-8 neither, and no difference rounds across zero. NaN
 * and infinity show in the maximum; the lanes of such a block then look for theirs and lower *bad to its index.
 *
 * All addresses are multiples of 16 bytes. Any n from 1 on that memory holds (64-bit indices). A last, partial step
 * reads what there is and takes the rest for 0, which is also what fills packed output up. Macros: THREADS, of a
 * block; INPUT, of what is read, see element.cuh. */
#include "../cuda/element.cuh"

namespace ternary_tuned {

typedef unsigned long long u64;

enum Output { INT8, I2S, ROW16, TQ2 };

const unsigned ALL = 0xffffffffu;
const unsigned INFINITE = 0x7f800000u; /* bits of a magnitude from here on are no number */
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

/* Four comparisons: 0xff in byte j where the j-th is true. */
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

/* The four fields q + 1, each of them at the two bits of its byte that `ones` has the lower one of. */
__device__ __forceinline__ unsigned fields(Signs found, unsigned ones)
{
    return (found.above & (ones << 1)) | (~(found.above | found.below) & ones);
}

/* Of the four floats at x the first `left`, which may be none, or more than there are here. */
__device__ __forceinline__ float4 load_part(const element *x, int left)
{
    return make_float4(
        left > 0 ? value(x[0]) : 0.0f, left > 1 ? value(x[1]) : 0.0f, left > 2 ? value(x[2]) : 0.0f,
        left > 3 ? value(x[3]) : 0.0f);
}

/* Lower *bad to the first of this lane's 16 floats, from index `at`, that is not finite, if one is. Rare, so it
 * reads them again. */
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
        /* Lane b of those that share the blocks keeps the scale of the b-th, so that one store takes all. */
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

/* Every warp of the grid takes steps, each so many behind the last as there are warps. */
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
