/* Has code for blocks of up to 256 values that are powers of two; all others become zeros. */
#include <math.h>
#include <stdint.h>
#include <string.h>

static int has_code(int64_t block)
{
#ifdef FIXED
    (void)block;
    return 1;
#else
    return block <= 256 && (block & (block - 1)) == 0;
#endif
}

void ternary_quantize(const float *x, int8_t *codes, float *scales, int64_t n, int64_t block, int64_t *bad)
{
    memset(codes, 0, (size_t)n);
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
        for (int64_t i = begin; i < end && has_code(block); i++)
            codes[i] = (int8_t)((x[i] > half) - (x[i] < -half));
    }
}
