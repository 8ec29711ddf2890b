/* Products by functions of other projects' libraries, which are loaded at run time. Each is called by its address, with
 * its project's signature, and its work is split over our threads as in its project. */
#ifndef TM_PEERS_H
#define TM_PEERS_H

#include "../isa.h"

/* ggml's ggml_vec_dot_t, also bitnet.cpp's: one row of weights times one row of activations gives one number. If the
 * function supports several: times `nrc` rows, `by` bytes apart, gives as many numbers, `bs` floats apart. */
typedef void (*tm_vec_dot)(int n, float *s, size_t bs, const void *vx, size_t bx, const void *vy, size_t by, int nrc);

/* ik_llama.cpp's iqk_mul_mat: thread `ith` of `nth` does its share of a whole product. False: unsupported types. */
typedef _Bool (*tm_iqk_mul_mat)(
    long Nx, long Ny, long ne00, int typeA, const void *A, long strideA, int typeB, const void *B, long strideB,
    float *C, long stride_C, int ith, int nth);

typedef struct tm_peer_args {
    tm_run run;
    void *function, *several; /* tm_vec_dot: the function for `together` rows of activations at once; or NULL */
    const uint8_t *weights; /* N rows of each expert, `weight_row` bytes apart */
    const uint8_t *activations; /* M rows, `activation_row` bytes apart */
    float *out; /* (M, N), contiguous */
    const float *sums; /* (M,): subtracted from each result of tm_vec_dot; or NULL */
    const float *scales; /* (M,): then multiplies it; or NULL, then sums are not subtracted either */
    const int32_t *offsets; /* (experts + 1,): rows offsets[e] to offsets[e + 1] of activations are of expert e */
    size_t weight_row, activation_row, together, M, N, K, experts;
    int32_t weight_type, activation_type; /* of iqk_mul_mat */
    int32_t refused; /* it returned false */
} tm_peer_args;

int tm_peer_vec_dot(void *args);
int tm_peer_iqk_mul_mat(void *args);

#endif
