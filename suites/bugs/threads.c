/* Starts its threads anew for each 16 columns of the output, which are less work than a thread's start: the more
 * threads there may be, the longer it takes. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

/* The products of one row of weights, in whole blocks of 128, with the fields w + 1. */
static int32_t fast(const uint8_t *weights, const int8_t *x, int64_t K)
{
    int32_t sum = 0;
    for (int64_t begin = 0; begin < K; begin += 128) {
        const uint8_t *bytes = weights + begin / 4;
        uint8_t fields[128];
        for (int i = 0; i < 32; i++) {
            fields[i] = bytes[i] >> 6;
            fields[32 + i] = bytes[i] >> 4 & 3;
            fields[64 + i] = bytes[i] >> 2 & 3;
            fields[96 + i] = bytes[i] & 3;
        }
        for (int i = 0; i < 128; i++)
            sum += fields[i] * x[begin + i];
    }
    return sum;
}

enum { COLUMNS = 16, MOST = 64 };

typedef struct {
    const uint8_t *weights;
    const int8_t *x;
    float *out;
    double factor;
    int64_t K, begin, end;
    int32_t bias;
} share;

static void *columns(void *argument)
{
    share *own = argument;
    for (int64_t n = own->begin; n < own->end; n++)
        own->out[n] = (float)((fast(own->weights + n * (own->K / 4), own->x, own->K) - own->bias) * own->factor);
    return NULL;
}

/* Columns begin to end, by so many threads, of which the caller is the first. */
static void product(share all, int64_t begin, int64_t end, int threads)
{
    share shares[MOST];
    pthread_t started[MOST];
    for (int i = threads - 1; i >= 0; i--) {
        shares[i] = all;
        shares[i].begin = begin + (end - begin) * i / threads;
        shares[i].end = begin + (end - begin) * (i + 1) / threads;
        if (i == 0)
            columns(&shares[i]);
        else if (pthread_create(&started[i], NULL, columns, &shares[i]) != 0)
            abort();
    }
    for (int i = 1; i < threads; i++)
        pthread_join(started[i], NULL);
}

void ternary_matmul(
    const int8_t *activations, int64_t stride, const uint8_t *weights, float weight_scale, const float *act_scale,
    float *out, int64_t M, int64_t N, int64_t K, int threads)
{
    if (threads > MOST)
        threads = MOST;
    for (int64_t m = 0; m < M; m++) {
        share all = {weights, activations + m * stride, out + m * N, (double)weight_scale / act_scale[m], K, 0, 0, 0};
        for (int64_t k = 0; k < K; k++)
            all.bias += all.x[k];
#ifdef FIXED
        /* From here on a thread's share is more work than its start. */
        product(all, 0, N, N * K < (1 << 24) ? 1 : threads);
#else
        for (int64_t begin = 0; begin < N; begin += COLUMNS)
            product(all, begin, begin + COLUMNS < N ? begin + COLUMNS : N, threads);
#endif
    }
}
