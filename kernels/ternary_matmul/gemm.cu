/* ternary_matmul for M > 1 without tensor cores: a register-tiled product with dp4a.
 *
 * Layout: a block makes 64 x 64 outputs, a thread 4 x 4 of them. In each step of 64 k, activations (64 x 64 bytes) and
 * weights, unpacked to signed bytes, go to shared memory as words of 4 k, k outermost.
 *
 * Algorithm: a thread reads 4 + 4 words with two 16-byte loads and does 16 dp4a (64 multiply-adds). Weights are
 * unpacked once for 64 rows of activations. They are signed, so no sum of activations is needed: ((c | 0x80) - 1) ^
 * 0x80 subtracts one from each byte without a borrow between bytes. Padding holds w = 0; activations beyond K are read
 * as 0.
 * Bound: 128 * K fits int32 for K < 2^24.
 *
 * Limit: dp4a and loads from shared memory.
 *
 * Macro: THREADS, of a block.
 *
 * Rates: `tritmark run --op ternary_matmul --variant dp4a --device cuda`. Versions: docs/kernels/cuda_gemm.md. */
#include "common.cuh"

#define EDGE 64      /* rows and columns of a block's outputs, and k of a step */
#define WORDS 16     /* words of 4 k in a step */
/* words between two k in shared memory: rows of 16 bytes, and the 4 words that a thread writes lie in different
 * banks */
#define PITCH 68

/* grid: any number of blocks; block: THREADS threads. w: row16, `words` 32-bit words a row; lda: bytes between rows
 * of activations. */
extern "C" __global__ void __launch_bounds__(THREADS) gemm_i2s_dp4a(
    const signed char *__restrict__ a, const unsigned *__restrict__ w, const float *__restrict__ act_scale,
    void *__restrict__ out, long long lda, long long words, float weight_scale, int M, int N, int K, int kind)
{
    __shared__ __align__(16) int activations[WORDS * PITCH]; /* [k / 4][m] */
    __shared__ __align__(16) int weights[WORDS * PITCH]; /* [k / 4][n] */
    __shared__ double factors[EDGE]; /* of the tile's rows of activations */
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const int row = threadIdx.x / 4, quarter = threadIdx.x % 4; /* what a thread fetches: 16 k of one row of each */
    const bool fast = (((unsigned long long)a | (unsigned long long)lda) & 15) == 0;
    const long long across = (N + EDGE - 1) / EDGE, tiles = across * ((M + EDGE - 1) / EDGE);
    for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int m0 = (int)(tile / across) * EDGE, n0 = (int)(tile % across) * EDGE;
        int acc[4][4] = {};
        for (int k0 = 0; k0 < K; k0 += EDGE) {
            const long long k = k0 + 16 * quarter;
            int4 four = make_int4(0, 0, 0, 0);
            if (m0 + row < M)
                four = activations16(a + (m0 + row) * lda, k, K, fast);
            const unsigned word = n0 + row < N ? w[(n0 + row) * words + k / 16] : 0x55555555u;
            activations[(4 * quarter + 0) * PITCH + row] = four.x;
            activations[(4 * quarter + 1) * PITCH + row] = four.y;
            activations[(4 * quarter + 2) * PITCH + row] = four.z;
            activations[(4 * quarter + 3) * PITCH + row] = four.w;
#pragma unroll
            for (int i = 0; i < 4; i++)
                weights[(4 * quarter + i) * PITCH + row] =
                    (int)((((word >> 2 * i & 0x03030303u) | 0x80808080u) - 0x01010101u) ^ 0x80808080u);
            __syncthreads();
            /* Once a row and tile, between two barriers: the previous tile has used them, and this one needs them after
             * the next barrier. */
            if (kind && k0 == 0 && threadIdx.x < EDGE && m0 + threadIdx.x < M)
                factors[threadIdx.x] = output_factor(weight_scale, act_scale[m0 + threadIdx.x]);
#pragma unroll
            for (int i = 0; i < WORDS; i++) {
                const int4 left = *(const int4 *)&activations[i * PITCH + 4 * ty],
                           right = *(const int4 *)&weights[i * PITCH + 4 * tx];
                const int l[4] = {left.x, left.y, left.z, left.w}, r[4] = {right.x, right.y, right.z, right.w};
#pragma unroll
                for (int p = 0; p < 4; p++)
#pragma unroll
                    for (int q = 0; q < 4; q++)
                        acc[p][q] = __dp4a(l[p], r[q], acc[p][q]);
            }
            __syncthreads();
        }
#pragma unroll
        for (int p = 0; p < 4; p++) {
            const int m = m0 + 4 * ty + p;
            if (m >= M)
                break;
            const double factor = kind ? factors[m - m0] : 0.0;
#pragma unroll
            for (int q = 0; q < 4; q++)
                if (n0 + 4 * tx + q < N)
                    store(out, (long long)m * N + n0 + 4 * tx + q, acc[p][q], factor, kind);
        }
    }
}
