/* ternary_matmul from gpu_int2, the layout of BitNet's own CUDA kernels, by dp4a: any M, each weight read once for ROWS
 * rows of activations.
 *
 * Layout: tiles of 16 rows and 32 columns, 128 bytes each; a strip of 16 rows is K / 32 contiguous tiles. 16 bytes hold
 * 4 rows of 16 columns, so a warp's load of 16 bytes a lane is 4 tiles, 512 contiguous bytes: 16 rows of 128 columns.
 * Lane l has, of tile l / 8, the columns 16 * (l / 2 % 2) to + 15 of the rows 8 * (l / 4 % 2) + 4 * (l % 2) to + 3.
 * Field i of a word is the columns 4i to 4i + 3 in its bytes 0 to 3: one operand of dp4a. 4 lanes share columns, so a
 * load of activations is 128 bytes for 512 of weights (row16: 512).
 *
 * Algorithm: with one row of activations fields are masked, not shifted: field i counts 4^i times in its own sum, and
 * fields are unsigned operands (3 << 6 is past a signed byte). With more rows these sums would take all registers, so
 * fields are shifted. acc = sum((w + 2) * a) - 2 * sum(a), both over the same k in the same lane; activations past K
 * are read as 0. A block is some warps that share the K of STRIPS strips and add their sums in shared memory.
 * Bound: a lane has an eighth of its warp's columns, a quarter of these in field 3: its sum is within 192 * 128 / 32
 * = 768 for each of the warp's columns, and in int32 for 2^21 of them.
 *
 * Limit: latency and memory: 36 integer instructions for 64 weights of a lane with one row of activations.
 *
 * Macros: ROWS (of activations at a time), STRIPS (a warp's, at a time), STEPS (loads of a strip in flight), THREADS.
 * Rates: `tritmark run --suite gpu --op ternary_matmul --variant 'cuda/ternary_matmul/gpu_int2*' --device cuda`.
 * Versions: docs/kernels/cuda_gpu_int2.md. */
#include "common.cuh"

#define STRIP 16 /* rows of a tile */
#define COLUMNS 32 /* of a tile */
#define ACROSS 4 /* tiles in a warp's load */
#define WORDS 8 /* of 16 bytes in a tile */
#define HIGH (STRIP * STRIPS)

#if ROWS == 1
/* c + the product of 4 unsigned and 4 signed bytes. */
__device__ __forceinline__ int dp4a_unsigned(unsigned a, int b, int c)
{
#ifdef TRITMARK_SIMULATOR
    for (int i = 0; i < 4; i++)
        c += (int)(a >> 8 * i & 0xffu) * (int)(signed char)(b >> 8 * i & 0xff);
    return c;
#else
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(c) : "r"(a), "r"(b), "r"(c));
    return c;
#endif
}
#define SUMS 4 /* of a row: one for each field */
#else
#define SUMS ROWS /* of a row: one for each row of activations */
#endif

/* grid: any number of blocks; block: whole warps, at least ROWS * HIGH threads and K / 2^21 warps. Dynamic shared
 * memory: warps * ROWS * HIGH * 4 bytes. N a multiple of 16, K of 32. lda: bytes between rows of activations. Indexes
 * the bytes of weights, M * N outputs and the blocks' shares of them in 64 bits. */
