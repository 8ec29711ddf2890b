/* ternary_matmul_a16 for one to some rows of activations with a float16 scale for each group of weights, on the tensor
 * cores (8.0 and newer): weights (N, K) in row16_g32 to row16_g256, decoded in registers once for 8 * EIGHTS rows.
 *
 * Layout: as in ternary_matmul's grouped_mma.cu, a warp takes 256 k of 8 * ROWS8 rows of weights, a step, into a ring
 * of its own in shared memory, with their scales. Lane (g, t) reads word t of each chunk of 64 weights by ldmatrix, and
 * the 16 activations that go with it. With GROUP 32 each half of a chunk is multiplied by itself: a lane reads half of
 * a word of it, and 8 activations. Zeros in place of the other half would be NaN with an infinity.
 *
 * Algorithm: decoding is that of gemm_mma.cu (a16.cuh). At the end of a group its float32 sums times the scale are
 * added to float32 sums. The warps of a block take steps in turn and add their sums in shared memory, always in the
 * same order. Copies of STAGES steps are in flight, also over the end of a tile; the first ones are requested before the
 * launch before this one has ended.
 *
 * Limit: memory; for more rows of activations the instructions that decode, and activations from L2 for each block.
 *
 * Macros: INPUT (see a16.cuh), GROUP, ROWS8 (2, 4: 8-row groups of a tile), EIGHTS (of rows of activations), STAGES,
 * THREADS (most threads of a block).
 *
 * Rates: `python suites/performance/grouped_products.py --activations bfloat16`. Versions and what lost:
 * docs/kernels/cuda_a16.md. */
#include "../cuda/overlap.cuh"
#include "../cuda/tiles/grouped.cuh"
#include "a16.cuh"

#define TILE (8 * ROWS8)
#define PAIRS (ROWS8 / 2)
#define ACTIVE (8 * EIGHTS)
#define PITCH (TILE + 4) /* of sums: lanes write to different banks */
#define STEP_K 256
#define STEP_GROUPS (STEP_K / GROUP)
#define WEIGHTS_BYTES (64 * TILE)
#define STAGE_BYTES (WEIGHTS_BYTES + 2 * TILE * STEP_GROUPS)
#define BATCH (EIGHTS > 2 ? 1 : 4 / EIGHTS) /* chunks whose activations are requested together */
#define HALVES (GROUP == 32 ? 2 : 1) /* parts of a chunk with a scale each */
#define WORDS (8 / HALVES) /* pairs of weights of a lane in such a part */

/* grid: any number of blocks; block: whole warps. Dynamic shared memory: STAGES * STAGE_BYTES and 4 * ACTIVE *
 * PITCH a warp. K a multiple of GROUP. a: aligned to its element, lda bytes between its rows. w: aligned
 * to 16 bytes. kind: 1 float32, 2 bfloat16, 3 float16. constant: no launch writes the weights, see overlap.cuh. Indexes
 * the bytes of weights and M * N outputs in 64 bits. */
