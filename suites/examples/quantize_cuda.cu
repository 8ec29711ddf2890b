/* A kernel of i2s_quantize for a GPU, one element a thread. */
extern "C" __global__ void quantize_elements(
    const float *x, signed char *q, float scale, long long n, unsigned long long *bad)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    if (!isfinite(x[i]))
        atomicMin(bad, (unsigned long long)i);
    q[i] = (signed char)__float2int_rn(fmaxf(-2.0f, fminf(1.0f, __fdiv_rn(x[i], scale))));
}
