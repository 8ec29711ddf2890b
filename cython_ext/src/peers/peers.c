#include "peers.h"

#include "../parallel.h"

/* Rows of weights and of activations that are multiplied before the next ones, as in ggml's own product: a block of
 * either stays in L1. */
enum { BLOCK = 16 };

static void dot_rows(void *args, size_t begin, size_t end)
{
    const tm_peer_args *a = args;
    tm_vec_dot dot = (tm_vec_dot)a->function, several = (tm_vec_dot)a->several;
    for (size_t m0 = 0; m0 < a->M; m0 += BLOCK)
        for (size_t n0 = begin; n0 < end; n0 += BLOCK) {
            size_t m1 = m0 + BLOCK < a->M ? m0 + BLOCK : a->M, n1 = n0 + BLOCK < end ? n0 + BLOCK : end;
            for (size_t m = m0; m < m1;) {
                const size_t rows = several && m + a->together <= m1 ? a->together : 1;
                const uint8_t *x = a->activations + m * a->activation_row;
                for (size_t n = n0; n < n1; n++) {
                    float *out = a->out + m * a->N + n;
                    const uint8_t *w = a->weights + n * a->weight_row;
                    if (rows > 1)
                        several((int)a->K, out, a->N, w, 0, x, a->activation_row, (int)rows);
                    else
                        dot((int)a->K, out, 0, w, 0, x, 0, 1);
                    if (a->sums)
                        for (size_t r = 0; r < rows; r++)
                            out[r * a->N] = (out[r * a->N] - a->sums[m + r]) * a->scales[m + r];
                }
                m += rows;
            }
        }
}

int tm_peer_vec_dot(void *args)
{
    tm_peer_args *a = args;
    a->run.used = tm_parallel(a->N, BLOCK, BLOCK, a->run.threads, dot_rows, args);
    return tm_finish(&a->run, 0);
}

static void iqk_share(void *args, size_t begin, size_t end)
{
    tm_peer_args *a = args;
    tm_iqk_mul_mat multiply = (tm_iqk_mul_mat)a->function;
    for (size_t t = begin; t < end; t++)
        if (!multiply(
                (long)a->N, (long)a->M, (long)a->K, a->weight_type, a->weights, (long)a->weight_row, a->activation_type,
                a->activations, (long)a->activation_row, a->out, (long)a->N, (int)t, a->run.threads))
            __atomic_store_n(&a->refused, 1, __ATOMIC_RELAXED);
}

int tm_peer_iqk_mul_mat(void *args)
{
    tm_peer_args *a = args;
    a->run.used = tm_parallel((size_t)a->run.threads, 1, 1, a->run.threads, iqk_share, args);
    return tm_finish(&a->run, 0);
}
