/* ternary_matmul straight from the bytes of i2_s_x86 (kernels/formats/i2_s.py), for K that is a multiple of a block, so
 * that rows begin at one.
 *
 * A block of 128 weights is 32 bytes: byte b holds, from the top bits down, the codes w + 1 of the weights b, 32 +
 * b, 64 + b and 96 + b. So what a shift brings down to the lowest bits meets 32 activations side by side. */
#ifndef TM_I2_S_X86_H
#define TM_I2_S_X86_H

#include "../rows.h"

enum { TM_I2_S_BLOCK = 128, TM_I2_S_BYTES = 32 };

TM_KERNELS(ternary_matmul_i2_s_x86);

#endif
