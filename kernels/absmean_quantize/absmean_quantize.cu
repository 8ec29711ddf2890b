/* absmean_quantize: scale = max(mean |x|, 1e-5), q = clamp(rint(x / scale), -1, 1), the division in float32, ties to
 * even. Kernels: `v1`, and `ahead` for the sums with `words` for the codes (the variant `vector`).
 *
 * Layout: the contract (spec.py) fixes the order of the sum, so the bits are the CPU kernels': at most 1024 chunks,
 * each with 16 float64 lanes, element i added to lane i mod 16 in rising order. Lanes are added pairwise, 8 apart, then
 * 4, 2, 1; the chunks' sums likewise, 512 apart, then 256, and so on. Three launches: the chunks' sums, the scale, the
 * codes.
 *
 * Algorithm: a thread has a lane. In `ahead` a warp of two chunks is a block. Copies to shared memory (cp.async, 8.0
 * and newer) keep 12 to 16 KiB a warp in flight; a lane's next element is a conflict-free load. A float's magnitude,
 * its bits laid into a double's fields, is 2^-896 times its value, denormals too, so one fma with 2^896 converts and
 * adds with one rounding. The codes need no division: for a scale of 1e-5 or more its half is exact and normal, and a
 * quotient is above 0.5 just where |x| is above scale / 2.
 * A float64 sum of zeros added to what is never negative changes no bit, so a lane is filled up with zeros. NaN and
 * infinity have an exponent that adds 2^128 or more: only a lane with so large a sum looks for them, and lowers `bad`
 * to the first one's index. All indices have 64 bits.
 *
 * Limit: 16384 chains of dependent additions at most, some 500 cycles a warp for 32 rows; then 9 bytes an element.
 *
 * Rates: `tritmark run --suite gpu --op absmean_quantize --device cuda`. Versions: docs/kernels/cuda_quantize.md. */

#define LANES 16
/* Macros: threads of a block, MOST_CHUNKS for the scale, WARP for `ahead`'s sums, THREADS for all others. */

#define ROWS 32 /* elements of a lane in a stage */
#define STAGES 4
#define STAGE (ROWS * WARP)
#define PIECE 4 /* elements that a copy takes */

__device__ __forceinline__ bool nonfinite(float x) { return (__float_as_uint(x) & 0x7fffffffu) >= 0x7f800000u; }

/* The sum of the 16 lanes, in the first of 16 neighbouring threads. */
__device__ __forceinline__ double pairwise(double lane)
{
    for (int apart = LANES / 2; apart; apart /= 2)
        lane = __dadd_rn(lane, __shfl_down_sync(0xffffffffu, lane, apart, LANES));
    return lane;
}

extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_absmean_sums_v1(
    const float *__restrict__ x, double *__restrict__ sums, size_t n, size_t chunk_size, unsigned long long *bad)
{
    const size_t thread = (size_t)blockIdx.x * THREADS + threadIdx.x, chunk = thread / LANES;
    const size_t begin = chunk * chunk_size, end = n - begin < chunk_size ? n : begin + chunk_size;
    double sum = 0;
    if (begin < n)
        for (size_t i = begin + thread % LANES; i < end; i += LANES) {
            float value = x[i];
            sum = __dadd_rn(sum, (double)fabsf(value));
            if (nonfinite(value))
                atomicMin(bad, (unsigned long long)i);
        }
    sum = pairwise(sum);
    if (begin < n && thread % LANES == 0)
        sums[chunk] = sum;
}

/* The scale from the chunks' sums; one block. */
extern "C" __global__ void __launch_bounds__(MOST_CHUNKS)
    ternary_gpu_absmean_scale(const double *__restrict__ sums, float *__restrict__ scale, size_t n, int chunks)
{
    __shared__ double staged[MOST_CHUNKS];
    const int thread = threadIdx.x;
    staged[thread] = thread < chunks ? sums[thread] : 0.0;
    __syncthreads();
    for (int apart = MOST_CHUNKS / 2; apart >= WARP; apart /= 2) {
        if (thread < apart)
            staged[thread] = __dadd_rn(staged[thread], staged[thread + apart]);
        __syncthreads();
    }
    if (thread < WARP) {
        double sum = staged[thread];
        for (int apart = WARP / 2; apart; apart /= 2)
            sum = __dadd_rn(sum, __shfl_down_sync(0xffffffffu, sum, apart));
        const double mean = __ddiv_rn(sum, (double)n);
        if (thread == 0)
            scale[0] = (float)(mean > 1e-5 ? mean : 1e-5);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_absmean_codes_v1(
    const float *__restrict__ x, signed char *__restrict__ q, const float *__restrict__ scale, size_t n)
{
    __shared__ float shared_scale[1];
    if (threadIdx.x == 0)
        shared_scale[0] = scale[0];
    __syncthreads();
    const size_t stride = (size_t)blockDim.x * gridDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        q[i] = (signed char)__float2int_rn(fmaxf(-1.0f, fminf(1.0f, rintf(__fdiv_rn(x[i], shared_scale[0])))));
}

/* Begin to copy PIECE floats, zeros for all but the first `bytes`. */
__device__ __forceinline__ void copy(float *to, const float *from, int bytes)
{
    if (bytes == 4 * PIECE) {
#if !defined(TRITMARK_SIMULATOR) && __CUDA_ARCH__ >= 800
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(to)),
                     "l"(from)
                     : "memory");
#else
        *(float4 *)to = __ldcg((const float4 *)from);
#endif
        return;
    }
    for (int k = 0; k < PIECE; k++)
        to[k] = 4 * k < bytes ? from[k] : 0.0f;
}

