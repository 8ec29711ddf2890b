// An independent reference of ternary_matmul_experts: the reference of ternary_matmul for the rows and the bytes of each
// expert.

#include "../peers/reference/reference.h"

namespace {

int64_t up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// Bytes of an expert's (N, K) matrix.
int64_t bytes_of_tile64(int64_t N, int64_t K) { return up(N, 64) * up(K, 4) / 4 + 64; }
int64_t bytes_of_row16(int64_t N, int64_t K) { return N * up(K, 64) / 4 + 64; }
template <int64_t group>
int64_t bytes_of_tile64_g(int64_t N, int64_t K)
{
    return up(N, 64) * (K / 4 + K / group * 2);
}
template <int64_t group>
int64_t bytes_of_row16_g(int64_t N, int64_t K)
{
    return N * up(K, 64) / 4 + K / group * 2 * up(N, 8);
}

// Calls `one` with each expert, its first row, and how many it has.
template <class One>
void each_expert(const int32_t *offsets, int64_t E, One one)
{
    for (int64_t e = 0; e < E; ++e)
        if (offsets[e + 1] > offsets[e])
            one(e, int64_t(offsets[e]), int64_t(offsets[e + 1]) - offsets[e]);
}

} // namespace

#define EXPERTS_INT32(format, bytes) \
    void ternary_matmul_##format##_int32( \
        const int8_t *activations, const uint8_t *weights, int32_t *out, int64_t M, int64_t N, int64_t K); \
    void ternary_matmul_experts_##format##_int32( \
        const int8_t *activations, const uint8_t *weights, const int32_t *offsets, int32_t *out, int64_t E, int64_t N, \
        int64_t K) \
    { \
        each_expert(offsets, E, [&](int64_t e, int64_t m, int64_t M) { \
            ternary_matmul_##format##_int32(activations + m * K, weights + e * bytes(N, K), out + m * N, M, N, K); \
        }); \
    }
#define EXPERTS_ONE(format, bytes, dtype, type) \
    void ternary_matmul_##format##_##dtype( \
        const int8_t *activations, const uint8_t *weights, float weight_scale, const float *act_scale, type *out, \
        int64_t M, int64_t N, int64_t K); \
    void ternary_matmul_experts_##format##_##dtype( \
        const int8_t *activations, const uint8_t *weights, const float *weight_scale, const float *act_scale, \
        const int32_t *offsets, type *out, int64_t E, int64_t N, int64_t K) \
    { \
        each_expert(offsets, E, [&](int64_t e, int64_t m, int64_t M) { \
            ternary_matmul_##format##_##dtype( \
                activations + m * K, weights + e * bytes(N, K), weight_scale[e], act_scale + m, out + m * N, M, N, K); \
        }); \
    }
#define EXPERTS_GROUPED(format, bytes, dtype, type) \
    void ternary_matmul_##format##_##dtype( \
        const int8_t *activations, const uint8_t *weights, const float *act_scale, type *out, int64_t M, int64_t N, \
        int64_t K); \
    void ternary_matmul_experts_##format##_##dtype( \
        const int8_t *activations, const uint8_t *weights, const float *act_scale, const int32_t *offsets, type *out, \
        int64_t E, int64_t N, int64_t K) \
    { \
        each_expert(offsets, E, [&](int64_t e, int64_t m, int64_t M) { \
            ternary_matmul_##format##_##dtype( \
                activations + m * K, weights + e * bytes(N, K), act_scale + m, out + m * N, M, N, K); \
        }); \
    }
#define EXPERTS_FLOAT(made, format, bytes) \
    made(format, bytes, float32, float) made(format, bytes, bfloat16, uint16_t) made(format, bytes, float16, uint16_t)

extern "C" {

EXPERTS_INT32(tile64, bytes_of_tile64)
EXPERTS_INT32(row16, bytes_of_row16)
EXPERTS_FLOAT(EXPERTS_ONE, tile64, bytes_of_tile64)
EXPERTS_FLOAT(EXPERTS_ONE, row16, bytes_of_row16)
EXPERTS_FLOAT(EXPERTS_GROUPED, tile64_g32, bytes_of_tile64_g<32>)
EXPERTS_FLOAT(EXPERTS_GROUPED, tile64_g64, bytes_of_tile64_g<64>)
EXPERTS_FLOAT(EXPERTS_GROUPED, tile64_g128, bytes_of_tile64_g<128>)
EXPERTS_FLOAT(EXPERTS_GROUPED, tile64_g256, bytes_of_tile64_g<256>)
EXPERTS_FLOAT(EXPERTS_GROUPED, row16_g32, bytes_of_row16_g<32>)
EXPERTS_FLOAT(EXPERTS_GROUPED, row16_g64, bytes_of_row16_g<64>)
EXPERTS_FLOAT(EXPERTS_GROUPED, row16_g128, bytes_of_row16_g<128>)
EXPERTS_FLOAT(EXPERTS_GROUPED, row16_g256, bytes_of_row16_g<256>)

} // extern "C"
