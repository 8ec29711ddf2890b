/* The initial values of sums under the nested masks of ../avx512.c. Included behind TM_BEGIN, and behind
 * TM_GROUPED_BIAS, which is added to each of them. */
#ifndef TM_GROUPED_START_NESTED_H
#define TM_GROUPED_START_NESTED_H

enum { TM_GROUPED_SUMS = 4 };

/* The sum under a mask is that of the next smaller one, plus 4, 16 or 64 times the sum of the field that it adds. So
 * minus the sum of the activations in each field is -1, -5, -21 and -85 times it under the masks. */
static inline void tm_grouped_start(const int8_t *x, size_t weights, int32_t *to)
{
    const int32_t sum = -tm_sum(x, weights);
    to[0] = TM_GROUPED_BIAS + sum;
    to[1] = TM_GROUPED_BIAS + 5 * sum;
    to[2] = TM_GROUPED_BIAS + 21 * sum;
    to[3] = TM_GROUPED_BIAS + 85 * sum;
}

#endif
