// An independent reference for every op of tritmark, in plain C++17: written from the formats' and the ops'
// descriptions, one element at a time, without a line of the kernels or of the NumPy references. Slow, and meant to be
// read. int64 and double wherever the op asks for no narrower arithmetic; compiled with -ffp-contract=off, so a product
// is rounded where it is written. Little-endian hosts only.
//
// Arrays are C-contiguous. float16 and bfloat16 are their bits in uint16_t.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <system_error>
#include <thread>
#include <vector>

namespace {

// --- floats ----------------------------------------------------------------------------------------------------------

struct Narrow {
    int precision;  // bits of the significand, the implied one included
    int least;  // exponent of the smallest normal number
    int largest;  // exponent of the largest one
};
constexpr Narrow kHalf{11, -14, 15};
constexpr Narrow kBrain{8, -126, 127};

template <class To, class From>
To bits_of(From from)
{
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

// A double in a narrower type, to nearest even, as its 16 bits. A NaN becomes the quiet one of its sign.
uint16_t narrowed(double x, Narrow type)
{
    const int stored = type.precision - 1;
    const uint32_t sign = std::signbit(x) ? 0x8000u : 0u;
    const uint32_t infinity = uint32_t(type.largest - type.least + 2) << stored;
    if (std::isinf(x)) return uint16_t(sign | infinity);
    if (std::isnan(x)) return uint16_t(sign | infinity | 1u << (stored - 1));
    const double magnitude = std::fabs(x);
    if (magnitude == 0) return uint16_t(sign);
    const int exponent = std::max(std::ilogb(magnitude), type.least);
    // In units of the last place, where doubles are exact; nearbyint rounds halves to even.
    const double units = std::nearbyint(std::ldexp(magnitude, stored - exponent));
    // A significand that rounds up to a power of two carries into the exponent by itself, and a denormal into the
    // normals.
    const uint32_t biased = uint32_t(exponent - type.least) << stored;
    return uint16_t(sign | std::min(biased + uint32_t(units), infinity));
}

// A float32, NaN included: that becomes quiet and keeps its sign and the leading bits of its payload.
uint16_t narrowed_float(float x, Narrow type)
{
    if (!std::isnan(x)) return narrowed(double(x), type);
    const uint32_t bits = bits_of<uint32_t>(x);
    const int stored = type.precision - 1;
    const uint32_t infinity = uint32_t(type.largest - type.least + 2) << stored;
    const uint32_t quiet = 1u << (stored - 1);
    return uint16_t((bits >> 31 << 15) | infinity | quiet | ((bits & 0x3fffff) >> (23 - stored)));
}

float widened(uint16_t bits, Narrow type)
{
    const int stored = type.precision - 1;
    const int exponent = (bits & 0x7fff) >> stored;
    const int fraction = bits & ((1 << stored) - 1);
    const bool negative = bits >> 15;
    if (exponent == type.largest - type.least + 2) {
        const uint32_t payload = fraction ? 0x400000u | uint32_t(fraction) << (23 - stored) : 0u;
        return bits_of<float>((negative ? 0xff800000u : 0x7f800000u) | payload);
    }
    const double significand = exponent ? fraction + (1 << stored) : fraction;
    const double value = std::ldexp(significand, std::max(exponent, 1) - 1 + type.least - stored);
    return float(negative ? -value : value);
}

std::vector<float> all_widened(const uint16_t *bits, int64_t n, Narrow type)
{
    std::vector<float> values(size_t(n), 0.0f);
    for (int64_t i = 0; i < n; ++i) values[size_t(i)] = widened(bits[i], type);
    return values;
}

// --- formats ---------------------------------------------------------------------------------------------------------

// A field of two bits: which byte, and the shift in it.
struct Field {
    int64_t byte;
    int shift;
};

// I2_S on x86: blocks of 128 along the flat array in 32 bytes, the first 32 in the top bits.
Field i2_s_x86(int64_t flat)
{
    const int64_t j = flat % 128;
    return {flat / 128 * 32 + j % 32, int(6 - 2 * (j / 32))};
}

// TQ2_0: blocks of 256 in 66 bytes; half blocks of 128 in 32 bytes, the first 32 in the lowest bits.
Field tq2_0(int64_t flat)
{
    const int64_t e = flat % 256;
    return {flat / 256 * 66 + 32 * (e / 128) + e % 32, int(2 * (e % 128 / 32))};
}

// row16, one row: words of 16; weight e of a word at bit 8 * (e % 4) + 2 * (e / 4), little-endian.
Field row16(int64_t column)
{
    const int64_t e = column % 16, bit = 8 * (e % 4) + 2 * (e / 4);
    return {column / 16 * 4 + bit / 8, int(bit % 8)};
}

int64_t row16_bytes(int64_t K) { return (K + 63) / 64 * 16; }

// tile64: tiles of 64 rows; each group of 4 columns of a tile takes 64 bytes, of which 4 r + c holds column c of the
// rows r, r + 16, ...
Field tile64(int64_t row, int64_t column, int64_t K)
{
    const int64_t groups = (K + 3) / 4, in_tile = row % 64;
    return {(row / 64 * groups + column / 4) * 64 + 4 * (in_tile % 16) + column % 4, int(2 * (in_tile / 16))};
}

int taken(const uint8_t *packed, Field field) { return (packed[field.byte] >> field.shift & 3) - 1; }

void put(uint8_t *packed, Field field, int code)
{
    packed[field.byte] = uint8_t((packed[field.byte] & ~(3 << field.shift)) | (code + 1) << field.shift);
}

void put_half(uint8_t *at, float scale)
{
    const uint16_t half = narrowed_float(scale, kHalf);
    std::memcpy(at, &half, 2);
}

// --- ops -------------------------------------------------------------------------------------------------------------

float clamped(float x, float low, float high) { return std::min(std::max(x, low), high); }

// Scales and codes of ternary_quantize, blocks along the flat array.
std::vector<int> block_codes(const float *x, float *scales, int64_t n, int64_t block)
{
    std::vector<int> codes(static_cast<size_t>(n));
    for (int64_t start = 0, b = 0; start < n; start += block, ++b) {
        const int64_t end = std::min(n, start + block);
        float largest = 1e-8f;
        for (int64_t i = start; i < end; ++i) largest = std::max(largest, std::fabs(x[i]));
        scales[b] = largest;
        for (int64_t i = start; i < end; ++i) {
            const double half = 0.5 * double(largest);
            codes[size_t(i)] = (double(x[i]) > half) - (double(x[i]) < -half);
        }
    }
    return codes;
}

// Half of the terms are added to the other half until one is left.
double pairwise(std::vector<double> terms)
{
    for (size_t half = terms.size() / 2; half; half /= 2)
        for (size_t i = 0; i < half; ++i) terms[i] += terms[i + half];
    return terms[0];
}

double mean_magnitude(const float *x, int64_t n)
{
    const int64_t most = int64_t(1) << 22, chunk = 4096 * ((n + most - 1) / most);
    std::vector<double> sums(1024, 0.0);
    for (int64_t c = 0; c * chunk < n; ++c) {
        std::vector<double> lanes(16, 0.0);
        const int64_t end = std::min(n, (c + 1) * chunk);
        for (int64_t i = c * chunk; i < end; ++i) lanes[size_t((i - c * chunk) % 16)] += std::fabs(double(x[i]));
        sums[size_t(c)] = pairwise(lanes);
    }
    return pairwise(sums) / double(n);
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
    for (int64_t digit = 0; digit < in_tile / 16; ++digit) byte = 3 * byte % 256;
    return int(3 * byte / 256) - 1;
}
int of_i2_s_x86(const uint8_t *packed, int64_t row, int64_t column, int64_t, int64_t K)
{
    return taken(packed, i2_s_x86(row * K + column));
}
int of_row16(const uint8_t *packed, int64_t row, int64_t column, int64_t, int64_t K)
{
    return taken(packed + row * row16_bytes(K), row16(column));
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
        if (each.N == N && each.K == K) return each.tiles;
    Tiles tiles = {32, *(widths.end() - 1), 32};
    for (int64_t rows : {64, 128, 256})
        if (N % rows == 0) tiles.BM = rows;
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

// --- work on several cores -------------------------------------------------------------------------------------------

// What products call once a part, and once an output with its place and its sum. Were their types parameters of
// templates, the compiler would take twice as long for this file.
using Part = std::function<void(int64_t begin, int64_t end)>;
using StoreExact = std::function<void(int64_t m, int64_t n, int64_t sum)>;
using StoreDouble = std::function<void(int64_t m, int64_t n, double sum)>;
using StoreAt = std::function<void(int64_t at, double sum)>;

// Calls `body(begin, end)` for parts that are all of 0..count, side by side where a part has 2^26 operations or more.
// Each element is computed by one thread, in the same order as by one alone. The threads end before this does, so
// nothing is timed beside them.
void side_by_side(int64_t count, int64_t operations_of_each, const Part &body)
{
    const int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
    const int64_t parts =
        std::clamp<int64_t>(count * operations_of_each >> 26, 1, std::min(cores, std::max<int64_t>(1, count)));
    std::vector<std::thread> others;
    for (int64_t part = 1; part < parts; ++part) {
        const int64_t begin = count * part / parts, end = count * (part + 1) / parts;
        try {
            others.emplace_back(std::cref(body), begin, end);
        } catch (const std::system_error &) {  // no more threads are allowed here
            body(begin, end);
        }
    }
    body(0, count / parts);
    for (std::thread &other : others) other.join();
}

void product(
    Weight weight, const int8_t *activations, const uint8_t *weights, int64_t M, int64_t N, int64_t K,
    const StoreExact &store)
{
    side_by_side(N, M * K, [&](int64_t begin, int64_t end) {
        std::vector<int> row(static_cast<size_t>(K));
        for (int64_t n = begin; n < end; ++n) {
            for (int64_t k = 0; k < K; ++k) row[size_t(k)] = weight(weights, n, k, N, K);
            for (int64_t m = 0; m < M; ++m) {
                int64_t sum = 0;
                for (int64_t k = 0; k < K; ++k) sum += int64_t(activations[m * K + k]) * row[size_t(k)];
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
                for (int64_t k = 0; k < K; ++k) sum += double(activations[m * K + k]) * row[size_t(k)];
                store(m, n, sum);
            }
        }
    });
}

// Each element is summed along k; a row of c at a time, so that b is read along its rows.
template <class Float, class Read>
void float_product(const Float *a, const Float *b, float *c, int64_t M, int64_t N, int64_t K, Read read)
{
    std::vector<double> wide(static_cast<size_t>(K * N));
    for (int64_t i = 0; i < K * N; ++i) wide[size_t(i)] = read(b[i]);
    side_by_side(M, N * K, [&](int64_t begin, int64_t end) {
        std::vector<double> sums(static_cast<size_t>(N));
        for (int64_t m = begin; m < end; ++m) {
            std::fill(sums.begin(), sums.end(), 0.0);
            for (int64_t k = 0; k < K; ++k) {
                const double left = read(a[m * K + k]);
                for (int64_t n = 0; n < N; ++n) sums[size_t(n)] += left * wide[size_t(k * N + n)];
            }
            for (int64_t n = 0; n < N; ++n) c[m * N + n] = float(sums[size_t(n)]);
        }
    });
}

// 16-bit activations times row16: `store` gets the place and the sum, in float64.
void float_ternary_product(
    const uint16_t *activations, const uint8_t *weights, Narrow type, int64_t M, int64_t N, int64_t K,
    const StoreAt &store)
{
    std::vector<double> wide(static_cast<size_t>(M * K));
    for (int64_t i = 0; i < M * K; ++i) wide[size_t(i)] = widened(activations[i], type);
    side_by_side(N, M * K, [&](int64_t begin, int64_t end) {
        std::vector<double> row(static_cast<size_t>(K));
        for (int64_t n = begin; n < end; ++n) {
            for (int64_t k = 0; k < K; ++k) row[size_t(k)] = of_row16(weights, n, k, N, K);
            for (int64_t m = 0; m < M; ++m) {
                double sum = 0;
                for (int64_t k = 0; k < K; ++k) sum += wide[size_t(m * K + k)] * row[size_t(k)];
                store(m * N + n, sum);
            }
        }
    });
}

}  // namespace

extern "C" {

void i2s_quantize(const float *x, float scale, int8_t *q, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) q[i] = int8_t(std::nearbyintf(clamped(x[i] / scale, -2.0f, 1.0f)));
}

void i2s_quantize_float16(const uint16_t *x, float scale, int8_t *q, int64_t n)
{
    i2s_quantize(all_widened(x, n, kHalf).data(), scale, q, n);
}

void i2s_quantize_bfloat16(const uint16_t *x, float scale, int8_t *q, int64_t n)
{
    i2s_quantize(all_widened(x, n, kBrain).data(), scale, q, n);
}

void i2s_dequantize(const int8_t *q, float scale, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) x[i] = float(double(q[i]) * double(scale));
}

void ternary_quantize_none(const float *x, int8_t *codes, float *scales, int64_t n, int64_t block)
{
    const std::vector<int> found = block_codes(x, scales, n, block);
    for (int64_t i = 0; i < n; ++i) codes[i] = int8_t(found[size_t(i)]);
}

void ternary_quantize_float16(const uint16_t *x, int8_t *codes, float *scales, int64_t n, int64_t block)
{
    ternary_quantize_none(all_widened(x, n, kHalf).data(), codes, scales, n, block);
}

void ternary_quantize_bfloat16(const uint16_t *x, int8_t *codes, float *scales, int64_t n, int64_t block)
{
    ternary_quantize_none(all_widened(x, n, kBrain).data(), codes, scales, n, block);
}

void ternary_quantize_i2_s_x86(const float *x, uint8_t *codes, float *scales, int64_t n, int64_t block)
{
    const std::vector<int> found = block_codes(x, scales, n, block);
    for (int64_t i = 0; i < (n + 127) / 128 * 128; ++i) put(codes, i2_s_x86(i), i < n ? found[size_t(i)] : 0);
}

void ternary_quantize_row16(const float *x, uint8_t *codes, float *scales, int64_t n, int64_t block)
{
    const std::vector<int> found = block_codes(x, scales, n, block);
    for (int64_t i = 0; i < (n + 63) / 64 * 64; ++i) put(codes, row16(i), i < n ? found[size_t(i)] : 0);
}

// Returns 1 for another block than TQ2_0's.
int ternary_quantize_tq2_0(const float *x, uint8_t *codes, float *scales, int64_t n, int64_t block)
{
    if (block != 256) return 1;
    const std::vector<int> found = block_codes(x, scales, n, block);
    for (int64_t i = 0; i < (n + 255) / 256 * 256; ++i) put(codes, tq2_0(i), i < n ? found[size_t(i)] : 0);
    for (int64_t b = 0; b < (n + 255) / 256; ++b) put_half(codes + 66 * b + 64, scales[b]);
    return 0;
}

void absmean_quantize(const float *x, int8_t *codes, float *scale, int64_t n)
{
    *scale = float(std::max(mean_magnitude(x, n), 1e-5));
    for (int64_t i = 0; i < n; ++i) codes[i] = int8_t(clamped(std::nearbyintf(x[i] / *scale), -1.0f, 1.0f));
}

void activation_quantize(const float *x, int8_t *q, float *scale, int32_t *sum, int64_t M, int64_t K)
{
    for (int64_t m = 0; m < M; ++m) {
        float largest = 1e-5f;
        for (int64_t k = 0; k < K; ++k) largest = std::max(largest, std::fabs(x[m * K + k]));
        scale[m] = 127.0f / largest;
        int64_t total = 0;
        for (int64_t k = 0; k < K; ++k) {
            q[m * K + k] = int8_t(clamped(std::nearbyintf(x[m * K + k] * scale[m]), -128.0f, 127.0f));
            total += q[m * K + k];
        }
        sum[m] = int32_t(total);
    }
}

void activation_quantize_float16(const uint16_t *x, int8_t *q, float *scale, int32_t *sum, int64_t M, int64_t K)
{
    activation_quantize(all_widened(x, M * K, kHalf).data(), q, scale, sum, M, K);
}

void activation_quantize_bfloat16(const uint16_t *x, int8_t *q, float *scale, int32_t *sum, int64_t M, int64_t K)
{
    activation_quantize(all_widened(x, M * K, kBrain).data(), q, scale, sum, M, K);
}

void float_narrow_float16(const float *x, uint16_t *h, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) h[i] = narrowed_float(x[i], kHalf);
}

