// An independent reference of ternary_matmul.

#include "../peers/reference/reference.h"

namespace {

// tile64: tiles of 64 rows; each group of 4 columns of a tile takes 64 bytes, of which 4 r + c holds column c of the
// rows r, r + 16, ...
Field tile64(int64_t row, int64_t column, int64_t K)
{
    const int64_t groups = (K + 3) / 4, in_tile = row % 64;
    return {(row / 64 * groups + column / 4) * 64 + 4 * (in_tile % 16) + column % 4, int(2 * (in_tile / 16))};
}

using Weight = int (*)(const uint8_t *, int64_t row, int64_t column, int64_t N, int64_t K);

int of_tile64(const uint8_t *packed, int64_t row, int64_t column, int64_t, int64_t K)
{
    return taken(packed, tile64(row, column, K));
}
// tile80: tiles of 80 rows; bytes as in tile64, of five base-3 digits each, the first rows' the most significant.
int of_tile80(const uint8_t *packed, int64_t row, int64_t column, int64_t, int64_t K)
{
    const int64_t groups = (K + 3) / 4, in_tile = row % 80;
    unsigned byte = packed[(row / 80 * groups + column / 4) * 64 + 4 * (in_tile % 16) + column % 4];
    for (int64_t digit = 0; digit < in_tile / 16; ++digit)
        byte = 3 * byte % 256;
    return int(3 * byte / 256) - 1;
}
int of_i2_s_x86(const uint8_t *packed, int64_t row, int64_t column, int64_t, int64_t K)
{
    return taken(packed, i2_s_x86(row * K + column));
}
// gpu_int2: tiles of 16 rows and 32 columns in 128 bytes, row of tiles by row; a word is 16 columns of a row as in
// row16, and its fields hold w + 2.
int of_gpu_int2(const uint8_t *packed, int64_t row, int64_t column, int64_t, int64_t K)
{
    const int64_t tile = row / 16 * (K / 32) + column / 32;
    const int64_t word = 32 * tile + 16 * (row % 16 / 8) + 8 * (column % 32 / 16) + row % 8;
    return taken(packed + 4 * word, row16(column % 16)) - 1;
}

// TL1 and TL2: tiles of BM rows and BK columns, in which bm rows lie side by side.
struct Tiles {
    int64_t BM, BK, bm;
};

struct Published {
    int64_t N, K;
    Tiles tiles;
};

const Published kTL1[] = {
    {1536, 4096, {256, 128, 32}},  {1536, 1536, {128, 64, 64}},   {4096, 1536, {256, 128, 32}},
    {3200, 8640, {160, 64, 32}},   {3200, 3200, {320, 128, 64}},  {8640, 3200, {320, 64, 32}},
    {14336, 4096, {256, 128, 64}}, {4096, 14336, {256, 128, 32}}, {1024, 4096, {128, 64, 64}},
    {4096, 4096, {128, 64, 32}},
};
const Published kTL2[] = {
    {1536, 4096, {256, 96, 32}},  {1536, 1536, {128, 192, 32}}, {3200, 8640, {160, 96, 32}},
    {3200, 3200, {320, 96, 32}},  {8640, 3200, {320, 96, 32}},  {14336, 4096, {256, 96, 32}},
    {4096, 14336, {128, 96, 32}}, {1024, 4096, {256, 96, 32}},  {4096, 4096, {128, 96, 32}},
};

template <size_t count>
Tiles tiles_of(const Published (&published)[count], std::initializer_list<int64_t> widths, int64_t N, int64_t K)
{
    for (const Published &each : published)
        if (each.N == N && each.K == K)
            return each.tiles;
    Tiles tiles = {32, *(widths.end() - 1), 32};
    for (int64_t rows : {64, 128, 256})
        if (N % rows == 0)
            tiles.BM = rows;
    for (int64_t width : widths)
        if (K % width == 0) {
            tiles.BK = width;
            break;
        }
    return tiles;
}

int of_pair(int field, int64_t column) { return (column % 2 ? field % 3 : field / 3) - 1; }

int of_tl1(const uint8_t *packed, int64_t row, int64_t column, int64_t N, int64_t K)
{
    const Tiles t = tiles_of(kTL1, {128, 64, 32, 16, 8}, N, K);
    const int64_t by = 256 / t.bm, r = row % t.BM, c = column % t.BK;
    const int64_t tile = row / t.BM * (K / t.BK) + column / t.BK, block = r / t.bm * (t.BK / by) + c / by;
    const int64_t sixteen = r % t.bm / 16 * (by / 4) + c % by / 4;
    const int byte = packed[tile * t.BM * t.BK / 4 + block * 64 + sixteen * 16 + r % 16];
    return of_pair(column % 4 < 2 ? byte >> 4 : byte & 15, column);
}

int of_tl2(const uint8_t *packed, int64_t row, int64_t column, int64_t N, int64_t K)
{
    const Tiles t = tiles_of(kTL2, {96}, N, K);
    const int64_t tripled = K - K % t.BK, r = row % t.BM, in32 = r % 32;
    // 8 after 8 rows in the order 0, 2, 1, 3.
    const int64_t place = in32 % 8 + in32 / 8 % 2 * 16 + in32 / 16 * 8;
    if (column >= tripled) {
        const int64_t c = column - tripled, tile = row / t.BM * ((K - tripled) / 32) + c / 32;
        const uint8_t *pairs = packed + N * tripled / 6 + N * tripled / 24;
        const int byte = pairs[tile * t.BM * 8 + r / 32 * 256 + c % 32 / 4 * 32 + place];
        return of_pair(c % 4 < 2 ? byte >> 4 : byte & 15, c);
    }
    const int64_t c = column % t.BK, tile = row / t.BM * (tripled / t.BK) + column / t.BK;
    const int64_t area = tile * t.BM * t.BK + r / 32 * 32 * t.BK;  // weights before these 32 rows
    const int byte = packed[area / 6 + c / 6 * 32 + place];
    const uint8_t *word = packed + N * tripled / 6 + area / 24 + c / 24 * 32 + 2 * (r % 16);
    const bool negative = (word[0] + 256 * word[1]) >> (15 - 2 * (c % 24 / 3) - in32 / 16) & 1;
    const int size = c % 6 < 3 ? byte >> 4 : byte & 15, value = 13 + (negative ? -size : size);
    return (c % 3 == 0 ? value / 9 : c % 3 == 1 ? value / 3 % 3 : value % 3) - 1;
}

void product(
    Weight weight, const int8_t *activations, const uint8_t *weights, int64_t M, int64_t N, int64_t K,
    const StoreExact &store)
{
    side_by_side(N, M * K, [&](int64_t begin, int64_t end) {
        std::vector<int> row(static_cast<size_t>(K));
        for (int64_t n = begin; n < end; ++n) {
            for (int64_t k = 0; k < K; ++k)
                row[size_t(k)] = weight(weights, n, k, N, K);
            for (int64_t m = 0; m < M; ++m) {
                int64_t sum = 0;
                for (int64_t k = 0; k < K; ++k)
                    sum += int64_t(activations[m * K + k]) * row[size_t(k)];
                store(m, n, sum);
            }
        }
    });
}

// Each weight is its code times the scale of its block of 256, which with an activation makes a product that double
// holds.
void grouped_product(
    const int8_t *activations, const uint8_t *weights, int64_t M, int64_t N, int64_t K, const StoreDouble &store)
{
    side_by_side(N, M * K, [&](int64_t begin, int64_t end) {
        std::vector<double> row(static_cast<size_t>(K));
        for (int64_t n = begin; n < end; ++n) {
            for (int64_t k = 0; k < K; ++k) {
                const int64_t weight = n * K + k;
                uint16_t half;
                std::memcpy(&half, weights + 66 * (weight / 256) + 64, 2);
                row[size_t(k)] = taken(weights, tq2_0(weight)) * double(widened(half, kHalf));
            }
            for (int64_t m = 0; m < M; ++m) {
                double sum = 0;
                for (int64_t k = 0; k < K; ++k)
                    sum += double(activations[m * K + k]) * row[size_t(k)];
                store(m, n, sum);
            }
        }
    });
}

// IQ2_BN_R4: four rows side by side, their float32 scales and then 64 bytes for each 64 columns.
Field iq2_bn_r4(int64_t row, int64_t column, int64_t K)
{
    const int64_t e = column % 64;
    return {row / 4 * (K + 16) + 16 + column / 64 * 64 + 16 * (e / 16) + 4 * (row % 4) + e % 4, int(2 * (e % 16 / 4))};
}

int of_iq2_bn_r4(const uint8_t *packed, int64_t row, int64_t column, int64_t, int64_t K)
{
    return taken(packed, iq2_bn_r4(row, column, K));
}

int64_t iq2_bn_r4_scale(int64_t row, int64_t K) { return row / 4 * (K + 16) + 4 * (row % 4); }

// IQ2_BN: rows of a float32 scale and blocks of 64 weights in 16 bytes, the first 16 in the lowest bits.
int64_t iq2_bn_scale(int64_t row, int64_t K) { return row * (4 + K / 4); }

int of_iq2_bn(const uint8_t *packed, int64_t row, int64_t column, int64_t, int64_t K)
{
    const int64_t e = column % 64;
    return taken(packed, {iq2_bn_scale(row, K) + 4 + column / 64 * 16 + e % 16, int(2 * (e / 16))});
}

template <int (*code)(const uint8_t *, int64_t, int64_t, int64_t, int64_t), int64_t (*scale_at)(int64_t, int64_t)>
void row_scaled_product(
    const int8_t *activations, const uint8_t *weights, int64_t M, int64_t N, int64_t K, const StoreDouble &store)
{
    product(code, activations, weights, M, N, K, [&](int64_t m, int64_t n, int64_t sum) {
        float scale;
        std::memcpy(&scale, weights + scale_at(n, K), 4);
        store(m, n, double(sum) * double(scale));
    });
}

// A code of a block, and the scale of the block.
struct Scaled {
    int code;
    double scale;
};

// Q2_0: blocks of 64 in 18 bytes, the scale first.
Scaled of_q2_0(const uint8_t *packed, int64_t flat)
{
    const uint8_t *block = packed + flat / 64 * 18;
    const int64_t e = flat % 64;
    return {(block[2 + e / 4] >> (2 * (e % 4)) & 3) - 1, half_at(block)};
}

// TQ1_0: blocks of 256 in 54 bytes, five base-3 digits in each of 48, four in each of 4, the scale last.
Scaled of_tq1_0(const uint8_t *packed, int64_t flat)
{
    const uint8_t *block = packed + flat / 256 * 54;
    const int64_t e = flat % 256;
    const int64_t byte = e < 160 ? e % 32 : e < 240 ? 32 + e % 16 : 48 + e % 4;
    const int64_t digit = e < 160 ? e / 32 : e < 240 ? (e - 160) / 16 : (e - 240) / 4;
    unsigned fraction = block[byte];
    for (int64_t i = 0; i < digit; ++i)
        fraction = fraction * 3 & 255;
    return {int(fraction * 3 >> 8) - 1, half_at(block + 52)};
}

// row16_g: the words of row16, then a float16 scale of the first group of every row, padded to whole 8 rows, of the
// second, and so on.
template <int64_t group> Scaled of_row16_g(const uint8_t *packed, int64_t n, int64_t k, int64_t N, int64_t K)
{
    const int64_t scale = k / group * ((N + 7) / 8 * 8) + n;
    return {of_row16(packed, n, k, N, K), half_at(packed + N * row16_bytes(K) + 2 * scale)};
}

// tile64_g: tiles of 64 rows, in each of which a group is 64 float16 scales and then its columns as in tile64.
template <int64_t group> Scaled of_tile64_g(const uint8_t *packed, int64_t n, int64_t k, int64_t, int64_t K)
{
    const uint8_t *part = packed + (n / 64 * (K / group) + k / group) * (128 + 16 * group);
    return {taken(part + 128, tile64(n % 64, k % group, group)), half_at(part + 2 * (n % 64))};
}

template <Scaled (*weight)(const uint8_t *, int64_t, int64_t, int64_t, int64_t)>
void placed_product(
    const int8_t *activations, const uint8_t *weights, int64_t M, int64_t N, int64_t K, const StoreDouble &store)
{
    side_by_side(N, M * K, [&](int64_t begin, int64_t end) {
        std::vector<double> row(static_cast<size_t>(K));
        for (int64_t n = begin; n < end; ++n) {
            for (int64_t k = 0; k < K; ++k) {
                const Scaled w = weight(weights, n, k, N, K);
                row[size_t(k)] = w.code * w.scale;
            }
            for (int64_t m = 0; m < M; ++m) {
                double sum = 0;
                for (int64_t k = 0; k < K; ++k)
                    sum += double(activations[m * K + k]) * row[size_t(k)];
                store(m, n, sum);
            }
        }
    });
}

template <Scaled (*weight)(const uint8_t *, int64_t)>
void block_scaled_product(
    const int8_t *activations, const uint8_t *weights, int64_t M, int64_t N, int64_t K, const StoreDouble &store)
{
    side_by_side(N, M * K, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n)
            for (int64_t m = 0; m < M; ++m) {
                double sum = 0;
                for (int64_t k = 0; k < K; ++k) {
                    const Scaled w = weight(weights, n * K + k);
                    sum += double(activations[m * K + k]) * w.code * w.scale;
                }
                store(m, n, sum);
            }
    });
}

}  // namespace

