/* Base-3 digits in 16 bytes, five to a byte as in ggml (kernels/formats/digits.py). Included behind TM_BEGIN, and
 * compiled for the including file's instruction set. */
#ifndef TM_DIGITS_NEON_H
#define TM_DIGITS_NEON_H

/* Each byte times 3, modulo 256. */
static inline uint8x16_t tm_thrice(uint8x16_t q) { return q + q + q; }

/* The digits 0 of bytes: 0 up to 85, 1 up to 170, 2 above. Sets *q to the bytes of the next digits, three times these
 * modulo 256. */
static inline __attribute__((always_inline)) uint8x16_t tm_digit_taken(uint8x16_t *q)
{
    const uint8x16_t some = vcgtq_u8(*q, vdupq_n_u8(85)), two = vcgtq_u8(*q, vdupq_n_u8(170));
    *q = tm_thrice(*q);
    return -(some + two); /* a comparison that holds gives 255 */
}

#endif
