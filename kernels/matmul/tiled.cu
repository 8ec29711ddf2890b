/* matmul, C = A B: the shared-memory product (specification, 3.2), for float32, float16 and bfloat16.
 *
 * Algorithm: a block makes 64 x 64 outputs, a thread 4 x 4 of them. Steps of 16 k go to shared memory as float32, so a
 * thread does 16 fmaf for two 16-byte loads from there. Four neighbouring outputs are one 16-byte store if rows allow
 * it. Products of two float16 or two bfloat16 are exact in float32 (22 and 16 bits), and sums are float32: half sums
 * (specification, 8) would lose everything from K = 2048 on.
 *
 * Limit: loads from shared memory, 32 bytes for 16 fmaf.
 *
 * Macros: INPUT, 32 (float), 16 (__half) or 8 (__nv_bfloat16: as many bits of significand); THREADS, of a block; and
 * NAME, the function's name.
 *
 * Rates: `tritmark run --suite gpu --op 'matmul_*' --variant tiled --device cuda`.
 * The kernels that replace it: docs/kernels/cuda_matmul.md. */
#if INPUT == 16
#include <cuda_fp16.h>
typedef __half input;
__device__ __forceinline__ float wide(input x) { return __half2float(x); }
#elif INPUT == 8
#include <cuda_bf16.h>
typedef __nv_bfloat16 input;
__device__ __forceinline__ float wide(input x) { return __bfloat162float(x); }
#else
typedef float input;
__device__ __forceinline__ float wide(input x) { return x; }
#endif

#define EDGE 64 /* rows and columns of a block's outputs */
#define DEPTH 16 /* k of a step */
/* floats between two k in shared memory: 16-byte aligned, and a column's writes spread over the banks */
#define PITCH 68

/* a (M, K), b (K, N), c (M, N), all row-major; grid: any number of blocks; block: THREADS threads. Indexes in 64
 * bits. */
extern "C" __global__ void __launch_bounds__(THREADS)
    NAME(const input *__restrict__ a, const input *__restrict__ b, float *__restrict__ c, int M, int N, int K)
{
    __shared__ __align__(16) float left[DEPTH * PITCH];  /* [k][m] */
    __shared__ __align__(16) float right[DEPTH * PITCH]; /* [k][n] */
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const bool whole = N % 4 == 0 && ((unsigned long long)c & 15) == 0; /* a thread's four neighbours are one store */
    const long long across = (N + EDGE - 1) / EDGE, tiles = across * ((M + EDGE - 1) / EDGE);
    for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int m0 = (int)(tile / across) * EDGE, n0 = (int)(tile % across) * EDGE;
        float acc[4][4] = {};
        for (int k0 = 0; k0 < K; k0 += DEPTH) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int m = m0 + ty + 16 * i, ka = k0 + tx;
                left[tx * PITCH + ty + 16 * i] = m < M && ka < K ? wide(a[(long long)m * K + ka]) : 0.0f;
                const int n = n0 + (int)threadIdx.x % EDGE, kb = k0 + (int)threadIdx.x / EDGE + 4 * i;
                right[(threadIdx.x / EDGE + 4 * i) * PITCH + threadIdx.x % EDGE] =
                    n < N && kb < K ? wide(b[(long long)kb * N + n]) : 0.0f;
            }
            __syncthreads();
#pragma unroll
            for (int k = 0; k < DEPTH; k++) {
                const float4 l4 = *(const float4 *)&left[k * PITCH + 4 * ty],
                             r4 = *(const float4 *)&right[k * PITCH + 4 * tx];
                const float l[4] = {l4.x, l4.y, l4.z, l4.w}, r[4] = {r4.x, r4.y, r4.z, r4.w};
#pragma unroll
                for (int p = 0; p < 4; p++)
#pragma unroll
                    for (int q = 0; q < 4; q++)
                        acc[p][q] = fmaf(l[p], r[q], acc[p][q]);
            }
            __syncthreads();
        }
#pragma unroll
        for (int p = 0; p < 4; p++) {
            const int m = m0 + 4 * ty + p, n = n0 + 4 * tx;
            float *out = c + (long long)m * N + n;
            if (whole && m < M && n < N) {
                *(float4 *)out = make_float4(acc[p][0], acc[p][1], acc[p][2], acc[p][3]);
            } else if (m < M) {
#pragma unroll
                for (int q = 0; q < 4; q++)
                    if (n + q < N)
                        out[q] = acc[p][q];
            }
        }
    }
}