extern "C" __global__ void __launch_bounds__(THREADS) gemm_a16_grouped_mma(
    const unsigned short *a, const uint4 *w, void *out, long long lda, float weight_scale, int M, int N, int K,
    int kind, int constant)
{
    extern __shared__ __align__(16) unsigned char gemm_shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int g = lane / 4, t = lane % 4;
    float *const sums = (float *)gemm_shared; /* [warps][ACTIVE][PITCH] */
    unsigned char *const ring = (unsigned char *)(sums + warps * ACTIVE * PITCH) + warp * STAGES * STAGE_BYTES;
    const int chunks = (K + CHUNK - 1) / CHUNK, groups = K / GROUP, steps = (chunks + 3) / 4;
    const int tiles_m = (M + ACTIVE - 1) / ACTIVE;
    const long long tiles = (long long)tiles_m * ((N + TILE - 1) / TILE), apart = scales_apart(N);
    const unsigned short *const all_scales = scales_in(w, N, K);
    const bool fast = (((unsigned long long)a | (unsigned long long)lda) & 15) == 0;

    const auto request = [&](int n0, int step, int stage) {
        unsigned char *const to = ring + stage * STAGE_BYTES;
#pragma unroll
        for (int r = 0; r < ROWS8; r++) {
            const int row = 8 * r + g, chunk = 4 * step + t;
            const bool there = n0 + row < N && chunk < chunks;
            copy_async(to + chunk_at(row, t), there ? w + ((n0 + row) * (long long)chunks + chunk) : w, there ? 16 : 0);
        }
#pragma unroll
        for (int from = 0; from < ROWS8 * STEP_GROUPS; from += 32) {
            const int i = from + lane, group = step * STEP_GROUPS + i / ROWS8, n = n0 + i % ROWS8 * 8;
            const bool there = group < groups && n < N;
            if (i < ROWS8 * STEP_GROUPS)
                copy_async(
                    to + WEIGHTS_BYTES + 16 * i, there ? all_scales + (group * apart + n) : all_scales, there ? 16 : 0);
        }
        copies_end();
    };
    long long ahead = blockIdx.x; /* the tile and step that is requested next */
    int ahead_step = warp;
    const auto request_next = [&](int stage) {
        if (ahead < tiles && ahead_step < steps)
            request((int)(ahead / tiles_m) * TILE, ahead_step, stage);
        else
            copies_end();
        ahead_step += warps;
        if (ahead_step >= steps)
            ahead += gridDim.x, ahead_step = warp;
    };
    if (!constant)
        wait_for_the_one_before();
#pragma unroll
    for (int stage = 0; stage < STAGES; stage++)
        request_next(stage);
    if (constant)
        wait_for_the_one_before();
    int stage = 0;
    for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int m0 = (int)(tile % tiles_m) * ACTIVE, n0 = (int)(tile / tiles_m) * TILE;
        float total[EIGHTS][PAIRS][4] = {};
        for (int step = warp; step < steps; step += warps, stage = (stage + 1) % STAGES) {
            const unsigned char *const from = ring + stage * STAGE_BYTES;
            const unsigned short *const scales = (const unsigned short *)(from + WEIGHTS_BYTES) + g;
            unsigned words[ROWS8][4];
            float acc[EIGHTS][PAIRS][4];
#pragma unroll
            for (int first = 0; first < 4; first += BATCH) {
                unsigned b[EIGHTS][BATCH][8] = {};
#pragma unroll
                for (int c = 0; c < EIGHTS; c++)
                    if (m0 + 8 * c + g < M) {
                        const unsigned short *const row =
                            (const unsigned short *)((const char *)a + (m0 + 8 * c + g) * lda);
#pragma unroll
                        for (int j = 0; j < 2 * BATCH; j++) {
                            const int k = STEP_K * step + CHUNK * (first + j / 2) +
                                          (GROUP == 32 ? 32 * (j % 2) + 8 * t : 16 * t + 8 * (j % 2));
                            if (k < K) {
                                const uint4 eight = activations8(row, k, K, fast);
                                unsigned *const to = b[c][j / 2] + j % 2 * 4;
                                to[0] = eight.x, to[1] = eight.y, to[2] = eight.z, to[3] = eight.w;
                            }
                        }
                    }
                if (first == 0) {
                    let_the_next_begin();
                    copies_wait<STAGES - 1>();
                    __syncwarp();
#pragma unroll
                    for (int r = 0; r < ROWS8; r++)
                        if (GROUP > 32)
                            words_of(words[r], from + 512 * r);
                }
#pragma unroll
                for (int j = 0; j < BATCH; j++) {
                    const int chunk = first + j;
#pragma unroll
                    for (int half = 0; half < HALVES; half++) {
                        if (chunk * CHUNK % GROUP == 0)
#pragma unroll
                            for (int c = 0; c < EIGHTS; c++)
#pragma unroll
                                for (int p = 0; p < PAIRS; p++)
#pragma unroll
                                    for (int e = 0; e < 4; e++)
                                        acc[c][p][e] = 0.0f;
#pragma unroll
                        for (int p = 0; p < PAIRS; p++) {
                            unsigned above[8], below[8];
                            if (GROUP ==
                                32) { /* the half t % 2 of the word, with its fields in the place of the first */
                                const unsigned char *const at = from + 8 * half + t / 2 * 4;
                                const int row = 16 * p + g;
                                weights16_of(above, *(const unsigned *)(at + chunk_at(row, chunk)) >> t % 2 * 4);
                                weights16_of(below, *(const unsigned *)(at + chunk_at(row + 8, chunk)) >> t % 2 * 4);
                            } else {
                                weights16_of(above, words[2 * p][chunk]);
                                weights16_of(below, words[2 * p + 1][chunk]);
                            }
#pragma unroll
                            for (int i = 0; i < WORDS; i += 2)
#pragma unroll
                                for (int c = 0; c < EIGHTS; c++)
                                    mma(acc[c][p], above[i], below[i], above[i + 1], below[i + 1],
                                        b[c][j][WORDS * half + i], b[c][j][WORDS * half + i + 1]);
                        }
                        const int end = chunk * CHUNK + (half + 1) * CHUNK / HALVES;
                        if (end % GROUP == 0)
#pragma unroll
                            for (int p = 0; p < PAIRS; p++)
#pragma unroll
                                for (int h = 0; h < 2; h++) {
                                    const float by = scale_of(scales[((end / GROUP - 1) * ROWS8 + 2 * p + h) * 8]);
#pragma unroll
                                    for (int c = 0; c < EIGHTS; c++)
#pragma unroll
                                        for (int e = 2 * h; e < 2 * h + 2; e++)
                                            total[c][p][e] = __fmaf_rn(by, acc[c][p][e], total[c][p][e]);
                                }
                    }
                }
            }
            __syncwarp(); /* before the next copies overwrite what other lanes read */
            request_next(stage);
        }
#pragma unroll
        for (int c = 0; c < EIGHTS; c++)
#pragma unroll
            for (int p = 0; p < PAIRS; p++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    sums[(warp * ACTIVE + 8 * c + 2 * t + e % 2) * PITCH + 16 * p + 8 * (e / 2) + g] = total[c][p][e];
        __syncthreads();
        for (int i = threadIdx.x; i < min(M - m0, ACTIVE) * TILE; i += blockDim.x) {
            const int m = i / TILE, n = i % TILE;
            float sum = 0.0f;
            for (int j = 0; j < warps; j++)
                sum += sums[(j * ACTIVE + m) * PITCH + n];
            if (n0 + n < N)
                store_float(out, (long long)(m0 + m) * N + n0 + n, sum * weight_scale, kind);
        }
        __syncthreads(); /* before the next tile overwrites them */
    }
    copies_wait<0>();
}
#undef TILE
#undef PAIRS
#undef ACTIVE
#undef PITCH
#undef STEP_K
#undef STEP_GROUPS
#undef WEIGHTS_BYTES
#undef STAGE_BYTES
#undef BATCH
#undef HALVES
#undef WORDS
