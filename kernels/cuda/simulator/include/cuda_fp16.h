// __half: 5 bits of exponent, 10 of fraction.
#pragma once
#include "tritmark_narrow.h"

using __half = tritmark_narrow<5, 10>;
using half = __half;
TRITMARK_NARROW(__half, __half2, half)
using half2 = __half2;
TRITMARK_INLINE float __half2float(__half a) { return a; }
TRITMARK_INLINE int __half2int_rn(__half a) { return __float2int_rn(a); }
TRITMARK_INLINE int __half2int_rz(__half a) { return __float2int_rz(a); }
TRITMARK_INLINE __half2 __halves2half2(__half a, __half b) { return {a, b}; }
TRITMARK_INLINE float2 __half22float2(__half2 a) { return {a.x, a.y}; }