void float_narrow_bfloat16(const float *x, uint16_t *h, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) h[i] = narrowed_float(x[i], kBrain);
}

void float_widen_float16(const uint16_t *h, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) x[i] = widened(h[i], kHalf);
}

void float_widen_bfloat16(const uint16_t *h, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) x[i] = widened(h[i], kBrain);
}

void pack_codes_i2_s_x86(const int8_t *codes, const float *scales, uint8_t *packed, int64_t N, int64_t K)
{
    std::memset(packed, 0, size_t(N * K / 4 + 32));
    for (int64_t i = 0; i < N * K; ++i) put(packed, i2_s_x86(i), codes[i]);
    std::memcpy(packed + N * K / 4, scales, 4);
}

void pack_codes_row16(const int8_t *codes, const float *scales, uint8_t *packed, int64_t N, int64_t K)
{
    const int64_t row = row16_bytes(K);
    std::memset(packed, 0, size_t(N * row + 64));
    for (int64_t n = 0; n < N; ++n)
        for (int64_t k = 0; k < 4 * row; ++k) put(packed + n * row, row16(k), k < K ? codes[n * K + k] : 0);
    std::memcpy(packed + N * row, scales, 4);
}

void pack_codes_tq2_0(const int8_t *codes, const float *scales, uint8_t *packed, int64_t N, int64_t K)
{
    std::memset(packed, 0, size_t(N * K / 256 * 66));
    for (int64_t i = 0; i < N * K; ++i) put(packed, tq2_0(i), codes[i]);
    for (int64_t b = 0; b < N * K / 256; ++b) put_half(packed + 66 * b + 64, scales[b]);
}

