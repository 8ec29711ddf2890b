// __nv_bfloat16: 8 bits of exponent, 7 of fraction.
#pragma once
#include "tritmark_narrow.h"

using __nv_bfloat16 = tritmark_narrow<8, 7>;
using nv_bfloat16 = __nv_bfloat16;
TRITMARK_NARROW(__nv_bfloat16, __nv_bfloat162, bfloat16)
using nv_bfloat162 = __nv_bfloat162;
TRITMARK_INLINE float __bfloat162float(__nv_bfloat16 a) { return a; }
TRITMARK_INLINE int __bfloat162int_rn(__nv_bfloat16 a) { return __float2int_rn(a); }
TRITMARK_INLINE int __bfloat162int_rz(__nv_bfloat16 a) { return __float2int_rz(a); }
TRITMARK_INLINE __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return {a, b}; }
TRITMARK_INLINE float2 __bfloat1622float2(__nv_bfloat162 a) { return {a.x, a.y}; }
