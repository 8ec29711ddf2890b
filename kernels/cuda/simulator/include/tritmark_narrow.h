// 16-bit floating point for cuda_fp16.h and cuda_bf16.h with EXPONENT and FRACTION bits. Conversions round to nearest,
// ties to even; arithmetic rounds the exact result once. A NaN becomes 0x7fff, as on the device.
#pragma once

#define TRITMARK_METHOD __attribute__((always_inline)) inline

// A double as a float whose last bit is a sticky bit: rounding it again to 16 bits gives the same result as rounding
// once.
TRITMARK_INLINE float tritmark_to_odd(double x) {
    const float near = static_cast<float>(x);
    if (near == x || x != x || std::isinf(near))
        return std::isinf(near) && !std::isinf(x) ? std::copysign(3.4028234e38f, near) : near;
    const unsigned bits = __float_as_uint(near);
    if (bits & 1) return near;
    return __uint_as_float(std::fabs(static_cast<double>(near)) > std::fabs(x) ? bits - 1 : bits + 1);
}

template <int EXPONENT, int FRACTION>
struct tritmark_narrow {
    unsigned short __x;

    static constexpr int DROPPED = 23 - FRACTION;
    static constexpr unsigned REBIAS = 127 - ((1 << (EXPONENT - 1)) - 1), INFINITE = ((1u << EXPONENT) - 1) << FRACTION;

    tritmark_narrow() = default;
    TRITMARK_METHOD tritmark_narrow(float x) : __x(round(x)) {}
    TRITMARK_METHOD tritmark_narrow(double x) : __x(round(tritmark_to_odd(x))) {}
    TRITMARK_METHOD tritmark_narrow(int x) : tritmark_narrow(static_cast<double>(x)) {}
    TRITMARK_METHOD tritmark_narrow(unsigned x) : tritmark_narrow(static_cast<double>(x)) {}
    TRITMARK_METHOD static tritmark_narrow from_bits(unsigned short bits) {
        tritmark_narrow made;
        made.__x = bits;
        return made;
    }
    TRITMARK_METHOD operator float() const {
        const unsigned sign = static_cast<unsigned>(__x & 0x8000) << 16, magnitude = __x & 0x7fffu;
        if (EXPONENT == 8) return __uint_as_float(static_cast<unsigned>(__x) << 16);
        if (magnitude >= INFINITE) return __uint_as_float(sign | 0x7f800000 | magnitude << DROPPED);
        // 2^-14 is the smallest normal number; below it the fraction counts multiples of 2^-24.
        if (magnitude >> FRACTION) return __uint_as_float(sign | ((magnitude << DROPPED) + (REBIAS << 23)));
        return __uint_as_float(sign | __float_as_uint(static_cast<float>(magnitude) * 0x1p-24f));
    }

    TRITMARK_METHOD static unsigned short round(float x) {
        const unsigned bits = __float_as_uint(x), sign = bits >> 16 & 0x8000;
        unsigned magnitude = bits & 0x7fffffff;
        if (magnitude > 0x7f800000) return 0x7fff;
        if (magnitude == 0x7f800000) return sign | INFINITE;
        if (EXPONENT < 8 && magnitude < (REBIAS + 1) << 23)
            // The addition rounds to multiples of 2^-24.
            return sign | (__float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000);
        if (EXPONENT < 8) magnitude -= REBIAS << 23;
        magnitude = (magnitude + (1u << (DROPPED - 1)) - 1 + (magnitude >> DROPPED & 1)) >> DROPPED;
        return sign | (magnitude < INFINITE ? magnitude : INFINITE);
    }
};

// a * b + c, rounded once: the product is exact in double, and the sum keeps its error in a sticky last bit.
template <class T>
TRITMARK_INLINE T tritmark_fma(T a, T b, T c) {
    const double product = static_cast<double>(static_cast<float>(a)) * static_cast<float>(b),
                 z = static_cast<float>(c);
    double sum = product + z;
    const double part = sum - product, lost = (product - (sum - part)) + (z - part);
    const long long bits = __double_as_longlong(sum);
    if (lost != 0 && std::isfinite(sum) && !(bits & 1))
        sum = __longlong_as_double((lost > 0) == (sum > 0) ? bits + 1 : bits - 1);
    return T(sum);
}

