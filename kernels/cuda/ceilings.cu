/* What a GPU can do at most: kernels that only read, only write, only copy or only compute.
 *
 * Layout: a grid either covers everything once ("whole") or is as large as the device holds at a time and strides over
 * it ("resident"). The launcher makes both of every function, and the fastest at a footprint is the ceiling. A thread
 * makes:
 * - _1: one 16-byte access;
 * - _4, _8: that many, each a block's width apart, all loads before the first use;
 * - _stream_4: the same with loads and stores that are not meant to stay in L2 (ld.global.cs, st.global.cs).
 *
 * Algorithm: dot: 8 independent chains of dp4a (8 operations each), 32 instructions a round. Operands depend on the
 * previous result, so the loop stays. matrix: 8 independent chains of int8 mma m16n8k32 (8192 operations each), from
 * 8.0. wgmma of 9.0 is faster: ceilings_wgmma.cu. Launches overlap (overlap.cuh), as those of kernels do: what is read
 * is constant, so it is read before the launch before has ended; nothing is written before that.
 *
 * Limit: bytes in flight. At 4.8 TB/s and some 700 ns from DRAM about 3.4 MB, 25 KiB on each of 132 multiprocessors.
 * 2048 threads with one 16-byte access each are 32 KiB, so _1 is about enough and _4, _8 leave room. With few bytes,
 * more threads can begin at once.
 *
 * Every function takes any number of bytes: what is left over 16 goes byte by byte through the first block. Sums wrap
 * at 2^32 and are left in sums[block], so what was read can be checked and the compiler keeps it. Sizes are 64-bit.
 * Macro: THREADS, of a block.
 *
 * Rates: `tritmark machine`. Versions: docs/kernels/cuda_ceilings.md. */
#include "../overlap.cuh"

typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ uint4 fetch(const uint4 *data) { return __ldg(data); }
__device__ __forceinline__ uint4 fetch_once(const uint4 *data) { return __ldcs(data); }

__device__ __forceinline__ u32 sum4(uint4 v) { return v.x + v.y + v.z + v.w; }

/* The sum over the block, left in sums[blockIdx.x]. `warps` is room for 32 words of shared memory. */
__device__ __forceinline__ void leave_sum(u32 sum, u32 *warps, u32 *sums)
{
    for (int step = 16; step; step >>= 1)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if ((threadIdx.x & 31) == 0)
        warps[threadIdx.x >> 5] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 all = 0;
        for (u32 warp = 0; warp < blockDim.x >> 5; ++warp)
            all += warps[warp];
        wait_for_the_one_before();
        sums[blockIdx.x] = all;
    }
}

template <int UNROLL
, bool ONCE > __device__ __forceinline__ u32 read_all(const unsigned char *data, u64 nbytes)
{
    const uint4 *vectors = reinterpret_cast<const uint4 *>(data);
    const u64 count = nbytes / 16, tile = (u64)blockDim.x * UNROLL;
    u32 sum = 0;
    let_the_next_begin();
    for (u64 at = blockIdx.x * tile + threadIdx.x; at < count; at += gridDim.x * tile) {
        uint4 v[UNROLL];
        if (at + (UNROLL - 1) * blockDim.x < count) {
#pragma unroll
            for (int k = 0; k < UNROLL; ++k)
                v[k] = ONCE ? fetch_once(vectors + at + k * blockDim.x) : fetch(vectors + at + k * blockDim.x);
#pragma unroll
            for (int k = 0; k < UNROLL; ++k)
                sum += sum4(v[k]);
        } else {
            for (u64 k = at; k < count; k += blockDim.x)
                sum += sum4(fetch(vectors + k));
        }
    }
    if (blockIdx.x == 0 && threadIdx.x < nbytes % 16)
        sum += (u32)data[count * 16 + threadIdx.x] << (8 * (threadIdx.x % 4));
    return sum;
}

template <int UNROLL
, bool ONCE > __device__ __forceinline__ void write_all(unsigned char *data, u64 nbytes, u32 word)
{
    uint4 *vectors = reinterpret_cast<uint4 *>(data);
    const u64 count = nbytes / 16, tile = (u64)blockDim.x * UNROLL;
    const uint4 v = make_uint4(word, word, word, word);
    let_the_next_begin();
    wait_for_the_one_before();
    for (u64 at = blockIdx.x * tile + threadIdx.x; at < count; at += gridDim.x * tile) {
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) {
            const u64 here = at + (u64)k * blockDim.x;
            if (here < count) {
                if (ONCE)
                    __stcs(vectors + here, v);
                else
                    vectors[here] = v;
            }
        }
    }
    if (blockIdx.x == 0 && threadIdx.x < nbytes % 16)
        data[count * 16 + threadIdx.x] = (unsigned char)(word >> (8 * (threadIdx.x % 4)));
}

