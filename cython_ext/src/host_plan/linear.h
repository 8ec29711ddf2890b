/* QuantizedLinear in one call: rows of floats are quantized, after a rotation if the weights are rotated, and multiplied
 * by the weights, and the bias is added. */
#ifndef TM_LINEAR_H
#define TM_LINEAR_H

#include "../activation_quantize/activation_quantize.h"
#include "../hadamard_quantize/hadamard_quantize.h"
#include "../ternary_matmul/ternary_matmul.h"

typedef struct tm_linear_args {
    tm_run run; /* the product's result, and the index of the first element of x that is not finite */
    tm_kernel quantize, product;
    void *first; /* of `quantize`: tm_activation_quantize_args, or tm_hadamard_quantize_args for codes if `rotates` */
    tm_ternary_matmul_args *second; /* its activations and their scales are outputs of `first`; float32 */
    const float *bias; /* N, or NULL */
    int32_t rotates; /* then `bad` is the first element of the first row without finite codes */
} tm_linear_args;

/* Returns 0. If x has an element that is not finite, the output is not written. */
int tm_linear(void *args);

#endif
