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
 *         x may be float16 or bfloat16, which become float32 first: then four 8-byte loads are under way.
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
 * Hints to the caches. Until here loads and stores were evict-first (__ldcs, __stcs), and torch.compile's kernel was up
 * to 4 percent faster; its accesses are plain ones, eight elements a thread, one tile a block. Measured on an H200 at
 * 2^28, launches by turns over three sets of arrays, us and TB/s, the check for NaN included (torch.compile has none):
 *
 *     loads          stores plain      evict-first     evict-last      write-through
 *     plain          304.7, 4.41       304.1, 4.41     304.3, 4.41     303.8, 4.42
 *     nc             303.8, 4.42       303.7, 4.42
 *     evict-first    334.9, 4.01       310.9, 4.32     326.9, 4.11     332.9, 4.03
 *     L1 not used    335.4, 4.00       311.3, 4.31                                     (evict-first in the L2)
 *     last use       334.8, 4.01       311.0, 4.32
 *     torch.compile, tuned: 303.9, 4.42; as it is without: 304.9, 4.40
 *
 * So loads that are evicted first cost 2 to 10 percent, whatever is stored how. Over one set of arrays, whose codes are
 * still in the L2 when the next launch writes them, evict-first for both takes 304.0: that hid it. With plain accesses
 * nothing else matters by 0.5 percent: 128, 512 or 1024 threads 304.6, 303.3, 303.3; four loads 304.4; eight elements
 * next to each other in a thread and 8-byte stores 303.8; 16 and 16-byte stores 303.3 (302.4 with 128 threads, but its
 * loads are 64 bytes apart). One load a thread: 323.3.
 *
 * Measured once more, by turns with torch.compile tuned: float32 305.1 (its 304.7), float16 187.8 (186.9), bfloat16
 * 186.9 (188.0).
 *
 * NaN and infinity: x * 0 is NaN for them and 0 for all others, so a sum of such products, one instruction an element,
 * tells whether a thread has met any; only then it looks for the first. `bad` is lowered to its index.
 *
 * All indices are size_t. At most 32 registers a thread: cuda.py holds the compiler to that, which launch bounds
 * would overrule. */

/* Macros: THREADS, of a block; INPUT, of what is read, see element.cuh. */
#include "../cuda/element.cuh"

#define LOADS (8 / (int)sizeof(element)) /* under way in a thread: 32 bytes */

__device__ __forceinline__ bool nonfinite(float x) { return (__float_as_uint(x) & 0x7fffffffu) >= 0x7f800000u; }

extern "C" __global__ void i2s_gpu_quantize_v1(
    const element *__restrict__ x, signed char *__restrict__ q, float scale, size_t n, unsigned long long *bad)
{
    __shared__ float shared_scale[1];
    if (threadIdx.x == 0)
        shared_scale[0] = scale;
    __syncthreads();
    const size_t stride = (size_t)blockDim.x * gridDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        const float wide = value(x[i]);
        q[i] = (signed char)__float2int_rn(fmaxf(-2.0f, fminf(1.0f, __fdiv_rn(wide, shared_scale[0]))));
        if (nonfinite(wide))
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

/* The elements of a tile that a thread owns: four at `begin`, and four after each further 4 * THREADS. */
__device__ __forceinline__ void find_nonfinite(const element *x, size_t begin, unsigned long long *bad)
{
    for (int load = 0; load < LOADS; load++)
        for (int k = 0; k < 4; k++)
            if (nonfinite(value(x[begin + load * 4 * THREADS + k]))) {
                atomicMin(bad, (unsigned long long)(begin + load * 4 * THREADS + k));
                return;
            }
}

/* What is left of the array past the last whole tile. */
__device__ __forceinline__ void rest(
    const element *x, signed char *q, float one, float two, size_t begin, size_t n, unsigned long long *bad)
{
    for (size_t i = begin + threadIdx.x; i < n; i += THREADS) {
        const float wide = value(x[i]);
        q[i] = (signed char)code(wide, one, two);
        if (nonfinite(wide))
            atomicMin(bad, (unsigned long long)i);
    }
}

extern "C" __global__ void i2s_gpu_quantize_words(
    const element *__restrict__ x, signed char *__restrict__ q, float one, float two, size_t n, unsigned long long *bad)
{
    const size_t tile = (size_t)THREADS * 4 * LOADS;
    for (size_t begin = blockIdx.x * tile; begin < n; begin += gridDim.x * tile) {
        if (n - begin < tile) {
            rest(x, q, one, two, begin, n, bad);
            return;
        }
        const elements4 *from = (const elements4 *)(x + begin) + threadIdx.x;
        unsigned *to = (unsigned *)(q + begin) + threadIdx.x;
        elements4 four[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            four[i] = from[i * THREADS];
        float found = 0.0f;
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            to[i * THREADS] = codes(values(four[i]), one, two);
            found = suspect(values(four[i]), found);
        }
        if (found != 0.0f)
            find_nonfinite(x, begin + 4 * threadIdx.x, bad);
    }
}
