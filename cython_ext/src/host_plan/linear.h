/* QuantizedLinear in one call: rows of floats are quantized, multiplied by the weights, and the bias is added. */
#ifndef TM_LINEAR_H
#define TM_LINEAR_H

#include "../activation_quantize/activation_quantize.h"
#include "../ternary_matmul/ternary_matmul.h"

typedef struct tm_linear_args {
    tm_run run; /* the product's result, and the index of the first element of x that is not finite */
    tm_kernel quantize, product;
    tm_activation_quantize_args *first;
    tm_ternary_matmul_args *second; /* its activations and their scales are outputs of `first`; float32 */
    const float *bias;              /* N, or NULL */
} tm_linear_args;

/* Returns 0. If x has an element that is not finite, the output is not written. */
int tm_linear(void *args);

#endif
