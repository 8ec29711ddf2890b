/* Rows of activations at any address, copied to where each begins at a multiple of 16 bytes, zeros behind K: what
 * gemm_mma.cu and gemm_wgmma.cu read fast.
 *
 * The story: before, the products read such rows themselves. On an NVIDIA H200, in us, weights cold in L2, bfloat16
 * outputs, in a CUDA graph, each with the fastest instance:
 *                                                          16 x 13824 x 2561    128    512
 *   byte by byte, by the warps that copy                                28.4    113    283
 *   words of 4 bytes, shifted, there                                    15.3     41    122
 *   for comparison K = 2560                                              8.5   13.0     36
 * Predicted for a copy in front: what K = 2560 takes, and one launch of 1 to 2 us more.
 *
 * Bytes: M * K read and written, which is little beside M * N outputs. Macro: THREADS. */
#include "../cuda/overlap.cuh"
#include "common.cuh"

/* grid: any number of blocks; block: any number of threads. a: lda bytes between its rows; to: K / 16, rounded up, of
 * each row. */
extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_align(const signed char *a, int4 *to, long long lda, int M, int K)
{
    wait_for_the_one_before();
    let_the_next_begin();
    const int pieces = (K + 15) / 16;
    for (int m = blockIdx.x; m < M; m += gridDim.x)
        for (int i = threadIdx.x; i < pieces; i += blockDim.x)
            to[(long long)m * pieces + i] = activations16_shifted(a + m * lda + 16 * i, K - 16 * i);
}