void unpack_codes_i2_s_x86(const uint8_t *packed, int8_t *codes, float *scales, int64_t N, int64_t K)
{
    for (int64_t i = 0; i < N * K; ++i) codes[i] = int8_t(taken(packed, i2_s_x86(i)));
    std::memcpy(scales, packed + N * K / 4, 4);
}

void unpack_codes_row16(const uint8_t *packed, int8_t *codes, float *scales, int64_t N, int64_t K)
{
    for (int64_t n = 0; n < N; ++n)
        for (int64_t k = 0; k < K; ++k) codes[n * K + k] = int8_t(of_row16(packed, n, k, N, K));
    std::memcpy(scales, packed + N * row16_bytes(K), 4);
}

void unpack_codes_tq2_0(const uint8_t *packed, int8_t *codes, float *scales, int64_t N, int64_t K)
{
    for (int64_t i = 0; i < N * K; ++i) codes[i] = int8_t(taken(packed, tq2_0(i)));
    for (int64_t b = 0; b < N * K / 256; ++b) {
        uint16_t half;
        std::memcpy(&half, packed + 66 * b + 64, 2);
        scales[b] = widened(half, kHalf);
    }
}

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

void matmul_fp32(const float *a, const float *b, float *c, int64_t M, int64_t N, int64_t K)
{
    float_product(a, b, c, M, N, K, [](float x) { return double(x); });
}

