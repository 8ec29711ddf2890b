/* ternary_quantize for any block: for each `block` consecutive floats (the last block may be shorter)
 *
 *     scale = max(absmax, 1e-8f);  q = (x > 0.5f * scale) - (x < -0.5f * scale)
 *
 * - v1: the first kernel (specification, 2.2), corrected as docs/kernels/cuda_quantize.md lists: the maximum by a tree
 *   in shared memory, barrier by barrier.
 * - v1_warp: the maximum by warp shuffles; no barrier for blocks that a warp takes alone (up to 1024), one per 8 warps'
 *   maxima for larger ones.
 * - split_*: blocks of more than 8192. One pass joins the maxima of pieces of 8192 in the scales by atomicMax (the same
 *   in any order), a second one writes the codes. A third, before both, sets the scales to 1e-8.
 * - v1_pack_*: packed output for any block. Groups of codes and blocks need not meet, so x is read a second time, with
 *   the scales, by a thread for each byte.
 *
 * Exact: the maximum is one of integers (bits without the sign), half of a float of at least 1e-8 does not round. An
 * integer maximum of 0x7f800000 or more means NaN or infinity: the block's threads then lower *bad to the index of
 * theirs.
 *
 * Limit: barriers and 4-byte loads. Bytes an element: 4 read, 1 written, 4 / block for the scale; packed: 8 read, 1/4
 * written; split: 8 read, 1 or 1/4 written.
 *
 * Any n and block >= 1 (64-bit indices); addresses aligned to their elements. Macro: THREADS, of a block.
 * Rates: `tritmark run --suite gpu --op ternary_quantize --device cuda`. Versions: docs/kernels/cuda_quantize.md. */
#include <cuda_fp16.h>

namespace ternary_v1 {

typedef unsigned long long u64;

const unsigned ALL = 0xffffffffu;
const unsigned INFINITE = 0x7f800000u;
const u64 PIECE = 8192; /* floats of a quantization block that a thread block of the split kernels takes at a time */

__device__ __forceinline__ unsigned magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }

__device__ __forceinline__ float scale_of(unsigned most) { return __uint_as_float(max(most, __float_as_uint(1e-8f))); }

__device__ __forceinline__ signed char code(float x, float half) { return (signed char)((x > half) - (x < -half)); }

/* Largest magnitude of x[begin], x[begin + stride], ... below end, as bits; lowers *bad to what is not finite. */
__device__ __forceinline__ unsigned walk(const float *x, u64 begin, u64 end, int stride, u64 *bad)
{
    unsigned most = 0;
    for (u64 i = begin; i < end; i += stride) {
        const unsigned bits = magnitude(x[i]);
        if (bits >= INFINITE)
            atomicMin(bad, i);
        most = max(most, bits);
    }
    return most;
}

__device__ __forceinline__ void write_codes(
    const float *x, signed char *codes, u64 begin, u64 end, int stride, float half)
{
    for (u64 i = begin; i < end; i += stride)
        codes[i] = code(x[i], half);
}

/* The p-th piece of all quantization blocks, of `pieces` each; empty behind the last element. */
struct Piece {
    u64 block, begin, end;
};

__device__ __forceinline__ Piece piece(u64 p, u64 pieces, u64 n, u64 block)
{
    const u64 b = p / pieces, begin = b * block + (p - b * pieces) * PIECE,
              last = (b + 1) * block < n ? (b + 1) * block : n;
    return Piece{b, begin, begin + PIECE < last ? begin + PIECE : last};
}

/* The field q + 1 of element i, 1 past the end. */
__device__ __forceinline__ unsigned field(const float *x, const float *scales, u64 i, u64 n, u64 block)
{
    return i < n ? 1 + code(x[i], 0.5f * scales[i / block]) : 1;
}

/* The fields of the elements at, at + apart, at + 2 * apart and at + 3 * apart, the first at bit `shift`, the next
 * at shift + step. */
__device__ __forceinline__ unsigned char byte_of(
    const float *x, const float *scales, u64 at, int apart, int shift, int step, u64 n, u64 block)
{
    unsigned byte = 0;
    for (int g = 0; g < 4; g++)
        byte |= field(x, scales, at + apart * g, n, block) << (shift + step * g);
    return (unsigned char)byte;
}

} // namespace ternary_v1

/* `codes` may be null: scales only. */
extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_v1(
    const float *x, signed char *codes, float *scales, unsigned long long *bad, unsigned long long n,
    unsigned long long block)
{
    using namespace ternary_v1;
    __shared__ unsigned most[256];
    const int width = block < THREADS ? (int)block : THREADS; /* threads of a quantization block */
    const int each = THREADS / width;                        /* quantization blocks of a thread block */
    const int mine = threadIdx.x / width, place = threadIdx.x % width;
    const u64 blocks = (n + block - 1) / block;
    int tree = 1;
    while (tree < width)
        tree *= 2;
    for (u64 first = (u64)blockIdx.x * each; first < blocks; first += (u64)gridDim.x * each) {
        const u64 b = first + mine;
        const bool busy = mine < each && b < blocks;
        const u64 begin = b * block + place, last = (b + 1) * block, end = last < n ? last : n;
        most[threadIdx.x] = busy ? walk(x, begin, end, width, bad) : 0;
        __syncthreads();
        for (int away = tree / 2; away > 0; away /= 2) {
            if (busy && place < away && place + away < width)
                most[threadIdx.x] = max(most[threadIdx.x], most[threadIdx.x + away]);
            __syncthreads();
        }
        if (busy) {
            const float scale = scale_of(most[threadIdx.x - place]);
            if (place == 0)
                scales[b] = scale;
            if (codes)
                write_codes(x, codes, begin, end, width, 0.5f * scale);
        }
        __syncthreads();
    }
}

