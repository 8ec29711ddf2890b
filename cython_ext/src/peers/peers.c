#include "peers.h"

#include "../parallel.h"

/* Rows of weights and of activations that are multiplied before the next ones, as in ggml's own products, also in that
 * of experts: a block of either stays in L1. */
enum { BLOCK = 16 };

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* Rows m0 to m1 of activations times rows n0 to n1 of the matrix `weights`. */
static void dot_block(const tm_peer_args *a, const uint8_t *weights, size_t m0, size_t m1, size_t n0, size_t n1)
{
    tm_vec_dot dot = (tm_vec_dot)a->function, several = (tm_vec_dot)a->several;
    for (size_t m = m0; m < m1;) {
        const size_t rows = several && m + a->together <= m1 ? a->together : 1;
        const uint8_t *x = a->activations + m * a->activation_row;
        for (size_t n = n0; n < n1; n++) {
            float *out = a->out + m * a->N + n;
            const uint8_t *w = weights + n * a->weight_row;
            if (rows > 1)
                several((int)a->K, out, a->N, w, 0, x, a->activation_row, (int)rows);
            else
                dot((int)a->K, out, 0, w, 0, x, 0, 1);
            if (a->scales)
                for (size_t r = 0; r < rows; r++)
                    out[r * a->N] = (out[r * a->N] - (a->sums ? a->sums[m + r] : 0.0f)) * a->scales[m + r];
        }
        m += rows;
    }
}

static void dot_rows(void *args, size_t begin, size_t end)
{
    const tm_peer_args *a = args;
    for (size_t e = 0; e < a->experts; e++) {
        const uint8_t *weights = a->weights + e * a->N * a->weight_row;
        const size_t last = (size_t)a->offsets[e + 1];
        for (size_t m0 = (size_t)a->offsets[e]; m0 < last; m0 += BLOCK)
            for (size_t n0 = begin; n0 < end; n0 += BLOCK)
                dot_block(a, weights, m0, smaller(m0 + BLOCK, last), n0, smaller(n0 + BLOCK, end));
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
        for (size_t e = 0; e < a->experts; e++) {
            const size_t m = (size_t)a->offsets[e], rows = (size_t)a->offsets[e + 1] - m;
            if (rows && !multiply(
                            (long)a->N, (long)rows, (long)a->K, a->weight_type, a->weights + e * a->N * a->weight_row,
                            (long)a->weight_row, a->activation_type, a->activations + m * a->activation_row,
                            (long)a->activation_row, a->out + m * a->N, (long)a->N, (int)t, a->run.threads))
                __atomic_store_n(&a->refused, 1, __ATOMIC_RELAXED);
        }
}

int tm_peer_iqk_mul_mat(void *args)
{
    tm_peer_args *a = args;
    a->run.used = tm_parallel((size_t)a->run.threads, 1, 1, a->run.threads, iqk_share, args);
    /* Its threads do not report which columns they computed. This pass takes under 1 % of a product. */
    if (a->scales)
        for (size_t m = 0; m < a->M; m++)
            for (size_t n = 0; n < a->N; n++)
                a->out[m * a->N + n] *= a->scales[m];
    return tm_finish(&a->run, 0);
}
