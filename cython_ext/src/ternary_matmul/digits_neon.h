/* Base-3 digits in 16 bytes, five to a byte as ggml writes them (kernels/formats/digits.py). Included behind TM_BEGIN, and
 * compiled for the including file's set. */
#ifndef TM_DIGITS_NEON_H
#define TM_DIGITS_NEON_H

/* Each byte times 3, modulo 256. */
static inline uint8x16_t tm_thrice(uint8x16_t q) { return q + q + q; }

/* The digits 0 of bytes, which are 0 up to 85, 1 up to 170, and 2 from there; and the bytes whose digits are the next, three
 * times these modulo 256. */
static inline __attribute__((always_inline)) uint8x16_t tm_digit_taken(uint8x16_t *q)
{
    const uint8x16_t some = vcgtq_u8(*q, vdupq_n_u8(85)), two = vcgtq_u8(*q, vdupq_n_u8(170));
    *q = tm_thrice(*q);
    return -(some + two); /* where a comparison holds its byte is 255 */
}

#endif
