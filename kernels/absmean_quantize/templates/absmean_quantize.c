/* A kernel of absmean_quantize: scale = max(mean |x|, 1e-5), codes = clamp(rint(x / scale), -1, 1).
 *
 * The mean is a float64 sum in the order that the contract states: chunks of 4096 * ceil(n / 2^22) values, 16 lanes
 * in each, the lanes added pairwise, then the sums of 1024 chunks pairwise. */
#include <math.h>
#include <stdint.h>

static double folded(double *terms, int count)
{
    while (count > 1) {
        count /= 2;
        for (int i = 0; i < count; i++)
            terms[i] += terms[i + count];
    }
    return terms[0];
}

/* `bad` holds -1: leave the index of the first NaN or infinity there. */
void absmean_quantize(const float *x, int8_t *codes, float *scale, int64_t n, int64_t *bad)
{
    double sums[1024] = {0};
    int64_t chunk = 4096 * ((n + (1 << 22) - 1) / (1 << 22));
    for (int64_t begin = 0; begin < n; begin += chunk) {
        double lanes[16] = {0};
        int64_t count = n - begin < chunk ? n - begin : chunk;
        for (int64_t i = 0; i < count; i++) {
            if (!isfinite(x[begin + i]) && *bad < 0)
                *bad = begin + i;
            lanes[i % 16] += fabsf(x[begin + i]);
        }
        sums[begin / chunk] = folded(lanes, 16);
    }
    float by = (float)fmax(folded(sums, 1024) / (double)n, 1e-5);
    *scale = by;
    for (int64_t i = 0; i < n; i++)
        codes[i] = (int8_t)fmaxf(-1.0f, fminf(1.0f, rintf(x[i] / by)));
}
