/* unpack_codes: the bytes of a weight format into int8 codes (N, K), row-major.
 *
 * Algorithm: 16 codes a thread in one 16-byte store. In row16 they are one word. I2_S and TQ2_0: they are one field of
 * 16 bytes, which four threads of a warp load, each to take another field: the same addresses in one instruction, so
 * memory reads them once. Blocks of TQ2_0 lie 66 bytes apart, so every second one is loaded in words that are shifted
 * by half a word. A field 3 lowers *bad to the index of its code. In row16, padding that is not w = 0 lowers it to
 * N * K + row, which lies behind every code.
 *
 * Limit: memory; 1/4 byte read and 1 written a code.
 *
 * `packed` and `codes` are aligned to 16 bytes; indices are of 64 bits. In row16 with K no multiple of 16 rows lie at
 * any address, so their codes are stored one by one. Macro: THREADS, of a block.
 *
 * Rates: `tritmark run --suite FILE --op unpack_codes --device cuda`. Page: docs/kernels/cuda_elementwise.md. */
#include <cuda_fp16.h>

namespace ternary_unpack {

typedef unsigned long long u64;

/* Nonzero if one of four fields is 3. */
__device__ __forceinline__ unsigned wrong(unsigned fields) { return fields & (fields >> 1) & 0x01010101u; }

__device__ __forceinline__ unsigned codes_of(unsigned fields) { return (fields + 0x7f7f7f7fu) ^ 0x80808080u; }

/* Lower *bad to `at` plus the number of the first of 16 fields that is 3. */
__device__ __forceinline__ void report(uint4 f, u64 at, u64 *bad)
{
    const unsigned words[4] = {f.x, f.y, f.z, f.w};
#pragma unroll
    for (int e = 15; e >= 0; e--)
        if ((words[e / 4] >> 8 * (e % 4) & 3) == 3)
            atomicMin(bad, at + e);
}

/* A float16 scale as float32, exactly. A NaN becomes the quiet one of its sign and payload, which the GPU's own
 * instruction loses. */
__device__ __forceinline__ float scale_of(unsigned short half)
{
    const unsigned bits = half;
    return (bits & 0x7fffu) > 0x7c00u ? __uint_as_float((bits & 0x8000u) << 16 | 0x7fc00000u | (bits & 0x03ffu) << 13)
                                      : __half2float(__ushort_as_half(half));
}

__device__ __forceinline__ uint4 field(uint4 v, int shift)
{
    return make_uint4(
        v.x >> shift & 0x03030303u, v.y >> shift & 0x03030303u, v.z >> shift & 0x03030303u, v.w >> shift & 0x03030303u);
}

/* Check 16 fields, and store them as the codes from index `at`. */
__device__ __forceinline__ void put(uint4 f, signed char *codes, u64 at, u64 *bad)
{
    if (wrong(f.x) | wrong(f.y) | wrong(f.z) | wrong(f.w))
        report(f, at, bad);
    *(uint4 *)(codes + at) = make_uint4(codes_of(f.x), codes_of(f.y), codes_of(f.z), codes_of(f.w));
}

} // namespace ternary_unpack

/* I2_S x86; n = N * K, a multiple of 128. */
extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_unpack_i2s(
    const unsigned char *packed, signed char *codes, float *scale, unsigned long long *bad, unsigned long long n)
{
    using namespace ternary_unpack;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n / 16; i += (u64)gridDim.x * blockDim.x) {
        const int t = (int)(i & 7); /* of the 8 threads of a group: field t / 2 of the bytes 16 * (t % 2) .. + 15 */
        const uint4 v = *(const uint4 *)(packed + i / 8 * 32 + 16 * (t & 1));
        put(field(v, 6 - 2 * (t >> 1)), codes, i * 16, bad);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *scale = *(const float *)(packed + n / 4);
}

/* TQ2_0; n = N * K, K a multiple of 256. */
extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_unpack_tq2_0(
    const unsigned char *packed, signed char *codes, float *scales, unsigned long long *bad, unsigned long long n)
{
    using namespace ternary_unpack;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n / 16; i += (u64)gridDim.x * blockDim.x) {
        /* of the 16 threads of a block: half u / 8, field u % 8 / 2 of the bytes 16 * (u % 2) .. + 15 */
        const int u = (int)(i & 15);
        const u64 block = i / 16, from = block * 66 + 32 * (u >> 3) + 16 * (u & 1);
        const unsigned *words = (const unsigned *)(packed + (from & ~3ull));
        uint4 v = make_uint4(words[0], words[1], words[2], words[3]);
        if (from & 2) {
            v = make_uint4(
                __byte_perm(v.x, v.y, 0x5432), __byte_perm(v.y, v.z, 0x5432), __byte_perm(v.z, v.w, 0x5432),
                __byte_perm(v.w, words[4], 0x5432));
        }
        put(field(v, 2 * (u >> 1 & 3)), codes, i * 16, bad);
        if (u == 0)
            scales[block] = scale_of(*(const unsigned short *)(packed + block * 66 + 64));
    }
}

/* row16. */
extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_unpack_row16(
    const unsigned *packed, signed char *codes, float *scale, unsigned long long *bad, unsigned long long N,
    unsigned long long K)
{
    using namespace ternary_unpack;
    const u64 of_row = (K + 63) / 64 * 4, words = N * of_row;
    for (u64 w = (u64)blockIdx.x * blockDim.x + threadIdx.x; w < words; w += (u64)gridDim.x * blockDim.x) {
        const u64 row = w / of_row, column = (w - row * of_row) * 16, at = row * K + column;
        const unsigned word = packed[w];
        if (K % 16 == 0 && column < K) {
            put(make_uint4(
                    word & 0x03030303u, word >> 2 & 0x03030303u, word >> 4 & 0x03030303u, word >> 6 & 0x03030303u),
                codes, at, bad);
            continue;
        }
        for (int e = 0; e < 16; e++) {
            const unsigned field = word >> (8 * (e % 4) + 2 * (e / 4)) & 3;
            if (column + e < K) {
                codes[at + e] = (signed char)((int)field - 1);
                if (field == 3)
                    atomicMin(bad, at + e);
            } else if (field != 1) {
                atomicMin(bad, N * K + row);
            }
        }
    }
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *scale = __uint_as_float(packed[words]);
}
