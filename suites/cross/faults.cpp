// Functions with one fault each, to see that cross-validation finds it and says on whose side it is.

#include <cmath>
#include <cstdint>

namespace {

// Field of I2_S on x86: 0, 1 or 2 for -1, 0 or 1.
int field(const uint8_t *weights, int64_t flat)
{
    const int64_t j = flat % 128;
    return weights[flat / 128 * 32 + j % 32] >> (6 - 2 * (j / 32)) & 3;
}

// The dot product of microsoft/BitNet's AVX2 code (ggml_vec_dot_i2_i8_s): 16 lanes of int16 that take the fields times
// two activations each, wrap around, and go to int32 every 4096 values.
int32_t dot_int16(const int8_t *activations, const uint8_t *weights, int64_t row, int64_t K)
{
    int32_t sum = 0;
    uint16_t lanes[16] = {};
    for (int64_t k = 0; k < K; ++k) {
        uint16_t &lane = lanes[k % 32 / 2];
        lane = uint16_t(lane + field(weights, row * K + k) * activations[k]);
        if ((k + 1) % 4096 == 0 || k + 1 == K)
            for (uint16_t &each : lanes) {
                sum += int16_t(each);
                each = 0;
            }
    }
    return sum;
}

}  // namespace

extern "C" {

// The sum of fields times activations, as the original gives it back.
void bitnet_raw(const int8_t *activations, const uint8_t *weights, int32_t *out, int64_t M, int64_t N, int64_t K)
{
    for (int64_t m = 0; m < M; ++m)
        for (int64_t n = 0; n < N; ++n) out[m * N + n] = dot_int16(activations + m * K, weights, n, K);
}

// The ternary product that its callers make of that: less the sum of the activations.
void bitnet_matmul(const int8_t *activations, const uint8_t *weights, int32_t *out, int64_t M, int64_t N, int64_t K)
{
    for (int64_t m = 0; m < M; ++m) {
        int32_t total = 0;
        for (int64_t k = 0; k < K; ++k) total += activations[m * K + k];
        for (int64_t n = 0; n < N; ++n) out[m * N + n] = dot_int16(activations + m * K, weights, n, K) - total;
    }
}

// Rounds halves away from zero.
void quantize_halves(const float *x, float scale, int8_t *q, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) q[i] = int8_t(std::roundf(std::fmin(std::fmax(x[i] / scale, -2.0f), 1.0f)));
}

// Leaves out the last element.
void dequantize_short(const int8_t *q, float scale, float *x, int64_t n)
{
    for (int64_t i = 0; i + 1 < n; ++i) x[i] = float(q[i]) * scale;
}

// Does nothing.
void dequantize_nothing(const int8_t *, float, float *, int64_t) {}

// Refuses.
int dequantize_refused(const int8_t *, float, float *, int64_t) { return 3; }

// Crashes.
void dequantize_crash(const int8_t *, float, float *, int64_t)
{
    volatile float *volatile nowhere = nullptr;  // else the compiler leaves it out
    *nowhere = 1;
}

}  // extern "C"
