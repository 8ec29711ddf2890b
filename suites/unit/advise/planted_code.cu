/* Faults that the static rules must name, each beside its mended twin; compiled by the tests, never run. */
#include <stdint.h>

extern "C" __global__ void gemm_narrow(const float *x, float *y, long long n)
{
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x)
        y[i] = x[i] * 2.0f;
}

extern "C" __global__ void gemm_wide(const float4 *x, float4 *y, long long n)
{
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n / 4;
         i += (long long)gridDim.x * blockDim.x) {
        float4 v = x[i];
        y[i] = make_float4(v.x * 2.0f, v.y * 2.0f, v.z * 2.0f, v.w * 2.0f);
    }
}

template <int LIVE> __device__ void mix(const float *x, float *y, int n)
{
    float v[LIVE];
#pragma unroll
    for (int j = 0; j < LIVE; j++)
        v[j] = x[j * 1024 + threadIdx.x];
    for (int i = 0; i < n; i++) {
        float s = x[i];
#pragma unroll
        for (int j = 0; j < LIVE; j++)
            v[j] = v[j] * s + v[(j * 7 + 1) % LIVE];
    }
#pragma unroll
    for (int j = 0; j < LIVE; j++)
        y[j * 1024 + threadIdx.x] = v[j];
}

extern "C" __global__ void __launch_bounds__(1024, 2) gemm_spilling(const float *x, float *y, int n)
{
    mix<48>(x, y, n);
}
extern "C" __global__ void __launch_bounds__(256, 2) gemm_held(const float *x, float *y, int n) { mix<48>(x, y, n); }

extern "C" __global__ void gemm_indexed(const int *at, const float *x, float *y, int n)
{
    float v[16];
#pragma unroll
    for (int j = 0; j < 16; j++)
        v[j] = x[j * 1024 + threadIdx.x];
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += v[at[i] & 15];
    y[threadIdx.x] = sum;
}

extern "C" __global__ void gemm_unindexed(const int *at, const float *x, float *y, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[(at[i] & 15) * 1024 + threadIdx.x];
    y[threadIdx.x] = sum;
}

extern "C" __global__ void gemm_bytes(const signed char *a, const unsigned char *b, int *y, int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * ((b[i * 1024 + threadIdx.x] >> 2 & 3) - 1);
    y[threadIdx.x] = sum;
}

extern "C" __global__ void gemm_dots(const int *a, const int *b, int *y, int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum = __dp4a(a[i], b[i * 1024 + threadIdx.x], sum);
    y[threadIdx.x] = sum;
}

extern "C" __global__ void gemm_unpacking(const int *a, const unsigned *b, int *y, int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++) {
        unsigned w = b[i * 1024 + threadIdx.x];
        unsigned q = (w & 3) | (w >> 5 & 7) << 8 | (w >> 11 & 15) << 16 | (w >> 23 & 3) << 24;
        q ^= q >> 3 ^ (q << 5 | q >> 9);
        sum = __dp4a(a[i], (int)(q & 0x03030303u), sum);
    }
    y[threadIdx.x] = sum;
}

extern "C" __global__ void gemm_converting(const int *a, float *y, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += (float)a[i * 1024 + threadIdx.x] * 0.5f;
    y[threadIdx.x] = sum;
}

extern "C" __global__ void gemm_integers(const int *a, float *y, int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i * 1024 + threadIdx.x];
    y[threadIdx.x] = (float)sum * 0.5f;
}

extern "C" __global__ void gemm_adding(const int *a, unsigned long long *bad, int *y, int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i * 1024 + threadIdx.x];
    if (sum < 0)
        atomicMin(bad, (unsigned long long)threadIdx.x);
    atomicAdd(y, sum);
}

extern "C" __global__ void gemm_parts(const int *a, unsigned long long *bad, int *y, int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i * 1024 + threadIdx.x];
    if (sum < 0)
        atomicMin(bad, (unsigned long long)threadIdx.x);
    y[threadIdx.x] = sum;
}
