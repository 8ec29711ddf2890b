/* Launches that overlap (programmatic dependent launch, 9.0 and newer): of a kernel with Kernel.overlaps, blocks may
 * begin while the launch before it in the stream still runs. Whatever that one may have written is read, and whatever it
 * may still read is written, behind wait_for_the_one_before alone. Elsewhere, and in the simulator, launches do not
 * overlap, and these do nothing. What was written by that launch may not be read by ld.global.nc, which is for what does
 * not change while a kernel runs.
 *
 * Weights that are `constant` (DeviceArray.constant: no launch writes them) are read before the wait, and so lie in
 * registers when the activations come. The next launch may begin when the activations were asked for: its weights would
 * come before them otherwise.
 *
 * What it gives, us a launch in a CUDA graph of launches one behind the other, weights cold in L2, on an NVIDIA H200, by
 * turns in one process, outside of this project; the command of today is suites/performance/gpu_peers.py:
 *                                              before   the next may begin      when the first weights
 *                                                       at once, prefetched     are asked for, prefetched
 *   gemv_rows      1 x 2560 x 2560              3.08            2.74                    2.12
 *                  1 x 13824 x 2560             6.02            4.79                    4.79
 *                  1 x 2560 x 6912              4.45            3.73                    3.27
 *   fused          1 x 2560 x 2560, bfloat16    3.47            3.60                    2.48
 *                  1 x 2560 x 6912, bfloat16    4.96            4.95                    4.03
 *   gemv_mma       8 x 13824 x 2560             6.88            6.01                    6.13
 *   gemv_dp4a      1 x 14336 x 4096             6.43            5.97                    5.82
 *   gemm_mma       16 x 2560 x 2560             4.70            4.19                    (4.17 at once, not prefetched)
 *   gemm_a16_wgmma 64 x 13824 x 2560            13.86                                   13.17 (when the ring is full)
 *                  128 x 2560 x 2560            10.34                                   9.77
 * At once, the next launch's prefetches come before this one's loads. Without prefetching: 3.00 at 1 x 2560 x 2560, 5.25
 * at 1 x 13824 x 2560 (2.76 and 5.64 before in that process). gemm_wgmma.cu has figures of its own.
 *
 * Constant weights, measured likewise:           others   constant
 *   gemv_rows      1 x 2560 x 2560              2.11     1.90
 *                  1 x 13824 x 2560             4.87     3.93
 *                  1 x 2560 x 6912              3.46     2.52
 *   fused          1 x 2560 x 2560, bfloat16    2.51     2.24
 *                  1 x 13824 x 2560, bfloat16   5.24     4.42
 *                  1 x 2560 x 6912, bfloat16    4.01     3.19
 *   gemv_mma       8 x 2560 x 2560              2.71     2.38
 *                  8 x 13824 x 2560             6.20     5.86
 *                  8 x 2560 x 6912              4.88     3.95
 *   gemm_mma       16 x 2560 x 2560             3.97     3.60
 *                  16 x 2560 x 6912             6.76     5.71
 *   gemv_a16       1 x 2560 x 2560, bfloat16    3.03     2.79    (3.79 where launches do not overlap)
 *                  1 x 13824 x 2560             7.75     6.84    (8.95)
 *                  8 x 13824 x 2560             8.29     7.74    (9.65)
 * Not so in gemm_wgmma, all stages' weights asked for before the wait: 7.00 for 6.27 at 16 x 13824 x 2560, 8.57 for 8.13 at
 * 64, 10.08 for 10.37 at 128, where it fills a multiprocessor and the next launch waits for its end. */
#ifndef TRITMARK_CUDA_OVERLAP
#define TRITMARK_CUDA_OVERLAP

/* Let blocks of the next launch begin, where there is room. */
__device__ __forceinline__ void let_the_next_begin()
{
#if !defined(TRITMARK_SIMULATOR) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Have what lies there come into L2. The launch before may write it still, for L2 has what all launches write; it is read
 * behind wait_for_the_one_before. */
__device__ __forceinline__ void prefetch(const void *from)
{
#if !defined(TRITMARK_SIMULATOR) && __CUDA_ARCH__ >= 900
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
#endif
}

/* Until the launch before this one is over and all that it wrote is seen. By each thread that reads or writes device
 * memory, at least by one whose signal these wait for. */
__device__ __forceinline__ void wait_for_the_one_before()
{
#if !defined(TRITMARK_SIMULATOR) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
#endif
