/* ternary_matmul for M = 1 without tensor cores: weights (N, K) in row16, each read once, decoded in registers and
 * multiplied by dp4a.
 *
 * Layout: LANES lanes take 16 bytes = 64 weights each of the same row, ROWS rows at a time. STEPS of those loads a row
 * are in flight. All are issued before the activations are loaded, and the activations of a chunk serve ROWS rows.
 *
 * Algorithm: fields 1 and 2 of a word are masked, not shifted, so they count 4 and 16 times in sums of their own, which
 * are shifted back at the end. This is exact, because the last bits are zero. Field 3 would not fit a signed byte and
 * is shifted. Bound: 32 * 128 * K / 4 fits int32 for K <= 2^21 a lane, which holds with LANES >= 8 for every K < 2^23.
 * acc = sum(code * a) - sum(a), both summed in the same lane over the same k. Activations beyond K are read as 0.
 * `split` groups of LANES lanes share a row's K and add their sums in shared memory.
 *
 * Limit: 16 ands, 4 shifts and 16 dp4a for 64 weights, all in the integer pipe at half rate.
 *
 * Macros: LANES (8, 16, 32), ROWS, STEPS, THREADS (most threads of a block), STAGED: 1 takes activations through shared
 * memory, a pass at a time, 0 reads them where they are used.
 *
 * Rates: `tritmark run --suite gpu --op ternary_matmul --variant gemv_dp4a --device cuda`. Versions and what lost:
 * docs/kernels/cuda_gemv.md. */
#include "../cuda/overlap.cuh"
#include "common.cuh"

/* grid: any number of blocks; block: groups * split * LANES threads, groups >= 1 (a divisor if split > 1).
 * Dynamic shared memory: STAGED * STEPS * split * LANES * 64 bytes, then groups * ROWS * split * 4. Indexes the
 * bytes of weights in 64 bits. */
extern "C" __global__ void __launch_bounds__(THREADS) gemm_gemv_dp4a(
    const signed char *a, const uint4 *w, const float *act_scale, void *out, float weight_scale, int N, int K, int kind,
    int split)
{
    extern __shared__ __align__(16) unsigned char gemv_shared[];
    const int lane = threadIdx.x % LANES, part = threadIdx.x / LANES % split, group = threadIdx.x / (LANES * split);
    const int groups = blockDim.x / (LANES * split), wide = LANES * split; /* chunks of a row in one step */
    const int chunks = (K + CHUNK - 1) / CHUNK;
    const int rows = groups * ROWS, tiles = (N + rows - 1) / rows;
    const int mine = part * LANES + lane;
    const bool fast = ((unsigned long long)a & 15) == 0;
#if STAGED
    int4 *staged = (int4 *)gemv_shared; /* [STEPS * wide][4] */
#endif
    int *sums = (int *)(gemv_shared + STAGED * STEPS * wide * CHUNK); /* [split][rows] */
    double factor = 0;

#pragma unroll
    for (int s = 0; s < STEPS; s++)
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int row = (blockIdx.x * groups + group) * ROWS + r, chunk = s * wide + mine;
            if (row < N && chunk < chunks)
                prefetch(w + (long long)row * chunks + chunk);
        }
    wait_for_the_one_before();
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int row = tile * rows + group * ROWS;
        int acc[ROWS][3] = {};
        int act_sum = 0;
        for (int from = 0; from < chunks; from += STEPS * wide) {
            uint4 now[STEPS][ROWS];
#pragma unroll
            for (int s = 0; s < STEPS; s++)
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    const int chunk = from + s * wide + mine;
                    now[s][r] = row + r < N && chunk < chunks ? weights16(w + (long long)(row + r) * chunks + chunk)
                                                              : make_uint4(0, 0, 0, 0);
                }
            if (from == 0)
                let_the_next_begin();
            /* The factor is computed while the first weights are loaded. */
            const bool first = kind && tile == (int)blockIdx.x && from == 0;
            float scale = 1;
            if (first)
                scale = scale_early(act_scale);
#if STAGED
            for (int i = threadIdx.x; i < STEPS * wide * 4; i += blockDim.x)
                staged[i] = activations16(a, (long long)from * CHUNK + 16ll * i, K, fast);
#endif
            if (first)
                factor = output_factor_early(weight_scale, scale);
#if STAGED
            __syncthreads();
#endif
#pragma unroll
            for (int s = 0; s < STEPS; s++) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
#if STAGED
                    const int4 four = staged[(s * wide + mine) * 4 + j];
#else
                    const int4 four = activations16(a, (long long)CHUNK * (from + s * wide + mine) + 16 * j, K, fast);
#endif
                    act_sum = __dp4a(four.x, (int)ONES, act_sum);
                    act_sum = __dp4a(four.y, (int)ONES, act_sum);
                    act_sum = __dp4a(four.z, (int)ONES, act_sum);
                    act_sum = __dp4a(four.w, (int)ONES, act_sum);
#pragma unroll
                    for (int r = 0; r < ROWS; r++) {
                        const unsigned word = j == 0   ? now[s][r].x
                                              : j == 1 ? now[s][r].y
                                              : j == 2 ? now[s][r].z
                                                       : now[s][r].w;
                        acc[r][0] = __dp4a((int)(word & 0x03030303u), four.x, acc[r][0]);
                        acc[r][1] = __dp4a((int)(word & 0x0c0c0c0cu), four.y, acc[r][1]);
                        acc[r][2] = __dp4a((int)(word & 0x30303030u), four.z, acc[r][2]);
                        acc[r][0] = __dp4a((int)((word >> 6) & 0x03030303u), four.w, acc[r][0]);
                    }
                }
            }
#if STAGED
            __syncthreads(); /* before the next pass overwrites them */
#endif
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int sum = acc[r][0] + (acc[r][1] >> 2) + (acc[r][2] >> 4) - act_sum;
#pragma unroll
            for (int distance = LANES / 2; distance > 0; distance /= 2)
                sum += __shfl_xor_sync(0xffffffffu, sum, distance);
            if (split > 1) {
                if (lane == 0)
                    sums[part * rows + group * ROWS + r] = sum;
            } else if (lane == 0 && row + r < N)
                store(out, row + r, sum, factor, kind);
        }
        if (split > 1) {
            __syncthreads();
            for (int i = threadIdx.x; i < rows; i += blockDim.x) {
                int sum = 0;
                for (int p = 0; p < split; p++)
                    sum += sums[p * rows + i];
                if (tile * rows + i < N)
                    store(out, tile * rows + i, sum, factor, kind);
            }
            __syncthreads(); /* before the next tile overwrites them */
        }
    }
}