/* What the thread began to copy since the last call is a batch. */
__device__ __forceinline__ void batch()
{
#if !defined(TRITMARK_SIMULATOR) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Wait for all of the warp's batches but the last STAGES - 1. */
__device__ __forceinline__ void arrive()
{
#if !defined(TRITMARK_SIMULATOR) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1) : "memory");
#endif
    __syncwarp();
}

/* Begin to copy ROWS * LANES elements of a chunk, of which it has `left`; zeros for the others. Each row is followed by
 * that of the other chunk. */
__device__ __forceinline__ void fetch(float *to, const float *from, long long left)
{
    to += threadIdx.x / 4 * WARP + threadIdx.x % 4 * PIECE;
    const int own = PIECE * threadIdx.x, turn = PIECE * WARP, rows = turn / LANES;
    if (left >= ROWS * LANES) {
#pragma unroll
        for (int k = 0; k < ROWS / rows; k++)
            copy(to + k * rows * WARP, from + k * turn + own, 4 * PIECE);
    } else {
        for (int k = 0; k < ROWS / rows; k++) {
            const long long mine = left - k * turn - own;
            copy(
                to + k * rows * WARP, mine > 0 ? from + k * turn + own : from,
                mine <= 0      ? 0
                : mine < PIECE ? 4 * (int)mine
                               : 4 * PIECE);
        }
    }
}

/* sum + |x| for a finite x. */
__device__ __forceinline__ double add(double sum, float x)
{
    return __fma_rn(__longlong_as_double((long long)(__float_as_uint(x) & 0x7fffffffu) << 29), 0x1p896, sum);
}

/* Two chunks a block; a thread a lane. */
extern "C" __global__ void __launch_bounds__(WARP) ternary_gpu_absmean_sums_ahead(
    const float *__restrict__ x, double *__restrict__ sums, size_t n, size_t chunk_size, unsigned long long *bad)
{
    __shared__ __align__(16) float stages[STAGES * STAGE];
    const size_t chunk = (size_t)blockIdx.x * 2, lane = threadIdx.x % LANES;
    const float *even = x + chunk * chunk_size, *odd = even + chunk_size;
    const long long past = (long long)(n - chunk * chunk_size), size = (long long)chunk_size;
    const long long evens = past < size ? past : size, odds = past - size < size ? past - size : size;
    for (int stage = 0; stage < STAGES; stage++) {
        fetch(stages + stage * STAGE, even + stage * ROWS * LANES, evens - stage * ROWS * LANES);
        fetch(stages + stage * STAGE + LANES, odd + stage * ROWS * LANES, odds - stage * ROWS * LANES);
        batch();
    }
    double sum = 0;
    int stage = 0;
    for (long long at = 0; at < evens; at += ROWS * LANES) {
        float *here = stages + stage * STAGE;
        arrive();
#pragma unroll
        for (int row = 0; row < ROWS; row++)
            sum = add(sum, here[row * WARP + threadIdx.x]);
        __syncwarp();
        const long long next = at + STAGES * ROWS * LANES;
        if (next < evens) {
            fetch(here, even + next, evens - next);
            fetch(here + LANES, odd + next, odds - next);
        }
        batch();
        stage = (stage + 1) % STAGES;
    }
    const bool is_odd = threadIdx.x >= LANES;
    const float *own = is_odd ? odd : even;
    const long long length = is_odd ? odds : evens;
    if (sum >= 0x1p128)
        for (long long i = lane; i < length; i += LANES)
            if (nonfinite(own[i])) {
                atomicMin(bad, (unsigned long long)(own - x + i));
                break;
            }
    __syncwarp();
    sum = pairwise(sum);
    if (lane == 0 && length > 0)
        sums[chunk + is_odd] = sum;
}

/* `half` is scale / 2. */
__device__ __forceinline__ unsigned code(float x, float half) { return x > half ? 1u : x < -half ? 0xffu : 0u; }

__device__ __forceinline__ unsigned codes(float4 x, float half)
{
    return code(x.x, half) | code(x.y, half) << 8 | code(x.z, half) << 16 | code(x.w, half) << 24;
}

extern "C" __global__ void __launch_bounds__(THREADS) ternary_gpu_absmean_codes_words(
    const float *__restrict__ x, signed char *__restrict__ q, const float *__restrict__ scale, size_t n)
{
    const size_t tile = (size_t)THREADS * 8;
    const float half = __fmul_rn(0.5f, __ldg(scale));
    for (size_t begin = blockIdx.x * tile; begin < n; begin += gridDim.x * tile) {
        if (n - begin < tile) {
            for (size_t i = begin + threadIdx.x; i < n; i += THREADS)
                q[i] = (signed char)code(x[i], half);
            return;
        }
        const float4 *from = (const float4 *)(x + begin) + threadIdx.x;
        unsigned *to = (unsigned *)(q + begin) + threadIdx.x;
        const float4 a = __ldcs(from), b = __ldcs(from + THREADS);
        __stcs(to, codes(a, half));
        __stcs(to + THREADS, codes(b, half));
    }
}