/* `codes` may be null: scales only. */
extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_v1_warp(
    const float *x, signed char *codes, float *scales, unsigned long long *bad, unsigned long long n,
    unsigned long long block)
{
    using namespace ternary_v1;
    __shared__ unsigned of_warp[8];
    const bool alone = block <= 1024; /* a warp takes a quantization block alone, else a thread block does */
    const int width = alone ? 32 : THREADS, each = THREADS / width;
    const int lane = threadIdx.x & 31, place = threadIdx.x & (width - 1);
    const u64 blocks = (n + block - 1) / block;
    for (u64 b = (u64)blockIdx.x * each + threadIdx.x / width; b < blocks; b += (u64)gridDim.x * each) {
        const u64 begin = b * block + place, last = (b + 1) * block, end = last < n ? last : n;
        unsigned most = walk(x, begin, end, width, bad);
        for (int away = 16; away > 0; away /= 2)
            most = max(most, __shfl_xor_sync(ALL, most, away));
        if (!alone) {
            if (lane == 0)
                of_warp[threadIdx.x / 32] = most;
            __syncthreads();
            for (int w = 0; w < 8; w++)
                most = max(most, of_warp[w]);
            __syncthreads();
        }
        const float scale = scale_of(most);
        if (place == 0)
            scales[b] = scale;
        if (codes)
            write_codes(x, codes, begin, end, width, 0.5f * scale);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_split_begin(float *scales, unsigned long long blocks)
{
    using namespace ternary_v1;
    for (u64 b = (u64)blockIdx.x * blockDim.x + threadIdx.x; b < blocks; b += (u64)gridDim.x * blockDim.x)
        scales[b] = scale_of(0);
}

/* Raises the scales, which split_begin has set, to the largest magnitude of their blocks. */
extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_split_scales(
    const float *__restrict__ x, float *scales, unsigned long long *bad, unsigned long long n, unsigned long long block)
{
    using namespace ternary_v1;
    __shared__ unsigned of_warp[8];
    const u64 pieces = (block + PIECE - 1) / PIECE, all = (n + block - 1) / block * pieces;
    for (u64 p = blockIdx.x; p < all; p += gridDim.x) {
        const Piece here = piece(p, pieces, n, block);
        unsigned most = 0;
#pragma unroll 8
        for (u64 i = here.begin + threadIdx.x; i < here.end; i += THREADS)
            most = max(most, magnitude(x[i]));
        if (most >= INFINITE)
            walk(x, here.begin + threadIdx.x, here.end, THREADS, bad);
        for (int away = 16; away > 0; away /= 2)
            most = max(most, __shfl_xor_sync(ALL, most, away));
        if ((threadIdx.x & 31) == 0)
            of_warp[threadIdx.x / 32] = most;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int w = 1; w < 8; w++)
                most = max(most, of_warp[w]);
            atomicMax((unsigned *)scales + here.block, most);
        }
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_split_codes(
    const float *__restrict__ x, const float *__restrict__ scales, signed char *__restrict__ codes,
    unsigned long long n, unsigned long long block)
{
    using namespace ternary_v1;
    const u64 pieces = (block + PIECE - 1) / PIECE, all = (n + block - 1) / block * pieces;
    for (u64 p = blockIdx.x; p < all; p += gridDim.x) {
        const Piece here = piece(p, pieces, n, block);
        const float half = 0.5f * scales[here.block];
#pragma unroll 8
        for (u64 i = here.begin + threadIdx.x; i < here.end; i += THREADS)
            codes[i] = code(x[i], half);
    }
}

/* I2_S x86: byte j % 32 of a group of 128 has element j at shift 6 - 2 * (j / 32). */
extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_v1_pack_i2s(
    const float *x, const float *scales, unsigned char *packed, unsigned long long n, unsigned long long block)
{
    using namespace ternary_v1;
    const u64 bytes = (n + 127) / 128 * 32;
    for (u64 p = (u64)blockIdx.x * blockDim.x + threadIdx.x; p < bytes; p += (u64)gridDim.x * blockDim.x)
        packed[p] = byte_of(x, scales, p / 32 * 128 + p % 32, 32, 6, -2, n, block);
}

/* row16: element e of 16 in byte e % 4 of a word, at shift 2 * (e / 4), filled up to 64 elements. */
extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_v1_pack_row16(
    const float *x, const float *scales, unsigned char *packed, unsigned long long n, unsigned long long block)
{
    using namespace ternary_v1;
    const u64 bytes = (n + 63) / 64 * 16;
    for (u64 p = (u64)blockIdx.x * blockDim.x + threadIdx.x; p < bytes; p += (u64)gridDim.x * blockDim.x)
        packed[p] = byte_of(x, scales, p / 4 * 16 + p % 4, 4, 0, 2, n, block);
}

/* TQ2_0: 64 bytes of 256 elements, element e in byte 32 * (e / 128) + e % 32 at shift 2 * (e % 128 / 32), then the
 * scale as half. */
extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_v1_pack_tq2_0(
    const float *x, const float *scales, unsigned char *packed, unsigned long long n, unsigned long long block)
{
    using namespace ternary_v1;
    const u64 bytes = (n + 255) / 256 * 66;
    for (u64 p = (u64)blockIdx.x * blockDim.x + threadIdx.x; p < bytes; p += (u64)gridDim.x * blockDim.x) {
        const u64 b = p / 66;
        const int i = (int)(p - b * 66);
        if (i < 64)
            packed[p] = byte_of(x, scales, b * 256 + i / 32 * 128 + i % 32, 32, 0, 2, n, block);
        else
            packed[p] = (unsigned char)(__half_as_ushort(__float2half_rn(scales[b])) >> 8 * (i - 64));
    }
}
