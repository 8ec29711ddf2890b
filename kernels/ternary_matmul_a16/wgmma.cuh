/* Hopper's asynchronous product (wgmma) of 16-bit floating point, weights from registers, 16 k at a time.
 *
 * Macro: INPUT (see a16.cuh). */
#ifndef TRITMARK_TERNARY_MATMUL_A16_WGMMA
#define TRITMARK_TERNARY_MATMUL_A16_WGMMA
#include "../cuda/tiles/wgmma.cuh"
#include "a16.cuh"

WGMMA_PRODUCTS(float, dot2, "f", "k16.f32." TYPE "." TYPE, ", 1, 1, 0")
#endif
