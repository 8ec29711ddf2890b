/* ternary_matmul for 2 to 8 rows of activations on the tensor cores: weights (N, K) in row16, each read once and
 * decoded in registers, activations in shared memory.
 *
 * Layout: fragments as in gemv_mma.cu. A warp reads 64 activations of each row by four loads of 16 bytes, from
 * different banks.
 *
 * Algorithm: a warp takes all of K, or an equal share, of 16 or 32 rows. It has all of its weights in registers before
 * it waits for the launch before. The weights take at most half of a multiprocessor's registers, so two launches have
 * room. Activations enter shared memory behind the wait. Weights are decoded as fields 0, 1, 2, four by one
 * instruction; that adds the sum of the activations to each output. The sum is taken once a block, from the registers
 * that are multiplied, by the warps of one tile a step, and subtracted at the end. All lanes divide the factors,
 * without a branch (common.cuh), so the compiler puts the division between the products.
 *
 * Limit: memory, then activations: each further row costs its way from L2, K bytes for each multiprocessor, and through
 * shared memory.
 *
 * Macros: PAIRS (1, 2: of 8-row groups of a warp), TILES (of 16 * PAIRS rows of a block), STEPS (of 256 k of a warp),
 * THREADS (most threads of a block).
 *
 * Rates: `python suites/performance/gpu_peers.py --rows 2 4 8`;
 * `tritmark tune instances --op ternary_matmul --shape M,N,K`
 * measures all instances. Versions and what lost: docs/kernels/cuda_gemv.md. */
#include "../cuda/overlap.cuh"
#include "common.cuh"
#include "../cuda/tiles/mma.cuh"

#define TILE (16 * PAIRS * TILES)
#define PITCH (TILE + 4) /* of sums: lanes write to different banks */

#ifndef TRITMARK_GEMV_SHARED
#define TRITMARK_GEMV_SHARED
/* The place of 16 bytes, number `part` of 4, of the activations of a chunk of row m: eight lanes, of two rows and four
 * chunks, read the same part from different banks. Rows are `pitch` bytes apart, a multiple of 128. */
__device__ __forceinline__ int placed(int m, int pitch, int chunk, int part)
{
    return m * pitch + chunk * 64 + ((part ^ (chunk >> 1 & 1) ^ 2 * (m & 1)) << 4);
}
#endif

/* grid: a block for each TILE rows of weights; block: TILES * split warps, 256 * STEPS * split >= K. Dynamic shared
 * memory: M * pitch, with K in chunks rounded up to 128, then 4 * split * M * PITCH, then 96 bytes. */
