/* Weights of row16 with a float16 scale for each GROUP weights of a row (row16_grouped.py): where the scales are, and
 * the ring of words and scales of a warp in shared memory. */
#ifndef TRITMARK_CUDA_TILES_GROUPED
#define TRITMARK_CUDA_TILES_GROUPED
#include "operands.cuh"
#include <cuda_fp16.h>

__device__ __forceinline__ float scale_of(unsigned short bits) { return __half2float(__ushort_as_half(bits)); }

/* Scales of a group, with their padding. */
__device__ __forceinline__ long long scales_apart(int N) { return (N + 7ll) / 8 * 8; }

/* The scales of the first group. */
__device__ __forceinline__ const unsigned short *scales_in(const uint4 *w, int N, int K)
{
    return (const unsigned short *)(w + N * (long long)((K + CHUNK - 1) / CHUNK));
}

/* The place of the 16 bytes of a chunk of a step: eight rows are in different banks. */
__device__ __forceinline__ int chunk_at(int row, int chunk) { return row * 64 + ((chunk ^ (row >> 1 & 3)) << 4); }

/* Word t of four chunks of row g, from 8 rows in shared memory. */
__device__ __forceinline__ void words_of(unsigned (&to)[4], const unsigned char *rows)
{
    const int lane = threadIdx.x % 32;
#ifdef TRITMARK_SIMULATOR
    for (int j = 0; j < 4; j++)
        to[j] = *(const unsigned *)(rows + chunk_at(lane / 4, j) + lane % 4 * 4);
#else
    const unsigned at = (unsigned)__cvta_generic_to_shared(rows + chunk_at(lane % 8, lane / 8));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
#endif
}

/* Close a group of copy_async; wait until at most LEFT groups are not complete. */
__device__ __forceinline__ void copies_end()
{
#ifndef TRITMARK_SIMULATOR
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int LEFT> __device__ __forceinline__ void copies_wait()
{
#ifndef TRITMARK_SIMULATOR
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}
#endif