/* nbytes is a multiple of 16: the halves of a buffer that the launcher cut. */
template <int UNROLL
, bool ONCE > __device__ __forceinline__ void copy_all(const unsigned char *from, unsigned char *to, u64 nbytes)
{
    const uint4 *source = reinterpret_cast<const uint4 *>(from);
    uint4 *target = reinterpret_cast<uint4 *>(to);
    const u64 count = nbytes / 16, tile = (u64)blockDim.x * UNROLL;
    let_the_next_begin();
    wait_for_the_one_before();
    for (u64 at = blockIdx.x * tile + threadIdx.x; at < count; at += gridDim.x * tile) {
        uint4 v[UNROLL];
        if (at + (UNROLL - 1) * blockDim.x < count) {
#pragma unroll
            for (int k = 0; k < UNROLL; ++k)
                v[k] = ONCE ? fetch_once(source + at + k * blockDim.x) : fetch(source + at + k * blockDim.x);
#pragma unroll
            for (int k = 0; k < UNROLL; ++k) {
                if (ONCE)
                    __stcs(target + at + k * blockDim.x, v[k]);
                else
                    target[at + k * blockDim.x] = v[k];
            }
        } else {
            for (u64 k = at; k < count; k += blockDim.x)
                target[k] = fetch(source + k);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) probe_gpu_read_1(const unsigned char *data, u64 nbytes, u32 *sums)
{
    __shared__ u32 warps[32];
    leave_sum(read_all<1, false>(data, nbytes), warps, sums);
}

extern "C" __global__ void __launch_bounds__(THREADS) probe_gpu_read_4(const unsigned char *data, u64 nbytes, u32 *sums)
{
    __shared__ u32 warps[32];
    leave_sum(read_all<4, false>(data, nbytes), warps, sums);
}

extern "C" __global__ void __launch_bounds__(THREADS) probe_gpu_read_8(const unsigned char *data, u64 nbytes, u32 *sums)
{
    __shared__ u32 warps[32];
    leave_sum(read_all<8, false>(data, nbytes), warps, sums);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    probe_gpu_read_stream_4(const unsigned char *data, u64 nbytes, u32 *sums)
{
    __shared__ u32 warps[32];
    leave_sum(read_all<4, true>(data, nbytes), warps, sums);
}

extern "C" __global__ void __launch_bounds__(THREADS) probe_gpu_write_1(unsigned char *data, u64 nbytes, u32 word)
{
    write_all<1, false>(data, nbytes, word);
}

extern "C" __global__ void __launch_bounds__(THREADS) probe_gpu_write_4(unsigned char *data, u64 nbytes, u32 word)
{
    write_all<4, false>(data, nbytes, word);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    probe_gpu_write_stream_4(unsigned char *data, u64 nbytes, u32 word)
{
    write_all<4, true>(data, nbytes, word);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    probe_gpu_copy_1(const unsigned char *from, unsigned char *to, u64 nbytes)
{
    copy_all<1, false>(from, to, nbytes);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    probe_gpu_copy_4(const unsigned char *from, unsigned char *to, u64 nbytes)
{
    copy_all<4, false>(from, to, nbytes);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    probe_gpu_copy_stream_4(const unsigned char *from, unsigned char *to, u64 nbytes)
{
    copy_all<4, true>(from, to, nbytes);
}

/* The given number of rounds over all threads, 32 dp4a each. */
extern "C" __global__ void __launch_bounds__(THREADS) probe_gpu_dot(u64 rounds, u32 *sums)
{
    __shared__ u32 warps[32];
    const u64 threads = (u64)gridDim.x * blockDim.x, first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    int acc[8];
    let_the_next_begin();
#pragma unroll
    for (int k = 0; k < 8; ++k)
        acc[k] = k + 1;
    for (u64 round = first; round < rounds; round += threads) {
#pragma unroll
        for (int repeat = 0; repeat < 4; ++repeat)
#pragma unroll
            for (int k = 0; k < 8; ++k)
                acc[k] = __dp4a(acc[k], 0x01ff0103, acc[k]);
    }
    u32 sum = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k)
        sum += (u32)acc[k];
    leave_sum(sum, warps, sums);
}

/* The given number of rounds over all warps, 8 products of 16x32 by 32x8 each. The simulator has no such
 * instruction. */
#ifndef TRITMARK_SIMULATOR
extern "C" __global__ void __launch_bounds__(THREADS) probe_gpu_matrix(u64 rounds, u32 *sums)
{
    __shared__ u32 warps[32];
    u32 sum = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    const u64 all = (u64)gridDim.x * (blockDim.x >> 5),
              first = (u64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    const u32 a = 0x01010101u * (threadIdx.x & 3), b = 0x01010101u;
    int acc[8][4];
    let_the_next_begin();
#pragma unroll
    for (int k = 0; k < 8; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            acc[k][i] = k + i;
    for (u64 round = first; round < rounds; round += all) {
#pragma unroll
        for (int k = 0; k < 8; ++k)
            asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, {%5, "
                         "%5}, {%0, %1, %2, %3};"
                         : "+r"(acc[k][0]), "+r"(acc[k][1]), "+r"(acc[k][2]), "+r"(acc[k][3])
                         : "r"(a), "r"(b));
    }
#pragma unroll
    for (int k = 0; k < 8; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            sum += (u32)acc[k][i];
#endif
    leave_sum(sum, warps, sums);
}
#endif

/* An empty kernel, for the cost of a launch. */
extern "C" __global__ void probe_gpu_nothing() {}

/* Keeps a stream waiting for the given nanoseconds; the simulator, which has no time, does not wait. */
extern "C" __global__ void probe_gpu_wait(u64 ns)
{
#ifndef TRITMARK_SIMULATOR
    u64 begun, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begun));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - begun < ns);
#else
    (void)ns;
#endif
}
