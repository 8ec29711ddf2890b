// An independent reference of absmean_quantize.

#include "../peers/reference/reference.h"

namespace {

// Half of the terms are added to the other half until one is left.
double pairwise(std::vector<double> terms)
{
    for (size_t half = terms.size() / 2; half; half /= 2)
        for (size_t i = 0; i < half; ++i)
            terms[i] += terms[i + half];
    return terms[0];
}

double mean_magnitude(const float *x, int64_t n)
{
    const int64_t most = int64_t(1) << 22, chunk = 4096 * ((n + most - 1) / most);
    std::vector<double> sums(1024, 0.0);
    for (int64_t c = 0; c * chunk < n; ++c) {
        std::vector<double> lanes(16, 0.0);
        const int64_t end = std::min(n, (c + 1) * chunk);
        for (int64_t i = c * chunk; i < end; ++i)
            lanes[size_t((i - c * chunk) % 16)] += std::fabs(double(x[i]));
        sums[size_t(c)] = pairwise(lanes);
    }
    return pairwise(sums) / double(n);
}

}  // namespace

extern "C" {

void absmean_quantize(const float *x, int8_t *codes, float *scale, int64_t n)
{
    *scale = float(std::max(mean_magnitude(x, n), 1e-5));
    for (int64_t i = 0; i < n; ++i)
        codes[i] = int8_t(clamped(std::nearbyintf(x[i] / *scale), -1.0f, 1.0f));
}

}  // extern "C"
