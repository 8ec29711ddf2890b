/* float16 and bfloat16 in plain C, and arrays of either or of float32. */
#ifndef TM_HALF_H
#define TM_HALF_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* What an array holds. */
enum tm_input { TM_FLOAT32, TM_FLOAT16, TM_BFLOAT16, TM_INPUTS };

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

/* x[i] as a float. */
static inline __attribute__((always_inline)) float tm_input_at(const void *x, size_t i, enum tm_input input)
{
    if (input == TM_FLOAT32)
        return ((const float *)x)[i];
    const uint16_t half = ((const uint16_t *)x)[i];
    return input == TM_FLOAT16 ? tm_half(half) : tm_bfloat(half);
}

/* The address of x[i]. */
static inline __attribute__((always_inline)) const void *tm_input_from(const void *x, size_t i, enum tm_input input)
{
    return (const char *)x + i * (input == TM_FLOAT32 ? sizeof(float) : sizeof(uint16_t));
}

#endif
