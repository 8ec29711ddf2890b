/* ternary_matmul_a16 for one to some rows of activations on the tensor cores (8.0 and newer): weights (N, K) in row16,
 * decoded in registers once for 8 * GROUPS rows. It runs where gemv.cu does not fit in shared memory, and for any M on
 * GPUs without wgmma.
 *
 * Layout: as in ternary_matmul's gemm_mma.cu, a warp takes 256 * STEPS k of 8 * ROWS8 rows of weights with all loads in
 * flight, and the warps of a block share K and add their sums in shared memory.
 *
 * Algorithm: decoding (a16.cuh) moves two bytes of a word into the halves of a register, and makes two weights of it by
 * one logical operation and one multiply-add, exactly: 18 instructions for 16 weights. The order of k is kept, so
 * activations are used as they lie in memory.
 *
 * Limit: memory, and activations from L2 for each block.
 *
 * Macros: INPUT (see a16.cuh), ROWS8 (8-row groups of a tile), GROUPS (of 8 rows of activations), STEPS (of 256 k of a
 * warp that are in flight together), HELD (words of 16 activations that a lane loads at a time: 1, 2, 4), THREADS (most
 * threads of a block).
 *
 * Rates: `python suites/performance/gemm_costs.py --activations bfloat16`. Versions: docs/kernels/cuda_a16.md. */
#include "../cuda/overlap.cuh"
#include "a16.cuh"

#define TILE (8 * ROWS8)
#define PAIRS ((ROWS8 + 1) / 2)

/* grid: any number of blocks; block: whole warps. Dynamic shared memory: 256 * GROUPS * ROWS8 bytes a warp. a: aligned
 * to its element, lda bytes between its rows. kind: 1 float32, 2 bfloat16, 3 float16. constant: no launch writes the
 * weights, see overlap.cuh. Indexes the bytes of weights and M * N outputs in 64 bits. */
extern "C" __global__ void __launch_bounds__(THREADS) gemm_a16_mma(
    const unsigned short *a, const uint4 *w, void *out, long long lda, float weight_scale, int M, int N, int K,
    int kind, int constant)
{
    extern __shared__ __align__(16) unsigned char gemm_shared[];
    float *const sums = (float *)gemm_shared; /* [warps][8 * GROUPS][TILE] */
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int g = lane / 4, t = lane % 4;
    const int chunks = (K + CHUNK - 1) / CHUNK, tiles_m = (M + 8 * GROUPS - 1) / (8 * GROUPS);
    const long long tiles = (long long)tiles_m * ((N + TILE - 1) / TILE);
    const bool fast = (((unsigned long long)a | (unsigned long long)lda) & 15) == 0;

    uint4 now[STEPS][ROWS8];
    const auto load = [&](int n0, int from) {
#pragma unroll
        for (int s = 0; s < STEPS; s++)
#pragma unroll
            for (int r = 0; r < ROWS8; r++) {
                const int row = n0 + 8 * r + g, chunk = from + 4 * s;
                now[s][r] =
                    row < N && chunk < chunks ? weights16(w + (long long)row * chunks + chunk) : make_uint4(0, 0, 0, 0);
            }
    };
    const int first = 4 * STEPS * warp + t;
    bool loaded = constant;
    if (loaded)
        load(blockIdx.x / tiles_m * TILE, first);
    wait_for_the_one_before();
    for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int m0 = (int)(tile % tiles_m) * 8 * GROUPS, n0 = (int)(tile / tiles_m) * TILE;
        float acc[GROUPS][PAIRS][4] = {};
        for (int from = first; from - t < chunks; from += 4 * STEPS * warps) {
            if (!loaded)
                load(n0, from);
            loaded = false;
#pragma unroll
            for (int s = 0; s < STEPS; s++) {
                const int chunk = from + 4 * s;
#pragma unroll
                for (int first = 0; first < 4; first += HELD) {
                    unsigned b[GROUPS][HELD][8] = {};
#pragma unroll
                    for (int c = 0; c < GROUPS; c++)
                        if (m0 + 8 * c + g < M && chunk < chunks) {
                            const unsigned short *const row =
                                (const unsigned short *)((const char *)a + (m0 + 8 * c + g) * lda);
#pragma unroll
                            for (int i = 0; i < 2 * HELD; i++) {
                                const uint4 eight =
                                    activations8(row, (long long)CHUNK * chunk + 16 * first + 8 * i, K, fast);
                                unsigned *const to = b[c][i / 2] + i % 2 * 4;
                                to[0] = eight.x, to[1] = eight.y, to[2] = eight.z, to[3] = eight.w;
                            }
                        }
                    let_the_next_begin();
#pragma unroll
                    for (int h = 0; h < HELD; h++)
#pragma unroll
                        for (int p = 0; p < PAIRS; p++) {
                            const uint4 low = now[s][2 * p], high = now[s][2 * p + 1 < ROWS8 ? 2 * p + 1 : 2 * p];
                            const int j = first + h;
                            unsigned above[8], below[8] = {};
                            weights16_of(above, j == 0 ? low.x : j == 1 ? low.y : j == 2 ? low.z : low.w);
                            if (2 * p + 1 < ROWS8)
                                weights16_of(below, j == 0 ? high.x : j == 1 ? high.y : j == 2 ? high.z : high.w);
#pragma unroll
                            for (int i = 0; i < 4; i++)
#pragma unroll
                                for (int c = 0; c < GROUPS; c++)
                                    mma(acc[c][p], above[2 * i], below[2 * i], above[2 * i + 1], below[2 * i + 1],
                                        b[c][h][2 * i], b[c][h][2 * i + 1]);
                        }
                }
            }
        }
        float *const mine = sums + warp * 8 * GROUPS * TILE;
#pragma unroll
        for (int c = 0; c < GROUPS; c++)
#pragma unroll
            for (int j = 0; j < 2; j++)
#pragma unroll
                for (int r = 0; r < ROWS8; r++)
                    mine[(8 * c + 2 * t + j) * TILE + 8 * r + g] = acc[c][r / 2][r % 2 * 2 + j];
        __syncthreads();
        for (int i = threadIdx.x; i < min(M - m0, 8 * GROUPS) * TILE; i += blockDim.x) {
            const int m = m0 + i / TILE, n = n0 + i % TILE;
            float sum = 0.0f;
            for (int j = 0; j < warps; j++)
                sum += sums[j * 8 * GROUPS * TILE + i];
            if (n < N)
                store_float(out, (long long)m * N + n, sum * weight_scale, kind);
        }
        __syncthreads();
    }
}
#undef TILE
#undef PAIRS