extern "C" __global__ void __launch_bounds__(THREADS) gemm_gemv_shared(
    const signed char *a, const uint4 *w, const float *act_scale, void *out, long long lda, float weight_scale, int M,
    int N, int K, int kind, int constant)
{
    extern __shared__ __align__(16) unsigned char gemv_shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int g = lane / 4, t = lane % 4;
    const int chunks = (K + CHUNK - 1) / CHUNK, pitch = (chunks + 1) / 2 * 128, split = warps / TILES;
    const int tile = warp % TILES, part = warp / TILES, n0 = blockIdx.x * TILE;
    const int first = 4 * STEPS * part + t; /* chunk of this lane in the first step */
    signed char *const acts = (signed char *)gemv_shared; /* [M][pitch] */
    double *const factors = (double *)(acts + M * pitch); /* [8] */
    int *const row_sums = (int *)(factors + 8); /* [8] */
    int *const sums = row_sums + 8; /* [split][M][PITCH] */

    uint4 now[STEPS][2 * PAIRS];
    const auto each_of = [&](const auto &take) {
#pragma unroll
        for (int s = 0; s < STEPS; s++)
#pragma unroll
            for (int r = 0; r < 2 * PAIRS; r++) {
                const int row = n0 + 16 * PAIRS * tile + 8 * r + g, chunk = first + 4 * s;
                take(s, r, w + (long long)row * chunks + chunk, row < N && chunk < chunks);
            }
    };
    if (!constant) {
        each_of([](int, int, const uint4 *at, bool there) {
            if (there)
                prefetch(at);
        });
        wait_for_the_one_before();
    }
    each_of(
        [&](int s, int r, const uint4 *at, bool there) { now[s][r] = there ? weights16(at) : make_uint4(0, 0, 0, 0); });
    if (constant)
        wait_for_the_one_before();
    else
        let_the_next_begin();

    const bool fast = (((unsigned long long)a | (unsigned long long)lda) & 15) == 0;
    for (int m = 0; m < M; m++) {
        const signed char *const row = a + m * lda;
        for (int unit = threadIdx.x; unit < 4 * chunks; unit += blockDim.x) {
            signed char *const to = acts + placed(m, pitch, unit / 4, unit % 4);
            if (fast)
                copy_async(to, row + 16 * unit, min(16, max(0, K - 16 * unit)));
            else
                *(int4 *)to = activations16(row, 16ll * unit, K, false);
        }
    }
    if (threadIdx.x < M)
        row_sums[threadIdx.x] = 0;
    const float scale = kind && lane < M ? scale_early(act_scale + lane) : 1.0f;
    if (constant)
        let_the_next_begin();
#ifndef TRITMARK_SIMULATOR
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
    __syncthreads();

    /* Of row `lane`, by all warps: in a branch the compiler would not move it between the products. */
    const double factor = output_factor(weight_scale, scale);
    int acc[PAIRS][4][4] = {}; /* pair of 8-row groups, field, element of the fragment */
    int row_sum = 0; /* of row g, of the steps that the warps of this tile sum */
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        const int chunk = first + 4 * s;
        int b[16] = {};
        if (g < M && chunk < chunks)
#pragma unroll
            for (int i = 0; i < 4; i++)
                *(int4 *)(b + 4 * i) = *(const int4 *)(acts + placed(g, pitch, chunk, i));
        if (tile == s % TILES)
#pragma unroll
            for (int i = 0; i < 16; i++)
                row_sum = __dp4a(b[i], (int)ONES, row_sum);
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const unsigned mask = 0x03030303u << 2 * i;
#pragma unroll
                for (int p = 0; p < PAIRS; p++) {
                    const uint4 low = now[s][2 * p], high = now[s][2 * p + 1];
                    mma(acc[p][i], (h ? low.z : low.x) & mask, (h ? high.z : high.x) & mask, (h ? low.w : low.y) & mask,
                        (h ? high.w : high.y) & mask, b[8 * h + i], b[8 * h + 4 + i]);
                }
            }
    }
#pragma unroll
    for (int apart = 1; apart < 4; apart *= 2)
        row_sum += __shfl_xor_sync(0xffffffffu, row_sum, apart);
    if (t == 0 && g < M)
        atomicAdd(row_sums + g, row_sum);
    if (threadIdx.x < M)
        factors[threadIdx.x] = factor;
#pragma unroll
    for (int p = 0; p < PAIRS; p++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (2 * t + e % 2 < M)
                sums[(part * M + 2 * t + e % 2) * PITCH + 16 * (PAIRS * tile + p) + 8 * (e / 2) + g] =
                    acc[p][0][e] + (acc[p][1][e] >> 2) + (acc[p][2][e] >> 4) + (acc[p][3][e] >> 6);
    __syncthreads();
    for (int i = threadIdx.x; i < M * TILE; i += blockDim.x) {
        const int m = i / TILE, row = i % TILE;
        int sum = -row_sums[m];
        for (int p = 0; p < split; p++)
            sum += sums[(p * M + m) * PITCH + row];
        if (n0 + row < N)
            store(out, (long long)m * N + n0 + row, sum, kind ? factors[m] : 0.0, kind);
    }
}
#undef TILE
#undef PITCH