void matmul_fp16(const uint16_t *a, const uint16_t *b, float *c, int64_t M, int64_t N, int64_t K)
{
    float_product(a, b, c, M, N, K, [](uint16_t x) { return double(widened(x, kHalf)); });
}

void matmul_bf16(const uint16_t *a, const uint16_t *b, float *c, int64_t M, int64_t N, int64_t K)
{
    float_product(a, b, c, M, N, K, [](uint16_t x) { return double(widened(x, kBrain)); });
}

#define TERNARY_MATMUL_A16(name, type) \
    void ternary_matmul_##name##_float32( \
        const uint16_t *activations, const uint8_t *weights, float weight_scale, float *out, int64_t M, int64_t N, \
        int64_t K) \
    { \
        float_ternary_product(activations, weights, type, M, N, K, [&](int64_t at, double sum) { \
            out[at] = float(sum * double(weight_scale)); \
        }); \
    } \
    void ternary_matmul_##name##_bfloat16( \
        const uint16_t *activations, const uint8_t *weights, float weight_scale, uint16_t *out, int64_t M, int64_t N, \
        int64_t K) \
    { \
        float_ternary_product(activations, weights, type, M, N, K, [&](int64_t at, double sum) { \
            out[at] = narrowed(sum * double(weight_scale), kBrain); \
        }); \
    } \
    void ternary_matmul_##name##_float16( \
        const uint16_t *activations, const uint8_t *weights, float weight_scale, uint16_t *out, int64_t M, int64_t N, \
        int64_t K) \
    { \
        float_ternary_product(activations, weights, type, M, N, K, [&](int64_t at, double sum) { \
            out[at] = narrowed(sum * double(weight_scale), kHalf); \
        }); \
    }
