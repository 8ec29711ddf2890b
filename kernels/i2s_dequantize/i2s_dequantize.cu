/* i2s_dequantize: x[i] = float(q[i]) * scale, for any int8 q. Exact: int8 to float32 is exact, then one IEEE product.
 *
 * 1 byte is read and 4 are written for an element, so memory sets the time.
 *
 * v1      The first kernel (specification, 1.2): 256 threads, grid-stride, the scale in shared memory, one element a
 *         thread at a time. A warp reads 32 bytes and writes 128 with an instruction.
 * words   Two 4-byte loads under way in a thread, and a 16-byte store for each: a warp reads 128 bytes and writes 512
 *         with an instruction. A block has one tile of 2048 elements.
 *
 * NVIDIA H200, timed alone with CUDA events (a graph of launches over slices that no cache holds), TB/s of the 5 bytes
 * an element; the suite's own figures: `tritmark run --suite gpu --device cuda`.
 *
 *     n                        2^21              2^25              2^29
 *     v1                       6.39 us, 1.64     73.5 us, 2.28     1134 us, 2.37
 *     words                    3.74 us, 2.81     43.0 us, 3.90      665 us, 4.04
 *     words, four loads        3.67 us, 2.85     43.7 us, 3.84      673 us, 3.99
 *     words, grid-stride                         44.7 us, 3.75      716 us, 3.75
 *     16-byte loads            3.69 us, 2.84     43.3 us, 3.87      672 us, 4.00
 *     writes alone             2.77 us, 3.03     30.1 us, 4.46      462 us, 4.64     (the 4 bytes only)
 *
 * The last but one exchanges codes among four threads, so that each loads 16 bytes: no gain. Four loads: none that
 * lasts.
 *
 * All indices are size_t. At most 32 registers a thread: cuda.py holds the compiler to that, which launch bounds
 * would overrule. */

/* Macro: THREADS, of a block. */

extern "C" __global__ void i2s_gpu_dequantize_v1(
    const signed char *__restrict__ q, float *__restrict__ x, float scale, size_t n)
{
    __shared__ float shared_scale[1];
    if (threadIdx.x == 0)
        shared_scale[0] = scale;
    __syncthreads();
    const size_t stride = (size_t)blockDim.x * gridDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        x[i] = __fmul_rn(__int2float_rn(q[i]), shared_scale[0]);
}

__device__ __forceinline__ float value(unsigned codes, int place, float scale)
{
    return __fmul_rn(__int2float_rn((signed char)(codes >> 8 * place)), scale);
}

__device__ __forceinline__ float4 values(unsigned codes, float scale)
{
    return make_float4(value(codes, 0, scale), value(codes, 1, scale), value(codes, 2, scale), value(codes, 3, scale));
}

/* What is left of the array past the last whole tile. */
__device__ __forceinline__ void rest(const signed char *q, float *x, float scale, size_t begin, size_t n)
{
    for (size_t i = begin + threadIdx.x; i < n; i += THREADS)
        x[i] = value((unsigned char)q[i], 0, scale);
}

extern "C" __global__ void i2s_gpu_dequantize_words(
    const signed char *__restrict__ q, float *__restrict__ x, float scale, size_t n)
{
    const size_t tile = (size_t)THREADS * 8;
    for (size_t begin = blockIdx.x * tile; begin < n; begin += gridDim.x * tile) {
        if (n - begin < tile) {
            rest(q, x, scale, begin, n);
            return;
        }
        const unsigned *from = (const unsigned *)(q + begin) + threadIdx.x;
        float4 *to = (float4 *)(x + begin) + threadIdx.x;
        const unsigned a = __ldcs(from), b = __ldcs(from + THREADS);
        __stcs(to, values(a, scale));
        __stcs(to + THREADS, values(b, scale));
    }
}
