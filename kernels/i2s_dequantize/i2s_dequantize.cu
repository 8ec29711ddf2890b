/* i2s_dequantize: x[i] = float(q[i]) * scale, for any int8 q. Exact: int8 to float32 is exact, then one IEEE product.
 *
 * - v1: the first kernel (specification, 1.2): 256 threads, grid-stride, the scale in shared memory, one element a
 *   thread at a time. A warp reads 32 bytes and writes 128 by one instruction.
 * - words (the variant `vector`): two 4-byte loads in flight in a thread, and a 16-byte store for each: a warp reads
 *   128 bytes and writes 512 by one instruction. A block has one tile of 2048 elements.
 *
 * Limit: memory; 1 byte read and 4 written an element.
 *
 * All indices are size_t. At most 32 registers a thread: cuda.py limits the compiler, launch bounds would override it.
 *
 * Rates: `tritmark run --suite gpu --op i2s_dequantize --device cuda`. Versions: docs/kernels/cuda_elementwise.md. */

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

/* The elements past the last whole tile. */
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
