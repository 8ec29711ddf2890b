/* Copies rows of activations at any address to rows that begin at multiples of 16 bytes, with zeros behind K, for
 * gemm_mma.cu and gemm_wgmma.cu. Reading unaligned rows inside the products was several times slower.
 *
 * Limit: M * K bytes read and written, few compared with M * N outputs, and one more launch. Macro: THREADS.
 *
 * Rates: `python suites/performance/gemm_costs.py --shapes 13824x2561`. Versions: docs/kernels/cuda_gemm.md. */
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
