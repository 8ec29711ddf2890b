/* i2s_quantize: q[i] = rint(clamp(x[i] / scale, -2, 1)), the division in float32, ties to even.
 *
 * 4 bytes are read and 1 is written for an element, so memory sets the time: everything else has to fit beside it.
 *
 * v1      The first kernel (specification, 1.2): 256 threads, grid-stride, the scale in shared memory, an IEEE
 *         division, one element a thread at a time. A warp reads 128 bytes and writes 32 with an instruction, and a
 *         division is some ten instructions.
 * words   No division: the quotient is a monotone function of x, so the code changes at three values of x that are
 *         found once, on the host, by dividing (steps.py). Two 16-byte loads under way in a thread, and a 4-byte store
 *         for each: a warp reads 512 bytes and writes 128 with an instruction. A block has one tile of 2048 elements.
 *
 * NVIDIA H200, timed alone with CUDA events (a graph of launches over slices that no cache holds), TB/s of the 5 bytes
 * an element; the suite's own figures: `tritmark run --suite gpu --device cuda`.
 *
 *     n                        2^21              2^25              2^29
 *     v1                       6.34 us, 1.65     71.4 us, 2.35     1105 us, 2.43
 *     words                    4.12 us, 2.54     40.8 us, 4.11      607 us, 4.42
 *     words, four loads        4.22 us, 2.49     40.8 us, 4.11      610 us, 4.40
 *     words, grid-stride                         41.2 us, 4.08      633 us, 4.24
 *     16-byte stores           4.23 us, 2.48     40.8 us, 4.11      611 us, 4.39
 *     reads alone              3.25 us, 2.58     30.8 us, 4.36      466 us, 4.61     (the 4 bytes only)
 *
 * The last but one exchanges codes among four threads, so that each stores 16 bytes: no gain. Four loads: none either.
 *
 * NaN and infinity: x * 0 is NaN for them and 0 for all others, so a sum of such products, one instruction an element,
 * tells whether a thread has met any; only then it looks for the first. `bad` is lowered to its index.
 *
 * All indices are size_t. At most 32 registers a thread: cuda.py holds the compiler to that, which launch bounds
 * would overrule. */

/* Macro: THREADS, of a block. */

__device__ __forceinline__ bool nonfinite(float x) { return (__float_as_uint(x) & 0x7fffffffu) >= 0x7f800000u; }

extern "C" __global__ void i2s_gpu_quantize_v1(
    const float *__restrict__ x, signed char *__restrict__ q, float scale, size_t n, unsigned long long *bad)
{
    __shared__ float shared_scale[1];
    if (threadIdx.x == 0)
        shared_scale[0] = scale;
    __syncthreads();
    const size_t stride = (size_t)blockDim.x * gridDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        float value = x[i];
        q[i] = (signed char)__float2int_rn(fmaxf(-2.0f, fminf(1.0f, __fdiv_rn(value, shared_scale[0]))));
        if (nonfinite(value))
            atomicMin(bad, (unsigned long long)i);
    }
}

/* `one` is the largest x of code 0, `two` the largest magnitude of code -1. */
__device__ __forceinline__ unsigned code(float x, float one, float two)
{
    return x > one ? 1u : x < -two ? 0xfeu : x < -one ? 0xffu : 0u;
}

__device__ __forceinline__ unsigned codes(float4 x, float one, float two)
{
    return code(x.x, one, two) | code(x.y, one, two) << 8 | code(x.z, one, two) << 16 | code(x.w, one, two) << 24;
}

__device__ __forceinline__ float suspect(float4 x, float so_far)
{
    return __fmaf_rn(x.x, 0.0f, __fmaf_rn(x.y, 0.0f, __fmaf_rn(x.z, 0.0f, __fmaf_rn(x.w, 0.0f, so_far))));
}

/* The elements of a tile that a thread owns: four at `begin` and four after another 4 * THREADS. */
__device__ __forceinline__ void find_nonfinite(const float *x, size_t begin, unsigned long long *bad)
{
    for (int load = 0; load < 2; load++)
        for (int k = 0; k < 4; k++)
            if (nonfinite(x[begin + load * 4 * THREADS + k])) {
                atomicMin(bad, (unsigned long long)(begin + load * 4 * THREADS + k));
                return;
            }
}

/* What is left of the array past the last whole tile. */
__device__ __forceinline__ void rest(
    const float *x, signed char *q, float one, float two, size_t begin, size_t n, unsigned long long *bad)
{
    for (size_t i = begin + threadIdx.x; i < n; i += THREADS) {
        float value = x[i];
        q[i] = (signed char)code(value, one, two);
        if (nonfinite(value))
            atomicMin(bad, (unsigned long long)i);
    }
}

extern "C" __global__ void i2s_gpu_quantize_words(
    const float *__restrict__ x, signed char *__restrict__ q, float one, float two, size_t n, unsigned long long *bad)
{
    const size_t tile = (size_t)THREADS * 8;
    for (size_t begin = blockIdx.x * tile; begin < n; begin += gridDim.x * tile) {
        if (n - begin < tile) {
            rest(x, q, one, two, begin, n, bad);
            return;
        }
        const float4 *from = (const float4 *)(x + begin) + threadIdx.x;
        unsigned *to = (unsigned *)(q + begin) + threadIdx.x;
        const float4 a = __ldcs(from), b = __ldcs(from + THREADS);
        __stcs(to, codes(a, one, two));
        __stcs(to + THREADS, codes(b, one, two));
        if (suspect(b, suspect(a, 0.0f)) != 0.0f)
            find_nonfinite(x, begin + 4 * threadIdx.x, bad);
    }
}
