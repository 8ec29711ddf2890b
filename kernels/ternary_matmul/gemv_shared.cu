/* ternary_matmul for 2 to 8 rows of activations on the tensor cores: weights (N, K) in row16, each read once and decoded
 * in registers, activations in shared memory.
 *
 * The story (gemv_mma.cu has what came before, and how weights are decoded):
 *   gemv_mma.cu splits K among the warps of a block, which keep their activations in registers and add their sums in
 *      shared memory, tile after tile. Since launches overlap, what counts is how soon the weights of the next launch are
 *      asked for, and its blocks fill a multiprocessor: 13824 x 2560 took 5.4 us for 2 rows where 1 took 3.9
 *      (gemv_rows.cu).
 *   v1: a warp takes all of K, or an equal share, of 16 or 32 rows, with all of its weights in registers before it
 *      waits, in half of a multiprocessor's registers, so that two launches have room. The block's activations come into
 *      shared memory behind the wait; a warp reads 64 of each row by four loads of 16 bytes, from different banks.
 *      Weights are decoded as fields 0, 1, 2, of four weights by one instruction; what that adds to an output, the sum of
 *      its activations, is taken once a block for each row and subtracted at the end.
 *      Predicted for 8 x 13824 x 2560: 2.1 for activations, products and the launch, 1.9 for reading, so 3.5 to 4.
 *   v2: blocks of 112 rows, for 124 multiprocessors share 13824 where 108 did; and the sums of activations are made of the
 *      registers that multiply them, a step by the warps of one tile, where each warp read a row of shared memory before
 *      it began. Predicted for 8 x 13824 x 2560 on an H100, where 4.6 of 6.0 are there for 2 rows too: an eighth less of
 *      what comes behind the wait, 0.3, and 0.1 for the sums.
 *   v3: int32 outputs took 0.4 to 0.6 us less for 6 to 8 rows, so what makes factors and floats is long. Eight threads
 *      divided, in a branch of their own, before the block met to multiply; now all divide a row's, without a branch
 *      (common.cuh), and the compiler puts that between the products. Predicted: half of the difference.
 *
 * us a launch, weights constant and cold in L2, bfloat16 outputs, in a CUDA graph of such launches one behind the other, on
 * an NVIDIA H200 (132 SMs), some thirty instances by turns with what was launched before (gemv_mma.cu), outside of this
 * project; `tritmark autotune --op ternary_matmul --shape M,N,K` races those that there are. PAIRS, TILES, STEPS of
 * what is launched now:
 *   M, N x K           before  v1                            M, N x K           before  v1
 *   2, 13824 x 2560    5.40    4.10   1 8 10                 2, 14336 x 4096    7.34    6.41   2 2 4
 *   3, 13824 x 2560    5.54    4.53   1 8 10                 4, 14336 x 4096    7.47    6.48   2 2 4
 *   4, 13824 x 2560    5.65    4.64   1 8 10                 8, 14336 x 4096    7.98    7.37   2 2 4
 *   6, 13824 x 2560    5.89    5.21   1 8 10
 *   8, 13824 x 2560    5.93    5.51   1 8 5
 * The same on an NVIDIA H100 (132 SMs), by turns; for scale, gemm_wgmma.cu's 16 columns take 5.93 at 8 x 13824 x 2560:
 *   M, N x K           v1      v2     1 7 10                 M, N x K           v1      v2     2 2 4
 *   2, 13824 x 2560    4.59    4.64                          2, 14336 x 4096    7.06    6.91
 *   4, 13824 x 2560    4.89    4.71                          4, 14336 x 4096    7.22    7.31
 *   6, 13824 x 2560    5.44    5.08                          6, 14336 x 4096    7.88    7.56
 *   8, 13824 x 2560    6.01    5.45                          8, 14336 x 4096    8.15    7.80
 * Of that, 8 x 13824 x 2560: 112 rows alone 5.84, sums alone 5.90. Slower there: 1 7 5 (6.22), 1 6 5 (6.01), 2 4 4 (6.20),
 * 2 7 5 (6.30), 4 2 5 (6.69), 2 4 5 and 2 4 10, which read half as much of shared memory (7.37: more than half of the
 * registers, so that two launches have no room); at 14336 x 4096 1 4 8 (8.07), 2 4 8 (8.56), 1 7 8 (8.60), 1 4 16 (9.05).
 * On an H200, by turns, float32 outputs, us:
 *   M, N x K           v2      v3                            M, N x K           v2      v3
 *   2, 13824 x 2560    3.92    3.90                          2, 14336 x 4096    6.19    6.20
 *   4, 13824 x 2560    4.20    4.14                          4, 14336 x 4096    6.35    6.22
 *   6, 13824 x 2560    4.85    4.46                          8, 14336 x 4096    6.78    6.72
 *   7, 13824 x 2560    5.19    4.72
 *   8, 13824 x 2560    5.20    4.72    (bfloat16 5.25, 4.78)
 * Not so: the scales asked for before the activations (6.57); the outputs of a thread all made before the first is stored,
 * 4.88 with v2's division, 5.82 with v3's (both together need more registers than two launches have), and slower for 2 to
 * 4 rows (4.09 for 3.92).
 * Further rows cost what their activations take from L2, 20 KB for each multiprocessor, and through shared memory.
 * No faster, and so not launched: 2560 x 2560 (2.47 before, 3.56 here, M = 8), 2560 x 6912 (4.03, 4.64), 3840 x 2560 (2.67,
 * 3.54), 4096 x 4096 (3.58, 3.81), 6912 x 2560 (3.91, 4.33), 20480 x 3200 (8.98, 11.08), 27648 x 5120 (16.12, 16.83),
 * 55296 x 5120 (29.05, 32.77).
 *
 * Macros: PAIRS (1, 2: of 8-row groups of a warp), TILES (of 16 * PAIRS rows of a block), STEPS (of 256 k of a warp),
 * THREADS (most threads of a block). */
#include "../cuda/overlap.cuh"
#include "common.cuh"
#include "mma.cuh"

#define TILE (16 * PAIRS * TILES)
#define PITCH (TILE + 4) /* of sums: lanes write to different banks */

#ifndef TRITMARK_GEMV_SHARED
#define TRITMARK_GEMV_SHARED
/* Where 16 bytes, number `part` of 4, of the activations of a chunk of row m lie: eight lanes, of two rows and four
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

    /* Of row `lane`, by all warps: in a branch it would not go between the products. */
    const double factor = output_factor(weight_scale, scale);
    int acc[PAIRS][4][4] = {}; /* pair of 8-row groups, field, element of the fragment */
    int row_sum = 0; /* of row g, of those steps that the warps of this tile add up */
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
