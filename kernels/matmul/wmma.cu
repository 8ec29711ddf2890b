/* matmul, C = A B, on tensor cores through nvcuda::wmma: float16 or bfloat16 inputs, float32 sums (specification 002).
 *
 * The story (v1 is tiled.cu):
 *   v2, here: a block of 4 warps makes 64 x 64 outputs, a warp 32 x 32 of them in 2 x 2 fragments of 16 x 16. Steps of 32 k go to shared memory;
 *      what lies beyond M, N or K is 0 there, so every shape is whole fragments. Outputs go out through shared memory, where the tails are
 *      left out. Tuned tensor-core products come later.
 *
 * Macros: INPUT, 16 (__half) or 8 (__nv_bfloat16), and NAME, the function's name. */
#include <mma.h>
#if INPUT == 16
#include <cuda_fp16.h>
typedef __half input;
__device__ __forceinline__ input zero(void) { return __float2half(0.0f); }
#else
#include <cuda_bf16.h>
typedef __nv_bfloat16 input;
__device__ __forceinline__ input zero(void) { return __float2bfloat16(0.0f); }
#endif

#define EDGE 64       /* rows and columns of a block's outputs */
#define DEPTH 32      /* k of a step */
#define LEFT_PITCH 40 /* elements between rows in shared memory: 16-byte aligned and no multiple of 32 banks */
#define RIGHT_PITCH 72
#define OUT_PITCH 68

/* a (M, K), b (K, N), c (M, N), all row-major; grid: any number of blocks; block: 128 threads. Indexes in 64 bits. */
extern "C" __global__ void __launch_bounds__(128)
    NAME(const input *__restrict__ a, const input *__restrict__ b, float *__restrict__ c, int M, int N, int K)
{
    using namespace nvcuda;
    __shared__ __align__(32) input left[EDGE * LEFT_PITCH];    /* [m][k] */
    __shared__ __align__(32) input right[DEPTH * RIGHT_PITCH]; /* [k][n] */
    __shared__ __align__(32) float outputs[EDGE * OUT_PITCH];  /* [m][n] */
    const int warp = threadIdx.x / 32, wm = warp / 2 * 32, wn = warp % 2 * 32;
    const long long across = (N + EDGE - 1) / EDGE, tiles = across * ((M + EDGE - 1) / EDGE);
    for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int m0 = (int)(tile / across) * EDGE, n0 = (int)(tile % across) * EDGE;
        wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[2][2];
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 2; j++)
                wmma::fill_fragment(acc[i][j], 0.0f);
        for (int k0 = 0; k0 < K; k0 += DEPTH) {
            for (int i = threadIdx.x; i < EDGE * DEPTH; i += blockDim.x) {
                const int m = m0 + i / DEPTH, k = k0 + i % DEPTH;
                left[i / DEPTH * LEFT_PITCH + i % DEPTH] = m < M && k < K ? a[(long long)m * K + k] : zero();
            }
            for (int i = threadIdx.x; i < DEPTH * EDGE; i += blockDim.x) {
                const int k = k0 + i / EDGE, n = n0 + i % EDGE;
                right[i / EDGE * RIGHT_PITCH + i % EDGE] = k < K && n < N ? b[(long long)k * N + n] : zero();
            }
            __syncthreads();
#pragma unroll
            for (int k = 0; k < DEPTH; k += 16) {
                wmma::fragment<wmma::matrix_a, 16, 16, 16, input, wmma::row_major> l[2];
                wmma::fragment<wmma::matrix_b, 16, 16, 16, input, wmma::row_major> r[2];
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    wmma::load_matrix_sync(l[i], &left[(wm + 16 * i) * LEFT_PITCH + k], LEFT_PITCH);
                    wmma::load_matrix_sync(r[i], &right[k * RIGHT_PITCH + wn + 16 * i], RIGHT_PITCH);
                }
#pragma unroll
                for (int i = 0; i < 2; i++)
#pragma unroll
                    for (int j = 0; j < 2; j++)
                        wmma::mma_sync(acc[i][j], l[i], r[j], acc[i][j]);
            }
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 2; j++)
                wmma::store_matrix_sync(&outputs[(wm + 16 * i) * OUT_PITCH + wn + 16 * j], acc[i][j], OUT_PITCH, wmma::mem_row_major);
        __syncthreads();
        for (int i = threadIdx.x; i < EDGE * EDGE; i += blockDim.x) {
            const int m = m0 + i / EDGE, n = n0 + i % EDGE;
            if (m < M && n < N)
                c[(long long)m * N + n] = outputs[i / EDGE * OUT_PITCH + i % EDGE];
        }
        __syncthreads(); /* before the next tile's outputs */
    }
}
