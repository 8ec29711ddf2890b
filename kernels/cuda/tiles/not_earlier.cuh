/* Values that are used no earlier than here. */
#ifndef TRITMARK_CUDA_TILES_NOT_EARLIER
#define TRITMARK_CUDA_TILES_NOT_EARLIER

/* The value. Nothing is made of it earlier: the compiler would convert it where it was requested, outside of loops, and
 * so wait for it before it requests more. */
__device__ __forceinline__ float not_earlier(float value)
{
#ifndef TRITMARK_SIMULATOR
    asm volatile("" : "+f"(value));
#endif
    return value;
}
#endif
