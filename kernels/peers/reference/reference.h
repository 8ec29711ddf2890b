// What the references of several ops share. They are written from the formats' and the ops' descriptions, one element
// at a time, without a line of the kernels or of the NumPy references. Slow, and meant to be read. int64 and double
// wherever the op asks for no narrower arithmetic; compiled with -ffp-contract=off, so a product is rounded where it is
// written. Little-endian hosts only.
//
// Arrays are C-contiguous. float16 and bfloat16 are their bits in uint16_t.
#ifndef TRITMARK_REFERENCE_H
#define TRITMARK_REFERENCE_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <system_error>
#include <thread>
#include <vector>

namespace reference {

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
inline uint16_t narrowed(double x, Narrow type)
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
inline uint16_t narrowed_float(float x, Narrow type)
{
    if (!std::isnan(x)) return narrowed(double(x), type);
    const uint32_t bits = bits_of<uint32_t>(x);
    const int stored = type.precision - 1;
    const uint32_t infinity = uint32_t(type.largest - type.least + 2) << stored;
    const uint32_t quiet = 1u << (stored - 1);
    return uint16_t((bits >> 31 << 15) | infinity | quiet | ((bits & 0x3fffff) >> (23 - stored)));
}

inline float widened(uint16_t bits, Narrow type)
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

inline std::vector<float> all_widened(const uint16_t *bits, int64_t n, Narrow type)
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
inline Field i2_s_x86(int64_t flat)
{
    const int64_t j = flat % 128;
    return {flat / 128 * 32 + j % 32, int(6 - 2 * (j / 32))};
}

// TQ2_0: blocks of 256 in 66 bytes; half blocks of 128 in 32 bytes, the first 32 in the lowest bits.
inline Field tq2_0(int64_t flat)
{
    const int64_t e = flat % 256;
    return {flat / 256 * 66 + 32 * (e / 128) + e % 32, int(2 * (e % 128 / 32))};
}

// row16, one row: words of 16; weight e of a word at bit 8 * (e % 4) + 2 * (e / 4), little-endian.
inline Field row16(int64_t column)
{
    const int64_t e = column % 16, bit = 8 * (e % 4) + 2 * (e / 4);
    return {column / 16 * 4 + bit / 8, int(bit % 8)};
}

inline int64_t row16_bytes(int64_t K) { return (K + 63) / 64 * 16; }

inline int taken(const uint8_t *packed, Field field) { return (packed[field.byte] >> field.shift & 3) - 1; }

inline void put(uint8_t *packed, Field field, int code)
{
    packed[field.byte] = uint8_t((packed[field.byte] & ~(3 << field.shift)) | (code + 1) << field.shift);
}

inline void put_half(uint8_t *at, float scale)
{
    const uint16_t half = narrowed_float(scale, kHalf);
    std::memcpy(at, &half, 2);
}

inline int of_row16(const uint8_t *packed, int64_t row, int64_t column, int64_t, int64_t K)
{
    return taken(packed + row * row16_bytes(K), row16(column));
}

inline double half_at(const uint8_t *at)
{
    uint16_t half;
    std::memcpy(&half, at, 2);
    return double(widened(half, kHalf));
}

inline float clamped(float x, float low, float high) { return std::min(std::max(x, low), high); }

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
inline void side_by_side(int64_t count, int64_t operations_of_each, const Part &body)
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

}  // namespace reference

using namespace reference;

#endif