extern "C" __global__ void __launch_bounds__(THREADS) gemm_gpu_int2_dp4a(
    const signed char *a, const uint4 *w, const float *act_scale, void *out, long long lda, float weight_scale, int M,
    int N, int K, int kind)
{
    extern __shared__ __align__(16) unsigned char gpu_int2_shared[];
    int *sums = (int *)gpu_int2_shared; /* [warps][ROWS][HIGH] */
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int tile = lane / WORDS, column = COLUMNS * tile + 16 * (lane / 2 % 2);
    const int tiles = K / COLUMNS, loads = (tiles + ACROSS - 1) / ACROSS, strips = N / STRIP;
    const int down = (strips + STRIPS - 1) / STRIPS;
    const long long shares = (long long)down * ((M + ROWS - 1) / ROWS);
    const bool fast = (((unsigned long long)a | (unsigned long long)lda) & 15) == 0;
    const int m_done = threadIdx.x / HIGH, row_done = threadIdx.x % HIGH; /* the output that this thread finishes */

    for (long long share = blockIdx.x; share < shares; share += gridDim.x) {
        const int strip = (int)(share % down) * STRIPS, m0 = (int)(share / down) * ROWS;
        const uint4 *from_here = w + ((long long)strip * tiles * WORDS + lane);
        double factor = 0;
        int acc[STRIPS][4][SUMS] = {};
        int act_sum[ROWS] = {};
        for (int from = warp; from == warp || from < loads; from += STEPS * warps) {
            uint4 now[STEPS][STRIPS];
#pragma unroll
            for (int s = 0; s < STEPS; s++)
#pragma unroll
                for (int r = 0; r < STRIPS; r++) {
                    const int first = ACROSS * (from + s * warps);
                    now[s][r] = strip + r < strips && first + tile < tiles
                                    ? weights16(from_here + ((long long)r * tiles + first) * WORDS)
                                    : make_uint4(0, 0, 0, 0);
                }
            /* The factor is computed while the first weights are loaded. */
            if (kind && from == warp && m_done < ROWS && m0 + m_done < M)
                factor = output_factor_early(weight_scale, scale_early(act_scale + m0 + m_done));
#pragma unroll
            for (int s = 0; s < STEPS; s++) {
                const long long k = (long long)COLUMNS * ACROSS * (from + s * warps) + column;
                const auto rows16 = [&](int m) {
                    return m0 + m < M && k < K ? activations16(a + (m0 + m) * lda, k, K, fast) : make_int4(0, 0, 0, 0);
                };
                const auto ones16 = [&](const int4 &four, int sum) {
                    sum = __dp4a(four.x, (int)ONES, __dp4a(four.y, (int)ONES, sum));
                    return __dp4a(four.z, (int)ONES, __dp4a(four.w, (int)ONES, sum));
                };
#if ROWS == 1
                const int4 four = rows16(0);
                act_sum[0] = ones16(four, act_sum[0]);
#pragma unroll
                for (int r = 0; r < STRIPS; r++) {
                    const unsigned words[4] = {now[s][r].x, now[s][r].y, now[s][r].z, now[s][r].w};
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        acc[r][i][0] = dp4a_unsigned(words[i] & 0x03030303u, four.x, acc[r][i][0]);
                        acc[r][i][1] = dp4a_unsigned(words[i] & 0x0c0c0c0cu, four.y, acc[r][i][1]);
                        acc[r][i][2] = dp4a_unsigned(words[i] & 0x30303030u, four.z, acc[r][i][2]);
                        acc[r][i][3] = dp4a_unsigned(words[i] & 0xc0c0c0c0u, four.w, acc[r][i][3]);
                    }
                }
#else
                int4 four[ROWS];
#pragma unroll
                for (int m = 0; m < ROWS; m++) {
                    four[m] = rows16(m);
                    act_sum[m] = ones16(four[m], act_sum[m]);
                }
#pragma unroll
                for (int r = 0; r < STRIPS; r++) {
                    const unsigned words[4] = {now[s][r].x, now[s][r].y, now[s][r].z, now[s][r].w};
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const int fields[4] = {
                            (int)(words[i] & 0x03030303u), (int)(words[i] >> 2 & 0x03030303u),
                            (int)(words[i] >> 4 & 0x03030303u), (int)(words[i] >> 6 & 0x03030303u)};
#pragma unroll
                        for (int m = 0; m < ROWS; m++) {
                            acc[r][i][m] = __dp4a(fields[0], four[m].x, acc[r][i][m]);
                            acc[r][i][m] = __dp4a(fields[1], four[m].y, acc[r][i][m]);
                            acc[r][i][m] = __dp4a(fields[2], four[m].z, acc[r][i][m]);
                            acc[r][i][m] = __dp4a(fields[3], four[m].w, acc[r][i][m]);
                        }
                    }
                }
#endif
            }
        }
        /* 8 lanes have the same 4 rows: those that differ in bits 1, 3 and 4. Lanes that differ in bit 4 share the rows
         * out, 2 and 2, in bit 3 again, and then both halves of the columns are added. */
        const bool upper = lane & 16, odd = lane & 8;
#pragma unroll
        for (int m = 0; m < ROWS; m++)
#pragma unroll
            for (int r = 0; r < STRIPS; r++) {
                int of[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
#if ROWS == 1
                    of[i] = acc[r][i][0] + (acc[r][i][1] >> 2) + (acc[r][i][2] >> 4) + (acc[r][i][3] >> 6);
#else
                    of[i] = acc[r][i][m];
#endif
                    of[i] -= 2 * act_sum[m];
                }
                const int first = (upper ? of[2] : of[0]) + __shfl_xor_sync(0xffffffffu, upper ? of[0] : of[2], 16);
                const int second = (upper ? of[3] : of[1]) + __shfl_xor_sync(0xffffffffu, upper ? of[1] : of[3], 16);
                int sum = (odd ? second : first) + __shfl_xor_sync(0xffffffffu, odd ? first : second, 8);
                sum += __shfl_xor_sync(0xffffffffu, sum, 2);
                if ((lane & 2) == 0)
                    sums[(warp * ROWS + m) * HIGH + STRIP * r + 8 * (lane / 4 % 2) + 4 * (lane % 2) + 2 * upper + odd] =
                        sum;
            }
        __syncthreads();
        if (m_done < ROWS && m0 + m_done < M) {
            int sum = 0;
            for (int i = 0; i < warps; i++)
                sum += sums[(i * ROWS + m_done) * HIGH + row_done];
            const int n = strip * STRIP + row_done;
            if (n < N)
                store(out, (long long)(m0 + m_done) * N + n, sum, factor, kind);
        }
        __syncthreads(); /* before the next share overwrites them */
    }
}
