/* Launches that overlap (programmatic dependent launch, 9.0 and newer): blocks of a kernel with Kernel.overlaps may
 * begin while the launch before it in the stream still runs.
 *
 * Behind wait_for_the_one_before alone: reads of what that launch may have written, writes of what it may still read.
 * What it wrote must not be read by ld.global.nc, which is for data that does not change while a kernel runs. Weights
 * that are `constant` (DeviceArray.constant: no launch writes them) are read before the wait, so they are in registers
 * when the activations arrive. The next launch may begin when the activations were requested: earlier, its weights
 * would come before them. Elsewhere, and in the simulator, launches do not overlap, and these functions do nothing.
 *
 * Limit: the next launch needs free registers and shared memory.
 *
 * Rates: `python suites/performance/gpu_peers.py --rows 1 8 16`. Versions and what lost:
 * docs/kernels/cuda_overlap.md. */
#ifndef TRITMARK_CUDA_OVERLAP
#define TRITMARK_CUDA_OVERLAP

/* Allow blocks of the next launch to begin, if there is room. */
__device__ __forceinline__ void let_the_next_begin()
{
#if !defined(TRITMARK_SIMULATOR) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Bring what lies there into L2. The launch before may still write it, because L2 has what all launches write; it is
 * read behind wait_for_the_one_before. */
__device__ __forceinline__ void prefetch(const void *from)
{
#if !defined(TRITMARK_SIMULATOR) && __CUDA_ARCH__ >= 900
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
#endif
}

/* Wait until the launch before this one is over and all that it wrote is visible. Called by each thread that reads or
 * writes device memory, at least by one whose signal these wait for. */
__device__ __forceinline__ void wait_for_the_one_before()
{
#if !defined(TRITMARK_SIMULATOR) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
#endif
