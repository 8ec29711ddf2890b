/* A kernel of i2s_quantize, one element a thread: q = rint(clamp(x / scale, -2, 1)), the division in float32, ties
 * to even. */

/* `bad` holds all ones: lower it to the index of the first NaN or infinity. */
extern "C" __global__ void i2s_gpu_quantize(
    const float *x, float scale, signed char *q, long long n, unsigned long long *bad)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    if (!isfinite(x[i]))
        atomicMin(bad, (unsigned long long)i);
    q[i] = (signed char)__float2int_rn(fmaxf(-2.0f, fminf(1.0f, __fdiv_rn(x[i], scale))));
}
