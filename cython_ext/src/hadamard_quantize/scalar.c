/* hadamard_quantize in plain C: reference for the other kernels, fallback, and baseline. */
#include "hadamard_quantize.h"

static uint32_t rotate(const void *x, const int8_t *signs, float *y, size_t block, const int32_t input)
{
    for (size_t i = 0; i < block; i++)
        y[i] = tm_input_at(x, i, input) * (float)signs[i];
    for (size_t h = 1; h < block; h *= 2)
        for (size_t begin = 0; begin < block; begin += 2 * h)
            for (size_t i = begin; i < begin + h; i++) {
                const float a = y[i], b = y[i + h];
                y[i] = a + b;
                y[i + h] = a - b;
            }
    const float factor = tm_hadamard_factor(block);
    for (size_t i = 0; i < block; i++)
        y[i] *= factor;
    return tm_absmax_plain(y, block, 0);
}

static int32_t codes(const float *y, size_t n, float scale, int8_t *q)
{
    const float rounder = TM_HADAMARD_ROUNDER;
    int32_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        const float rounded = y[i] * scale + rounder;
        const int32_t code = (int32_t)(tm_bits(&rounded) - tm_bits(&rounder));
        q[i] = (int8_t)code;
        sum += code;
    }
    return sum;
}

/* To nearest even; a NaN becomes the quiet one. */
static uint16_t bfloat16_of(float value)
{
    const uint32_t bits = tm_bits(&value);
    return value == value ? (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16) : (uint16_t)0x7fc0u;
}

/* To nearest even, in integers, so that no flush-to-zero setting affects denormals. */
static uint16_t float16_of(float value)
{
    const uint32_t bits = tm_bits(&value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x47800000u) /* 65536 and more */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude >= 0x38800000u) { /* normal; 65520 and more carry into infinity */
        const uint32_t rebiased = magnitude - 0x38000000u;
        return (uint16_t)(sign | (rebiased + 0xfffu + (rebiased >> 13 & 1u)) >> 13);
    }
    const uint32_t exponent = magnitude >> 23, shift = 126 - exponent; /* in units of 2^-24 */
    if (exponent < 102)
        return (uint16_t)sign; /* at most 2^-25, and a half goes to even; exponent 102 is above it */
    const uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
    const uint32_t rest = significand & ((1u << shift) - 1), half = 1u << (shift - 1), units = significand >> shift;
    return (uint16_t)(sign | (units + (rest > half || (rest == half && units % 2))));
}

static void narrow(const float *y, size_t n, uint16_t *out, const int32_t output)
{
    for (size_t i = 0; i < n; i++)
        out[i] = output == TM_FLOAT16 ? float16_of(y[i]) : bfloat16_of(y[i]);
}

TM_HADAMARD_BODY(rotate, codes, narrow)

int tm_hadamard_quantize_scalar(void *args) { return tm_hadamard_run(args, body, TM_RANK(scalar)); }

TM_TABLE(hadamard_quantize);