extern "C" {

#define TERNARY_MATMUL(format) \
    void ternary_matmul_##format##_int32( \
        const int8_t *activations, const uint8_t *weights, int32_t *out, int64_t M, int64_t N, int64_t K) \
    { \
        product(of_##format, activations, weights, M, N, K, [&](int64_t m, int64_t n, int64_t sum) { \
            out[m * N + n] = int32_t(sum); \
        }); \
    } \
    void ternary_matmul_##format##_float32( \
        const int8_t *activations, const uint8_t *weights, float weight_scale, const float *act_scale, float *out, \
        int64_t M, int64_t N, int64_t K) \
    { \
        product(of_##format, activations, weights, M, N, K, [&](int64_t m, int64_t n, int64_t sum) { \
            out[m * N + n] = float(double(sum) * double(weight_scale) / double(act_scale[m])); \
        }); \
    } \
    void ternary_matmul_##format##_bfloat16( \
        const int8_t *activations, const uint8_t *weights, float weight_scale, const float *act_scale, uint16_t *out, \
        int64_t M, int64_t N, int64_t K) \
    { \
        product(of_##format, activations, weights, M, N, K, [&](int64_t m, int64_t n, int64_t sum) { \
            out[m * N + n] = narrowed(double(sum) * double(weight_scale) / double(act_scale[m]), kBrain); \
        }); \
    } \
    void ternary_matmul_##format##_float16( \
        const int8_t *activations, const uint8_t *weights, float weight_scale, const float *act_scale, uint16_t *out, \
        int64_t M, int64_t N, int64_t K) \
    { \
        product(of_##format, activations, weights, M, N, K, [&](int64_t m, int64_t n, int64_t sum) { \
            out[m * N + n] = narrowed(double(sum) * double(weight_scale) / double(act_scale[m]), kHalf); \
        }); \
    }
