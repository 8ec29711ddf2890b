/* float16 and bfloat16 in plain C. */
#ifndef TM_HALF_H
#define TM_HALF_H

#include <stdint.h>
#include <string.h>

/* float16 to float32, exact. Denormals are converted with integers, so no flush-to-zero setting affects them. */
static inline float tm_half(uint16_t half)
{
    const uint32_t magnitude = half & 0x7fffu;
    float value = (float)magnitude * 0x1p-24f;
    if (magnitude >= 0x400u) {
        const uint32_t bits = magnitude >= 0x7c00u ? 0x7f800000u | magnitude << 13 : (magnitude << 13) + 0x38000000u;
        memcpy(&value, &bits, sizeof value);
    }
    return half & 0x8000u ? -value : value;
}

/* bfloat16 to float32, exact. */
static inline float tm_bfloat(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
