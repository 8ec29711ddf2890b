/* One kernel for each feature of the simulator; test_simulator.py compares with NumPy. Valid CUDA for 8.0 and
 * up. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

#define INDEX ((size_t)blockIdx.x * blockDim.x + threadIdx.x)
#define STRIDE ((size_t)gridDim.x * blockDim.x)

extern "C" __global__ void sim_scale(const float *__restrict__ x, float *__restrict__ y, float by, size_t n)
{
    for (size_t i = INDEX; i < n; i += STRIDE)
        y[i] = x[i] * by;
}

/* Every thread of a three-dimensional grid and block stores its position. */
extern "C" __global__ void sim_places(unsigned *places)
{
    const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    places[block * (blockDim.x * blockDim.y * blockDim.z) + thread] += 1 + thread + 1000 * block;
}

/* Sum of a block in every thread: a warp by shuffles, the warps through static and dynamic shared memory. */
extern "C" __global__ void sim_block_sum(const int *x, int *y)
{
    extern __shared__ __align__(16) int dynamic[];
    __shared__ int total;
    int sum = x[INDEX];
    for (int by = 16; by; by /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, by);
    if (threadIdx.x % 32 == 0)
        dynamic[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        total = 0;
        for (int i = 0; i < blockDim.x / 32; i++)
            total += dynamic[i];
    }
    __syncthreads();
    y[INDEX] = total;
}

extern "C" __global__ void sim_barrier_votes(const int *x, int *y)
{
    const int count = __syncthreads_count(x[threadIdx.x]), all = __syncthreads_and(x[threadIdx.x]),
              any = __syncthreads_or(x[threadIdx.x]);
    y[threadIdx.x] = count * 4 + (all != 0) * 2 + (any != 0);
}

/* One warp. */
__device__ double shuffled(double mine, int kind, int argument, int width, unsigned mask)
{
    switch (kind) {
    case 0: return __shfl_sync(mask, mine, argument, width);
    case 1: return __shfl_up_sync(mask, mine, argument, width);
    case 2: return __shfl_down_sync(mask, mine, argument, width);
    default: return __shfl_xor_sync(mask, mine, argument, width);
    }
}
extern "C" __global__ void sim_shuffle(const double *x, double *y, int kind, int argument, int width, unsigned mask)
{
    y[threadIdx.x] = shuffled(x[threadIdx.x], kind, argument, width, mask);
}
/* Only the lanes of the mask take part. */
extern "C" __global__ void sim_shuffle_apart(
    const double *x, double *y, int kind, int argument, int width, unsigned mask)
{
    double got = 0;
    if (mask >> threadIdx.x & 1)
        got = shuffled(x[threadIdx.x], kind, argument, width, mask);
    y[threadIdx.x] = got;
}

/* Only the lanes of the mask stay. */
extern "C" __global__ void sim_votes(const int *x, unsigned *y, unsigned mask)
{
    if (!(mask >> threadIdx.x & 1))
        return;
    unsigned *const mine = y + 12 * threadIdx.x;
    const int value = x[threadIdx.x];
    mine[0] = __ballot_sync(mask, value > 0);
    mine[1] = __any_sync(mask, value > 0);
    mine[2] = __all_sync(mask, value > 0);
}

extern "C" __global__ void sim_reductions(const int *x, unsigned *y)
{
    unsigned *const mine = y + 12 * threadIdx.x;
    const int value = x[threadIdx.x];
    int all;
    mine[0] = __match_any_sync(0xffffffffu, value);
    mine[1] = __match_all_sync(0xffffffffu, value, &all);
    mine[2] = all;
#if __CUDA_ARCH__ >= 800
    mine[3] = (unsigned)__reduce_add_sync(0xffffffffu, value);
    mine[4] = (unsigned)__reduce_min_sync(0xffffffffu, value);
    mine[5] = (unsigned)__reduce_max_sync(0xffffffffu, value);
    mine[6] = __reduce_min_sync(0xffffffffu, (unsigned)value);
    mine[7] = __reduce_max_sync(0xffffffffu, (unsigned)value);
    mine[8] = __reduce_and_sync(0xffffffffu, (unsigned)value);
    mine[9] = __reduce_or_sync(0xffffffffu, (unsigned)value);
    mine[10] = __reduce_xor_sync(0xffffffffu, (unsigned)value);
#endif
    mine[11] = threadIdx.x % 3 ? __activemask() : 0;
}