TERNARY_MATMUL(tile64)
TERNARY_MATMUL(tile80)
TERNARY_MATMUL(i2_s_x86)
TERNARY_MATMUL(row16)
TERNARY_MATMUL(gpu_int2)
TERNARY_MATMUL(tl1)
TERNARY_MATMUL(tl2)

void ternary_matmul_tq2_0_float32(
    const int8_t *activations, const uint8_t *weights, const float *act_scale, float *out, int64_t M, int64_t N,
    int64_t K)
{
    grouped_product(activations, weights, M, N, K, [&](int64_t m, int64_t n, double sum) {
        out[m * N + n] = float(sum / double(act_scale[m]));
    });
}

void ternary_matmul_tq2_0_bfloat16(
    const int8_t *activations, const uint8_t *weights, const float *act_scale, uint16_t *out, int64_t M, int64_t N,
    int64_t K)
{
    grouped_product(activations, weights, M, N, K, [&](int64_t m, int64_t n, double sum) {
        out[m * N + n] = narrowed(sum / double(act_scale[m]), kBrain);
    });
}

void ternary_matmul_tq2_0_float16(
    const int8_t *activations, const uint8_t *weights, const float *act_scale, uint16_t *out, int64_t M, int64_t N,
    int64_t K)
{
    grouped_product(activations, weights, M, N, K, [&](int64_t m, int64_t n, double sum) {
        out[m * N + n] = narrowed(sum / double(act_scale[m]), kHalf);
    });
}

