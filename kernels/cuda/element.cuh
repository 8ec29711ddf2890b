/* Values that a kernel reads as float32, float16 or bfloat16. Macro: INPUT, 32, 16 or 8 (bfloat16: as many bits of
 * significand). */
#ifndef TRITMARK_CUDA_ELEMENT
#define TRITMARK_CUDA_ELEMENT
#include <cuda_fp16.h>

#if INPUT == 32
typedef float element;
typedef float4 elements4;
#else
typedef unsigned short element; /* its bits */
typedef uint2 elements4;
#endif

/* In float32, exactly; NaN and infinity are kept. */
__device__ __forceinline__ float value(element x)
{
#if INPUT == 32
    return x;
#elif INPUT == 16
    return __half2float(__ushort_as_half(x));
#else
    return __uint_as_float((unsigned)x << 16);
#endif
}

__device__ __forceinline__ float4 values(elements4 x)
{
#if INPUT == 32
    return x;
#else
    return make_float4(
        value((element)x.x), value((element)(x.x >> 16)), value((element)x.y), value((element)(x.y >> 16)));
#endif
}

#endif