#define TRITMARK_NARROW(T, T2, name)                                                                            \
    struct alignas(4) T2 {                                                                                      \
        T x, y;                                                                                                 \
    };                                                                                                          \
    TRITMARK_INLINE T operator+(const T& a, const T& b) { return T(float(a) + float(b)); }                      \
    TRITMARK_INLINE T operator-(const T& a, const T& b) { return T(float(a) - float(b)); }                      \
    TRITMARK_INLINE T operator*(const T& a, const T& b) { return T(float(a) * float(b)); }                      \
    TRITMARK_INLINE T operator/(const T& a, const T& b) { return T(float(a) / float(b)); }                      \
    TRITMARK_INLINE T operator-(const T& a) { return T::from_bits(a.__x ^ 0x8000); }                            \
    TRITMARK_INLINE T& operator+=(T& a, const T& b) { return a = a + b; }                                       \
    TRITMARK_INLINE T& operator-=(T& a, const T& b) { return a = a - b; }                                       \
    TRITMARK_INLINE T& operator*=(T& a, const T& b) { return a = a * b; }                                       \
    TRITMARK_INLINE T& operator/=(T& a, const T& b) { return a = a / b; }                                       \
    TRITMARK_INLINE bool operator==(const T& a, const T& b) { return float(a) == float(b); }                    \
    TRITMARK_INLINE bool operator!=(const T& a, const T& b) { return float(a) != float(b); }                    \
    TRITMARK_INLINE bool operator<(const T& a, const T& b) { return float(a) < float(b); }                      \
    TRITMARK_INLINE bool operator>(const T& a, const T& b) { return float(a) > float(b); }                      \
    TRITMARK_INLINE bool operator<=(const T& a, const T& b) { return float(a) <= float(b); }                    \
    TRITMARK_INLINE bool operator>=(const T& a, const T& b) { return float(a) >= float(b); }                    \
    TRITMARK_INLINE T __hadd(T a, T b) { return a + b; }                                                        \
    TRITMARK_INLINE T __hsub(T a, T b) { return a - b; }                                                        \
    TRITMARK_INLINE T __hmul(T a, T b) { return a * b; }                                                        \
    TRITMARK_INLINE T __hdiv(T a, T b) { return a / b; }                                                        \
    TRITMARK_INLINE T __hfma(T a, T b, T c) { return tritmark_fma(a, b, c); }                                   \
    TRITMARK_INLINE T __hneg(T a) { return -a; }                                                                \
    TRITMARK_INLINE T __habs(T a) { return T::from_bits(a.__x & 0x7fff); }                                      \
    TRITMARK_INLINE T __hmin(T a, T b) { return T(std::fmin(float(a), float(b))); }                             \
    TRITMARK_INLINE T __hmax(T a, T b) { return T(std::fmax(float(a), float(b))); }                             \
    TRITMARK_INLINE bool __heq(T a, T b) { return a == b; }                                                     \
    TRITMARK_INLINE bool __hne(T a, T b) { return float(a) < float(b) || float(a) > float(b); }                 \
    TRITMARK_INLINE bool __hlt(T a, T b) { return a < b; }                                                      \
    TRITMARK_INLINE bool __hle(T a, T b) { return a <= b; }                                                     \
    TRITMARK_INLINE bool __hgt(T a, T b) { return a > b; }                                                      \
    TRITMARK_INLINE bool __hge(T a, T b) { return a >= b; }                                                     \
    TRITMARK_INLINE bool __hisnan(T a) { return (a.__x & 0x7fff) > T::INFINITE; }                               \
    TRITMARK_INLINE int __hisinf(T a) { return (a.__x & 0x7fff) == T::INFINITE ? (a.__x >> 15 ? -1 : 1) : 0; }  \
    TRITMARK_INLINE T __float2##name(float x) { return T(x); }                                                  \
    TRITMARK_INLINE T __float2##name##_rn(float x) { return T(x); }                                             \
    TRITMARK_INLINE T __double2##name(double x) { return T(x); }                                                \
    TRITMARK_INLINE T __int2##name##_rn(int x) { return T(x); }                                                 \
    TRITMARK_INLINE T __uint2##name##_rn(unsigned x) { return T(x); }                                           \
    TRITMARK_INLINE T __ushort_as_##name(unsigned short bits) { return T::from_bits(bits); }                    \
    TRITMARK_INLINE T __short_as_##name(short bits) { return T::from_bits(static_cast<unsigned short>(bits)); } \
    TRITMARK_INLINE unsigned short __##name##_as_ushort(T a) { return a.__x; }                                  \
    TRITMARK_INLINE short __##name##_as_short(T a) { return static_cast<short>(a.__x); }                        \
    TRITMARK_INLINE T __low2##name(T2 a) { return a.x; }                                                        \
    TRITMARK_INLINE T __high2##name(T2 a) { return a.y; }                                                       \
    TRITMARK_INLINE float __low2float(T2 a) { return a.x; }                                                     \
    TRITMARK_INLINE float __high2float(T2 a) { return a.y; }                                                    \
    TRITMARK_INLINE T2 __##name##2##name##2(T a) { return {a, a}; }                                             \
    TRITMARK_INLINE T2 make_##name##2(T a, T b) { return {a, b}; }                                              \
    TRITMARK_INLINE T2 __floats2##name##2_rn(float a, float b) { return {T(a), T(b)}; }                         \
    TRITMARK_INLINE T2 __float2##name##2_rn(float a) { return {T(a), T(a)}; }                                   \
    TRITMARK_INLINE T2 __float22##name##2_rn(float2 a) { return {T(a.x), T(a.y)}; }                             \
    TRITMARK_INLINE T2 __hadd2(T2 a, T2 b) { return {a.x + b.x, a.y + b.y}; }                                   \
    TRITMARK_INLINE T2 __hsub2(T2 a, T2 b) { return {a.x - b.x, a.y - b.y}; }                                   \
    TRITMARK_INLINE T2 __hmul2(T2 a, T2 b) { return {a.x * b.x, a.y * b.y}; }                                   \
    TRITMARK_INLINE T2 __hfma2(T2 a, T2 b, T2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
