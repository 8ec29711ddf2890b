/* Deliberately wrong: halves are rounded away from zero, and the contract is ties to even. `tritmark check` has to
 * fail it. */
#include <math.h>
#include <stdint.h>

void quantize(const float *x, int8_t *q, float scale, int64_t n, int64_t *bad)
{
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i]) && *bad < 0)
            *bad = i;
        q[i] = (int8_t)roundf(fmaxf(-2.0f, fminf(1.0f, x[i] / scale)));
    }
}
