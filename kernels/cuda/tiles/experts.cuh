/* Products of rows of activations, sorted by expert, with the weights of several experts: the share of a block, found
 * from `offsets` on the device. So a launch depends on the sizes alone, and a graph may be replayed with other offsets.
 *
 * Rows offsets[e] to offsets[e + 1] belong to expert e. A share is at most MOST rows of one expert. Blocks for shares
 * that do not exist end at once. Each warp finds the share of its block itself, which needs no barrier. Offsets that do
 * not ascend make outputs incorrect, but no access leaves an array. */
#ifndef TRITMARK_CUDA_TILES_EXPERTS
#define TRITMARK_CUDA_TILES_EXPERTS
#include "../overlap.cuh"

/* `rows` rows of activations from `first`, all of `expert`. 0 rows: the share does not exist. */
struct Share {
    int expert, first, rows;
};

/* The sum of `count` of the lanes up to this one. */
__device__ __forceinline__ int sum_up_to(int count)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const int more = __shfl_up_sync(0xffffffffu, count, distance);
        count += lane >= distance ? more : 0;
    }
    return count;
}

/* Shares of an expert with rows from `first` to `end`, of those from 0 to M. */
template <int MOST> __device__ __forceinline__ int shares_in(int first, int end, int M)
{
    first = max(first, 0), end = min(end, M);
    return end > first ? (end - first + MOST - 1) / MOST : 0;
}

/* The share that begins with row `row`: the loads of all offsets are in flight together, and nothing is summed. */
template <int MOST> __device__ __forceinline__ Share share_from(const int *offsets, int E, int M, int row)
{
    int passed = 0, first = 0, end = M;
#pragma unroll 8
    for (int e = threadIdx.x % 32; e < E; e += 32) {
        const int at = offsets[e];
        passed += at <= row;
        first = at <= row ? max(first, at) : first;
        end = at <= row ? end : min(end, at);
    }
    const int expert = __reduce_add_sync(0xffffffffu, passed) - 1;
    first = __reduce_max_sync(0xffffffffu, first), end = __reduce_min_sync(0xffffffffu, end);
    const bool begins = expert >= 0 && (row - first) % MOST == 0;
    return {expert, row, begins ? min(end - row, MOST) : 0};
}

/* Share number `nth` in the order of the rows. Each lane counts the shares of `each` experts in a row; then the lanes
 * look at the experts of the lane that has it. */
template <int MOST> __device__ __forceinline__ Share share_at(const int *offsets, int E, int M, int nth)
{
    const int lane = threadIdx.x % 32, each = (E + 31) / 32, from = lane * each, to = min(from + each, E);
    int count = 0;
#pragma unroll 8
    for (int e = from; e < to; e++)
        count += shares_in<MOST>(offsets[e], offsets[e + 1], M);
    const int up_to = sum_up_to(count);
    const unsigned past = __ballot_sync(0xffffffffu, up_to > nth);
    const int holder = past ? __ffs((int)past) - 1 : 32;
    nth -= __shfl_sync(0xffffffffu, up_to - count, holder);
    for (int e = holder * each; e < min((holder + 1) * each, E); e += 32) {
        const bool there = e + lane < min((holder + 1) * each, E);
        const int first = there ? max(offsets[e + lane], 0) : 0, end = there ? min(offsets[e + lane + 1], M) : 0;
        const int here = shares_in<MOST>(first, end, M), sum = sum_up_to(here);
        const unsigned found = __ballot_sync(0xffffffffu, sum > nth);
        if (found) {
            const int owner = __ffs((int)found) - 1, row = first + (nth - sum + here) * MOST;
            const int rows = row < first || row >= end ? 0 : min(end - row, MOST);
            return {e + owner, __shfl_sync(0xffffffffu, row, owner), __shfl_sync(0xffffffffu, rows, owner)};
        }
        nth -= __shfl_sync(0xffffffffu, sum, 31);
    }
    return {0, 0, 0};
}

/* Lower `bad` to the index of an offset that is below the one before it, or not 0 or M at the ends. All threads of a
 * block call this. */
__device__ __forceinline__ void check_offsets(const int *offsets, int E, int M, unsigned long long *bad)
{
    for (int e = threadIdx.x; e <= E; e += blockDim.x) {
        const int at = offsets[e];
        if ((e ? at < offsets[e - 1] : at != 0) || (e == E && at != M))
            atomicMin(bad, (unsigned long long)e);
    }
}

/* The share of this block: blockIdx.x of `shares` (M, or as many as there may be), whose blocks blockIdx.y tells apart. One
 * more column of blocks has no share; its first block checks the offsets. */
template <int MOST>
__device__ __forceinline__ Share share_of_block(const int *offsets, int E, int M, int shares, unsigned long long *bad)
{
    for (int e = 32 * threadIdx.x; e <= E; e += 32 * blockDim.x)
        prefetch(offsets + e);
    wait_for_the_one_before();
    const int nth = blockIdx.x;
    if (nth < shares)
        return shares == M ? share_from<MOST>(offsets, E, M, nth) : share_at<MOST>(offsets, E, M, nth);
    if (blockIdx.y == 0)
        check_offsets(offsets, E, M, bad);
    return {0, 0, 0};
}
#endif