/* Counts with atomics on device and shared memory; the first index of the largest value. */
extern "C" __global__ void sim_histogram(
    const unsigned char *x, unsigned *counts, float *sum, unsigned long long *first, int n)
{
    __shared__ unsigned mine[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        mine[i] = 0;
    __syncthreads();
    for (int i = INDEX; i < n; i += STRIDE) {
        atomicAdd(&mine[x[i]], 1u);
        atomicAdd(sum, (float)x[i]);
        if (x[i] == 255)
            atomicMin(first, (unsigned long long)i);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        if (mine[i])
            atomicAdd(&counts[i], mine[i]);
}

/* The last block adds up the sums of all blocks: correct, although no barrier spans blocks. */
extern "C" __global__ void sim_last_block(const int *x, int *partial, unsigned *done, int *total)
{
    __shared__ bool last;
    const int sum = __reduce_add_sync(0xffffffffu, x[INDEX]);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();
        last = atomicAdd(done, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        int all = 0;
        for (unsigned i = 0; i < gridDim.x; i++)
            all += partial[i];
        *total = all;
    }
}

/* Whole blocks leave before any barrier; all threads read the same words; a warp passes values on in lockstep. */
extern "C" __global__ void sim_innocent(const int *x, int *y, int blocks)
{
    __shared__ int table[32], line[64];
    if ((int)blockIdx.x >= blocks)
        return;
    if (threadIdx.x < 32)
        table[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    int sum = 0;
    for (int i = 0; i < 32; i++)
        sum += table[i];
    const int lane = threadIdx.x % 32, first = threadIdx.x - lane;
    line[threadIdx.x] = sum + threadIdx.x;
    __syncwarp();
    for (int step = 0; step < 5; step++) {
        const int next = line[first + (lane + 1) % 32];
        __syncwarp();
        line[threadIdx.x] = next;
        __syncwarp();
    }
    /* half-warps synchronized on their own */
    const unsigned mask = lane < 16 ? 0x0000ffffu : 0xffff0000u;
    const int other = line[first + (lane ^ 1)];
    __syncwarp(mask);
    line[threadIdx.x] = other;
    __syncwarp(mask);
    y[blockIdx.x * blockDim.x + threadIdx.x] = line[first + (lane ^ 3)];
}

/* Part of a warp works while the rest already waits for the whole warp. */
extern "C" __global__ void sim_parts(int *y)
{
    const int lane = threadIdx.x;
    int got = lane;
    if (lane < 8)
        got = __shfl_xor_sync(0x000000ffu, got, 1);
    if (lane >= 30)
        got = __shfl_xor_sync(0xc0000000u, got, 1);
    got = __shfl_xor_sync(0xffffffffu, got, 16);
    if (lane % 2)
        got += __popc(__ballot_sync(0xaaaaaaaau, lane > 8));
    y[lane] = __reduce_max_sync(0xffffffffu, got) * 64 + got;
}

/* A structure with padding between its members that is never written. */
struct Padded {
    char small;
    double large;
};
extern "C" __global__ void sim_padded(Padded *from, Padded *to)
{
    from[threadIdx.x].small = (char)threadIdx.x;
    from[threadIdx.x].large = threadIdx.x;
    to[threadIdx.x] = from[threadIdx.x];
}

extern "C" __global__ void sim_dp4a(const int *a, const int *b, const int *c, int *y, int n)
{
    for (size_t i = INDEX; i < n; i += STRIDE) {
        y[i] = __dp4a(a[i], b[i], c[i]);
        y[n + i] = (int)__dp4a((unsigned)a[i], (unsigned)b[i], (unsigned)c[i]);
    }
}

extern "C" __global__ void sim_bits(const unsigned *a, const unsigned *b, const unsigned *c, unsigned *y, int n)
{
    for (size_t i = INDEX; i < n; i += STRIDE) {
        unsigned *const mine = y + 8 * i;
        mine[0] = __byte_perm(a[i], b[i], c[i]);
        mine[1] = __popc(a[i]);
        mine[2] = __clz((int)a[i]);
        mine[3] = __ffs((int)a[i]);
        mine[4] = __brev(a[i]);
        mine[5] = __funnelshift_l(a[i], b[i], c[i]);
        mine[6] = __funnelshift_r(a[i], b[i], c[i]);
        mine[7] = __umulhi(a[i], b[i]);
    }
}

extern "C" __global__ void sim_to_integer(const float *x, int *nearest, int *down, unsigned *unsigned_nearest, int n)
{
    for (size_t i = INDEX; i < n; i += STRIDE) {
        nearest[i] = __float2int_rn(x[i]);
        down[i] = __float2int_rd(x[i]);
        unsigned_nearest[i] = __float2uint_rn(x[i]);
    }
}

extern "C" __global__ void sim_widen(const unsigned short *bits, float *half_out, float *bfloat16_out, int n)
{
    for (size_t i = INDEX; i < n; i += STRIDE) {
        half_out[i] = __half2float(__ushort_as_half(bits[i]));
        bfloat16_out[i] = __bfloat162float(__ushort_as_bfloat16(bits[i]));
    }
}

extern "C" __global__ void sim_narrow(const float *x, unsigned short *half_out, unsigned short *bfloat16_out, int n)
{
    for (size_t i = INDEX; i < n; i += STRIDE) {
        half_out[i] = __half_as_ushort(__float2half_rn(x[i]));
        bfloat16_out[i] = __bfloat16_as_ushort(__float2bfloat16_rn(x[i]));
    }
}

extern "C" __global__ void sim_narrow_double(
    const double *x, unsigned short *half_out, unsigned short *bfloat16_out, int n)
{
    for (size_t i = INDEX; i < n; i += STRIDE) {
        half_out[i] = __half_as_ushort(__double2half(x[i]));
        bfloat16_out[i] = __bfloat16_as_ushort(__double2bfloat16(x[i]));
    }
}

template <class T> __device__ void arithmetic(const T *a, const T *b, const T *c, T *y, int n)
{
    for (size_t i = INDEX; i < n; i += STRIDE) {
        y[i] = a[i] + b[i];
        y[n + i] = a[i] - b[i];
        y[2 * n + i] = a[i] * b[i];
        y[3 * n + i] = a[i] / b[i];
        y[4 * n + i] = __hfma(a[i], b[i], c[i]);
    }
}
extern "C" __global__ void sim_half(const half *a, const half *b, const half *c, half *y, int n)
{
    arithmetic(a, b, c, y, n);
}
extern "C" __global__ void sim_bfloat16(
    const __nv_bfloat16 *a, const __nv_bfloat16 *b, const __nv_bfloat16 *c, __nv_bfloat16 *y, int n)
{
    arithmetic(a, b, c, y, n);
}

/* d = 2 (a b) + c for one tile; b by columns. */
template <class T, class Sum> __device__ void product(const T *a, const T *b, const Sum *c, Sum *d)
{
    wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, Sum> sum, plus;
    wmma::fill_fragment(sum, (Sum)0.0f);
    wmma::load_matrix_sync(left, a, 16);
    wmma::load_matrix_sync(right, b, 16);
    wmma::mma_sync(sum, left, right, sum);
    wmma::load_matrix_sync(plus, c, 16, wmma::mem_row_major);
    for (int i = 0; i < sum.num_elements; i++)
        sum.x[i] = (Sum)2.0f * sum.x[i] + plus.x[i];
    wmma::store_matrix_sync(d, sum, 16, wmma::mem_row_major);
}
extern "C" __global__ void sim_wmma_half(const half *a, const half *b, const float *c, float *d)
{
    product(a, b, c, d);
}
extern "C" __global__ void sim_wmma_half_sum(const half *a, const half *b, const half *c, half *d)
{
    product(a, b, c, d);
}
extern "C" __global__ void sim_wmma_bfloat16(const __nv_bfloat16 *a, const __nv_bfloat16 *b, const float *c, float *d)
{
    product(a, b, c, d);
}
extern "C" __global__ void sim_wmma_int8(const signed char *a, const signed char *b, const int *c, int *d)
{
    product(a, b, c, d);
}
