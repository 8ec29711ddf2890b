/* What Hopper's tensor cores can do at most: int8 products by wgmma (9.0a alone), faster than mma (ceilings.cu). A file
 * of its own, because only its architecture takes the instruction.
 *
 * Algorithm: every warpgroup makes products of 64 x 32 by 32 x 128, operand A in registers, B in shared memory, one
 * after the other into the same accumulators, ROUND of them before it waits. Another warpgroup of the multiprocessor
 * multiplies meanwhile.
 *
 * Limit: a multiprocessor makes a product in 64 cycles. The operands are small constants: bits that change take power,
 * and with it clock, so a kernel with real data stays below.
 *
 * Macro: THREADS, of a block.
 *
 * Rates: `tritmark machine`. Versions: docs/kernels/cuda_ceilings.md. */
#define COLUMNS 128
#define WARPGROUP 128
#define ROUND 8
#include "tiles/wgmma_int8.cuh"

typedef unsigned int u32;
typedef unsigned long long u64;

/* The given number of rounds over all warpgroups, ROUND products each. sums[block]: the accumulators, modulo 2^32. */
extern "C" __global__ void __launch_bounds__(THREADS) probe_gpu_wgmma(u64 rounds, u32 *sums)
{
    __shared__ __align__(1024) unsigned char tile[COLUMNS * DEPTH];
    __shared__ u32 total;
    for (int i = threadIdx.x; i < COLUMNS * DEPTH / 4; i += THREADS)
        ((u32 *)tile)[i] = 0x01010101u;
    if (threadIdx.x == 0)
        total = 0;
    multiply_sees();
    __syncthreads();

    const u64 warpgroups = THREADS / WARPGROUP, all = gridDim.x * warpgroups;
    const u32 word = 0x01010101u * (threadIdx.x & 3), a[4] = {word, word, word, word};
    int acc[COLUMNS / 2];
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; ++i)
        acc[i] = i;
    for (u64 round = blockIdx.x * warpgroups + threadIdx.x / WARPGROUP; round < rounds; round += all) {
        multiply_begin();
#pragma unroll
        for (int i = 0; i < ROUND; ++i)
            multiply(acc, a, tile, i % 4 * 32, 1);
        multiply_end();
        multiply_wait<0>();
    }
    u32 sum = 0;
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; ++i)
        sum += (u32)acc[i];
    atomicAdd(&total, sum);
    __syncthreads();
    if (threadIdx.x == 0)
        sums[blockIdx.x] = total;
}
