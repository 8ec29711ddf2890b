/* The asynchronous product (wgmma.cuh) of bytes, 32 k at a time, sums of int32. */
#ifndef TRITMARK_CUDA_TILES_WGMMA_INT8
#define TRITMARK_CUDA_TILES_WGMMA_INT8
#include "mma.cuh"
#include "wgmma.cuh"

WGMMA_PRODUCTS(int, dot4<signed char>, "r", "k32.s32.s8.s8", "")
#endif
