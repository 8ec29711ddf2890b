/* A kernel of ternary_quantize: for each `block` values scale = max(absmax, 1e-8), and codes -1, 0, 1 by comparison
 * with scale / 2. */
#include <math.h>
#include <stdint.h>

/* `bad` holds -1: leave the index of the first NaN or infinity there. */
void ternary_quantize(const float *x, int8_t *codes, float *scales, int64_t n, int64_t block, int64_t *bad)
{
    for (int64_t begin = 0; begin < n; begin += block) {
        int64_t end = begin + block < n ? begin + block : n;
        float scale = 1e-8f;
        for (int64_t i = begin; i < end; i++) {
            if (!isfinite(x[i]) && *bad < 0)
                *bad = i;
            scale = fmaxf(scale, fabsf(x[i]));
        }
        scales[begin / block] = scale;
        double half = 0.5 * scale;
        for (int64_t i = begin; i < end; i++)
            codes[i] = (int8_t)((x[i] > half) - (x[i] < -half));
    }
}
