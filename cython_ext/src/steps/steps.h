/* Quantization as a step function: code = rint(clamp(x / scale, low, 1)) without a division, with the same bits.
 *
 * The float32 quotient never falls as x rises, and it is odd in x. So the code changes at magnitudes that are found
 * once by dividing:
 * - code 1 if x > one, code -1 if -x > one: |x / scale| > 0.5, since rint takes the tie 0.5 to 0
 * - code -2 if -x > two: |x / scale| >= 1.5, since rint takes the tie 1.5 to 2; only if low is -2
 *
 * Floats are compared as integers: the bits of a positive float rise with it, and those of a negative one are negative
 * integers. The bits of -x are those of x with the sign flipped. This includes -0.0: flipped it is 0, above neither
 * bound. */
#ifndef TM_STEPS_H
#define TM_STEPS_H

#include "../finite.h"
#include "../stream.h"

#define TM_SIGN 0x80000000u
#define TM_MAX_FINITE 0x7f7fffff

enum tm_low { TM_LOW_1, TM_LOW_2 }; /* codes from -1 or -2 to 1 */

typedef struct tm_steps {
    int32_t one; /* bits of the largest x of code 0 */
    int32_t two; /* bits of the largest magnitude of code -1 */
} tm_steps;

/* Bits of the largest finite x >= 0 whose float32 quotient by `scale` is at most `limit`. It is found bit by bit from
 * the top, so nothing is assumed of the scale: a quotient that overflows is above the limit, one that underflows is
 * below it. */
static inline int32_t tm_last_within(float scale, float limit)
{
    int32_t last = 0;
    for (int32_t bit = 1 << 30; bit; bit >>= 1) {
        int32_t next = last | bit;
        float x;
        memcpy(&x, &next, sizeof x);
        if (next <= TM_MAX_FINITE && x / scale <= limit)
            last = next;
    }
    return last;
}

/* `scale` is finite and above zero. 0x1.7ffffep0 is the float below 1.5. */
static inline tm_steps tm_find_steps(float scale)
{
    return (tm_steps){tm_last_within(scale, 0.5f), tm_last_within(scale, 0x1.7ffffep0f)};
}

/* Quantizes `n` elements; returns the largest of their doubled bits (finite.h). So do the vector files of this
 * folder. */
static inline uint32_t tm_steps_plain(
    const float *restrict x, int8_t *restrict q, size_t n, tm_steps steps, enum tm_low low)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = tm_bits(x + i), doubled = bits * 2;
        int32_t up = (int32_t)bits, down = (int32_t)(bits ^ TM_SIGN);
        q[i] = (int8_t)((up > steps.one) - (down > steps.one) - (low == TM_LOW_2 && down > steps.two));
        largest = doubled > largest ? doubled : largest;
    }
    return largest;
}

/* A range starts on a cache line of the codes if they do. 16,384 elements take 1.5 us or more, enough to wake a
 * thread. */
enum { TM_STEPS_UNIT = 64, TM_STEPS_GRAIN = 16384 };

#endif