TERNARY_MATMUL_A16(bf16, kBrain)
TERNARY_MATMUL_A16(fp16, kHalf)

#define TERNARY_LINEAR(name, Element, quantize) \
    void ternary_linear_##name##_float32( \
        const Element *x, const uint8_t *weights, float weight_scale, float *out, int64_t M, int64_t N, int64_t K) \
    { \
        std::vector<int8_t> q(size_t(M * K)); \
        std::vector<float> scale(static_cast<size_t>(M)); \
        std::vector<int32_t> sum(static_cast<size_t>(M)); \
        quantize(x, q.data(), scale.data(), sum.data(), M, K); \
        ternary_matmul_row16_float32(q.data(), weights, weight_scale, scale.data(), out, M, N, K); \
    } \
    void ternary_linear_##name##_bfloat16( \
        const Element *x, const uint8_t *weights, float weight_scale, uint16_t *out, int64_t M, int64_t N, int64_t K) \
    { \
        std::vector<int8_t> q(size_t(M * K)); \
        std::vector<float> scale(static_cast<size_t>(M)); \
        std::vector<int32_t> sum(static_cast<size_t>(M)); \
        quantize(x, q.data(), scale.data(), sum.data(), M, K); \
        ternary_matmul_row16_bfloat16(q.data(), weights, weight_scale, scale.data(), out, M, N, K); \
    } \
    void ternary_linear_##name##_float16( \
        const Element *x, const uint8_t *weights, float weight_scale, uint16_t *out, int64_t M, int64_t N, int64_t K) \
    { \
        std::vector<int8_t> q(size_t(M * K)); \
        std::vector<float> scale(static_cast<size_t>(M)); \
        std::vector<int32_t> sum(static_cast<size_t>(M)); \
        quantize(x, q.data(), scale.data(), sum.data(), M, K); \
        ternary_matmul_row16_float16(q.data(), weights, weight_scale, scale.data(), out, M, N, K); \
    }

TERNARY_LINEAR(fp32, float, activation_quantize)
TERNARY_LINEAR(fp16, uint16_t, activation_quantize_float16)
TERNARY_LINEAR(bf16, uint16_t, activation_quantize_bfloat16)

}  // extern "C"

// --- products of iq2_bn, iq2_bn_r4, q2_0 and tq1_0 -------------------------------------------------------------------

namespace {

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

double half_at(const uint8_t *at)
{
    uint16_t half;
    std::memcpy(&half, at, 2);
    return double(widened(half, kHalf));
}

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
    for (int64_t i = 0; i < digit; ++i) fraction = fraction * 3 & 255;
    return {int(fraction * 3 >> 8) - 1, half_at(block + 52)};
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

}  // extern "C"
