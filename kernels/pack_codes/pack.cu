/* pack_codes: int8 codes (N, K), row-major, into the bytes of a weight format.
 *
 * Algorithm: 16 codes a thread in one 16-byte load. In row16 they are one word. I2_S and TQ2_0: byte j of a group of
 * 128 codes holds the codes j, j + 32, j + 64 and j + 96, which are in four lanes. After three shuffles (each lane
 * hands over half of what it has, then half of that) each lane has one word of 4 bytes. Stores are of 4 bytes, a warp's
 * next to each other. A code outside -1..1 lowers *bad to its index; the bytes are then without meaning.
 *
 * Limit: memory; 1 byte read and 1/4 written a code.
 *
 * `codes` and `packed` are aligned to 16 bytes; indices are of 64 bits. In row16 with K no multiple of 16 rows lie at
 * any address, so their codes are loaded one by one. Macro: THREADS, of a block.
 *
 * Rates: `tritmark run --suite FILE --op pack_codes --device cuda`. Page: docs/kernels/cuda_elementwise.md. */
#include <cuda_fp16.h>

namespace ternary_pack {

typedef unsigned long long u64;

const unsigned ALL = 0xffffffffu;

/* Four codes as fields: (w + 1) & 3 in each byte. */
__device__ __forceinline__ unsigned fields(unsigned codes)
{
    return ((codes & 0x03030303u) + 0x01010101u) & 0x03030303u;
}

/* Nonzero if one of four bytes is no code: its field is 3, or decodes to another byte. */
__device__ __forceinline__ unsigned wrong(unsigned codes)
{
    const unsigned f = fields(codes);
    return (f & (f >> 1) & 0x01010101u) | (codes ^ (f + 0x7f7f7f7fu) ^ 0x80808080u);
}

__device__ __forceinline__ void report(uint4 v, u64 at, u64 *bad)
{
    const unsigned words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int e = 15; e >= 0; e--) {
        const signed char code = (signed char)(words[e / 4] >> 8 * (e % 4));
        if (code < -1 || code > 1)
            atomicMin(bad, at + e);
    }
}

__device__ __forceinline__ void check(uint4 v, u64 at, u64 *bad)
{
    if (wrong(v.x) | wrong(v.y) | wrong(v.z) | wrong(v.w))
        report(v, at, bad);
}

/* Lane l has the codes 16 * l .. + 15 of 512: field g of the bytes 16 * h .. + 15 of a group's 32, g = l / 2 % 4, h
 * = l % 2. It gets the word of the bytes 16 * h + 4 * g .. + 3; field g of a byte is at shift first + step * g. */
__device__ __forceinline__ unsigned exchanged(uint4 v, int lane, int first, int step)
{
    const int shift = first + step * (lane >> 1 & 3);
    const unsigned a = fields(v.x) << shift, b = fields(v.y) << shift, c = fields(v.z) << shift,
                   d = fields(v.w) << shift;
    const bool odd = lane & 2, high = lane & 4;
    const unsigned low = (odd ? b : a) | __shfl_xor_sync(ALL, odd ? a : b, 2);
    const unsigned up = (odd ? d : c) | __shfl_xor_sync(ALL, odd ? c : d, 2);
    return (high ? up : low) | __shfl_xor_sync(ALL, high ? low : up, 4);
}

/* A scale as float16: to nearest even; overflow gives infinity, a NaN the quiet NaN of its sign. */
__device__ __forceinline__ unsigned half_of(float scale)
{
    return scale != scale ? (__float_as_uint(scale) >> 16 & 0x8000u) | 0x7e00u
                          : __half_as_ushort(__float2half_rn(scale));
}

__device__ __forceinline__ void trailer(unsigned *to, const float *scale, int words)
{
    if (blockIdx.x == 0 && threadIdx.x < words)
        to[threadIdx.x] = threadIdx.x ? 0u : __float_as_uint(*scale);
}

} // namespace ternary_pack

/* I2_S x86; n = N * K, a multiple of 128. */
extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_pack_i2s(
    const signed char *codes, const float *scale, unsigned *packed, unsigned long long *bad, unsigned long long n)
{
    using namespace ternary_pack;
    const int lane = threadIdx.x & 31;
    const u64 warps = (u64)gridDim.x * blockDim.x / 32;
    for (u64 step = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32 * 512; step < n; step += warps * 512) {
        const u64 at = step + 16 * lane;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (at < n)
            v = *(const uint4 *)(codes + at);
        check(v, at, bad);
        const unsigned word = exchanged(v, lane, 6, -2);
        if (at < n)
            packed[step / 16 + (lane & ~7) + 4 * (lane & 1) + (lane >> 1 & 3)] = word;
    }
    trailer(packed + n / 16, scale, 8);
}

/* TQ2_0; n = N * K, K a multiple of 256, `scales` one for each 256 codes. */
extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_pack_tq2_0(
    const signed char *codes, const float *scales, unsigned char *packed, unsigned long long *bad, unsigned long long n)
{
    using namespace ternary_pack;
    const int lane = threadIdx.x & 31;
    const u64 warps = (u64)gridDim.x * blockDim.x / 32;
    for (u64 step = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32 * 512; step < n; step += warps * 512) {
        const u64 at = step + 16 * lane, block = at / 256;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (at < n)
            v = *(const uint4 *)(codes + at);
        check(v, at, bad);
        /* In the order of the bytes: lane 8 * G + 4 * h + g. */
        const unsigned word =
            __shfl_sync(ALL, exchanged(v, lane, 0, 2), (lane & ~7) | (lane & 3) << 1 | (lane >> 2 & 1));
        const unsigned d = at < n ? half_of(scales[block]) : 0;
        /* Two blocks are 33 words; those of the second begin in the middle of word 16, behind the first one's d. */
        const unsigned before = __shfl_up_sync(ALL, word, 1), first_d = __shfl_sync(ALL, d, 0);
        unsigned *to = (unsigned *)(packed + step / 256 * 66);
        if (lane < 16)
            to[lane] = word;
        else if (at < n)
            to[lane] = __byte_perm(lane == 16 ? first_d << 16 : before, word, 0x5432);
        else if (lane == 16) /* there is no second block */
            *(unsigned short *)(to + 16) = (unsigned short)first_d;
        if (lane == 31 && at < n)
            to[32] = __byte_perm(word, d, 0x5432);
    }
}

/* row16. */
extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_pack_row16(
    const signed char *codes, const float *scale, unsigned *packed, unsigned long long *bad, unsigned long long N,
    unsigned long long K)
{
    using namespace ternary_pack;
    const u64 of_row = (K + 63) / 64 * 4, words = N * of_row;
    for (u64 w = (u64)blockIdx.x * blockDim.x + threadIdx.x; w < words; w += (u64)gridDim.x * blockDim.x) {
        const u64 row = w / of_row, column = (w - row * of_row) * 16, at = row * K + column;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (K % 16 == 0) {
            if (column < K)
                v = *(const uint4 *)(codes + at);
        } else {
            unsigned fours[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                fours[i] = 0;
#pragma unroll
                for (int j = 0; j < 4; j++)
                    if (column + 4 * i + j < K)
                        fours[i] |= (unsigned)(unsigned char)codes[at + 4 * i + j] << 8 * j;
            }
            v = make_uint4(fours[0], fours[1], fours[2], fours[3]);
        }
        check(v, at, bad);
        packed[w] = fields(v.x) | fields(v.y) << 2 | fields(v.z) << 4 | fields(v.w) << 6;
    }
    trailer(packed + words, scale, 16);
}