#define UNSCALED_MATMUL(format) \
    void ternary_matmul_##format##_int32( \
        const int8_t *activations, const uint8_t *weights, int32_t *out, int64_t M, int64_t N, int64_t K) \
    { \
        product(of_##format, activations, weights, M, N, K, [&](int64_t m, int64_t n, int64_t sum) { \
            out[m * N + n] = int32_t(sum); \
        }); \
    }
UNSCALED_MATMUL(iq2_bn)
UNSCALED_MATMUL(iq2_bn_r4)

#define SCALED_MATMUL(format, computed) \
    void ternary_matmul_##format##_float32( \
        const int8_t *activations, const uint8_t *weights, const float *act_scale, float *out, int64_t M, int64_t N, \
        int64_t K) \
    { \
        computed(activations, weights, M, N, K, [&](int64_t m, int64_t n, double sum) { \
            out[m * N + n] = float(sum / double(act_scale[m])); \
        }); \
    } \
    void ternary_matmul_##format##_bfloat16( \
        const int8_t *activations, const uint8_t *weights, const float *act_scale, uint16_t *out, int64_t M, \
        int64_t N, int64_t K) \
    { \
        computed(activations, weights, M, N, K, [&](int64_t m, int64_t n, double sum) { \
            out[m * N + n] = narrowed(sum / double(act_scale[m]), kBrain); \
        }); \
    } \
    void ternary_matmul_##format##_float16( \
        const int8_t *activations, const uint8_t *weights, const float *act_scale, uint16_t *out, int64_t M, \
        int64_t N, int64_t K) \
    { \
        computed(activations, weights, M, N, K, [&](int64_t m, int64_t n, double sum) { \
            out[m * N + n] = narrowed(sum / double(act_scale[m]), kHalf); \
        }); \
    }
#define ROW_SCALED_MATMUL(format) SCALED_MATMUL(format, (row_scaled_product<of_##format, format##_scale>))
ROW_SCALED_MATMUL(iq2_bn)
ROW_SCALED_MATMUL(iq2_bn_r4)
SCALED_MATMUL(q2_0, block_scaled_product<of_q2_0>)
SCALED_MATMUL(tq1_0, block_scaled_product<of_tq1_0>)
#define GROUPED_MATMUL(group) \
    SCALED_MATMUL(row16_g##group, placed_product<of_row16_g<group>>) \
    SCALED_MATMUL(tile64_g##group, placed_product<of_tile64_g<group>>)
GROUPED_MATMUL(32)
GROUPED_MATMUL(64)
GROUPED_MATMUL(128)
GROUPED_MATMUL(256)

}  // extern "C"
