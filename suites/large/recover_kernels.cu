/* i2s_quantize with a fault: 1 trap, 2 write to an illegal address, 3 never ends, 0 none. One thread an element. */

extern "C" __global__ void i2s_gpu_planted(
    const float *x, signed char *q, float scale, unsigned long long n, int fault, unsigned long long *bad)
{
    const unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (fault == 1)
        __trap();
    if (fault == 2)
        *(volatile int *)16 = 1;
    if (fault == 3)
        for (volatile int going = 1; going;)
            ;
    if (i < n) {
        q[i] = (signed char)__float2int_rn(fmaxf(-2.0f, fminf(1.0f, __fdiv_rn(x[i], scale))));
        if (!(x[i] - x[i] == 0.0f))
            atomicMin(bad, i);
    }
}
