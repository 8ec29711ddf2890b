// The built-ins of CUDA C++ for g++, included before every source that the simulator compiles.
//
// __global__ and __shared__ stay in the text; simulator/toolchain.py replaces them after macro expansion. Functions
// that access memory themselves report the access (tritmark_access). They are excluded from instrumentation (PLAIN), so
// that it is not checked twice.
#pragma once

#include <cstddef>
#include <cstdint>
// Special functions such as Bessel's, which no device has, are almost half of <cmath>'s text and of a small kernel's
// compile time.
#undef _GLIBCXX_USE_STD_SPEC_FUNCS
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __grid_constant__

#define TRITMARK_INLINE static inline __attribute__((always_inline))
#define TRITMARK_PLAIN __attribute__((noinline, no_sanitize("thread")))

// Shared variables are placed between this and tritmark_last.
static __attribute__((used, section("tritmark_shared"))) char tritmark_first[256];

// --- vectors ------------------------------------------------------------------------------------------------------
#define TRITMARK_VECTORS(type, name, two, four)                                          \
    struct name##1 { type x; };                                                          \
    struct alignas(two) name##2 { type x, y; };                                          \
    struct name##3 { type x, y, z; };                                                    \
    struct alignas(four) name##4 { type x, y, z, w; };                                   \
    TRITMARK_INLINE name##1 make_##name##1(type x) { return {x}; }                       \
    TRITMARK_INLINE name##2 make_##name##2(type x, type y) { return {x, y}; }            \
    TRITMARK_INLINE name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; } \
    TRITMARK_INLINE name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
TRITMARK_VECTORS(signed char, char, 2, 4)
TRITMARK_VECTORS(unsigned char, uchar, 2, 4)
TRITMARK_VECTORS(short, short, 4, 8)
TRITMARK_VECTORS(unsigned short, ushort, 4, 8)
TRITMARK_VECTORS(int, int, 8, 16)
TRITMARK_VECTORS(unsigned, uint, 8, 16)
TRITMARK_VECTORS(float, float, 8, 16)
TRITMARK_VECTORS(long long, longlong, 16, 16)
TRITMARK_VECTORS(unsigned long long, ulonglong, 16, 16)
TRITMARK_VECTORS(double, double, 16, 16)

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

// --- the runtime --------------------------------------------------------------------------------------------------
extern "C" {
uint3 tritmark_thread_index() noexcept __attribute__((const));
uint3 tritmark_block_index() noexcept __attribute__((const));
uint3 tritmark_block_dim() noexcept __attribute__((const));
uint3 tritmark_grid_dim() noexcept __attribute__((const));
void* tritmark_dynamic_shared() noexcept __attribute__((const));
unsigned tritmark_barrier(unsigned kind, unsigned predicate, unsigned line);
uint64_t tritmark_warp(unsigned op, unsigned mask, uint64_t value, unsigned argument);
void tritmark_together(void (*call)(void**), void* frame, void* pc);
void tritmark_access(const void* p, unsigned bytes, unsigned kind, void* pc);
unsigned tritmark_activemask();
[[noreturn]] void tritmark_refuse(const char* what, const void* address, void* pc);
}
#define threadIdx tritmark_thread_index()
#define blockIdx tritmark_block_index()
#define blockDim tritmark_block_dim()
#define gridDim tritmark_grid_dim()
constexpr int warpSize = 32;

TRITMARK_PLAIN inline void __trap() {
    tritmark_refuse("the kernel called __trap", nullptr, __builtin_return_address(0));
}
TRITMARK_PLAIN inline void tritmark_assert(const char* what) {
    tritmark_refuse(what, nullptr, __builtin_return_address(0));
}
#undef assert
#define assert(condition) ((condition) ? (void)0 : tritmark_assert("assertion failed: " #condition))

// --- barriers, votes, shuffles ------------------------------------------------------------------------------------
TRITMARK_INLINE void __syncthreads(int line = __builtin_LINE()) { tritmark_barrier(0, 0, line); }
TRITMARK_INLINE int __syncthreads_count(int predicate, int line = __builtin_LINE()) {
    return tritmark_barrier(1, predicate != 0, line);
}
TRITMARK_INLINE int __syncthreads_and(int predicate, int line = __builtin_LINE()) {
    return tritmark_barrier(2, predicate != 0, line);
}
TRITMARK_INLINE int __syncthreads_or(int predicate, int line = __builtin_LINE()) {
    return tritmark_barrier(3, predicate != 0, line);
}
TRITMARK_INLINE void __threadfence() {}
TRITMARK_INLINE void __threadfence_block() {}
TRITMARK_INLINE void __threadfence_system() {}
TRITMARK_INLINE void __nanosleep(unsigned) {}

TRITMARK_INLINE unsigned tritmark_lane() {
    const uint3 t = threadIdx, b = blockDim;
    return (t.x + b.x * (t.y + b.y * t.z)) % 32;
}
TRITMARK_INLINE void __syncwarp(unsigned mask = 0xffffffffu) { tritmark_warp(0, mask, 0, 0); }
TRITMARK_INLINE unsigned __ballot_sync(unsigned mask, int predicate) {
    return static_cast<unsigned>(tritmark_warp(2, mask, predicate != 0, 0));
}
TRITMARK_INLINE int __any_sync(unsigned mask, int predicate) {
    return static_cast<int>(tritmark_warp(3, mask, predicate != 0, 0));
}
TRITMARK_INLINE int __all_sync(unsigned mask, int predicate) {
    return static_cast<int>(tritmark_warp(4, mask, predicate != 0, 0));
}
TRITMARK_INLINE unsigned __activemask() { return tritmark_activemask(); }

template <class T>
TRITMARK_INLINE uint64_t tritmark_to_bits(T value) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T>
TRITMARK_INLINE T tritmark_from_bits(uint64_t bits) {
    T value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}
template <class T>
TRITMARK_INLINE T tritmark_shuffle(unsigned mask, T value, unsigned from) {
    return tritmark_from_bits<T>(tritmark_warp(1, mask, tritmark_to_bits(value), from));
}
template <class T>
TRITMARK_INLINE T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
    return tritmark_shuffle(mask, value, (tritmark_lane() & ~(width - 1)) | (from & (width - 1)));
}
template <class T>
TRITMARK_INLINE T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
    const unsigned lane = tritmark_lane();
    return tritmark_shuffle(mask, value, (lane & (width - 1)) >= by ? lane - by : lane);
}
template <class T>
TRITMARK_INLINE T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
    const unsigned lane = tritmark_lane();
    return tritmark_shuffle(mask, value, (lane & (width - 1)) + by < static_cast<unsigned>(width) ? lane + by : lane);
}
// A lane may read from an earlier group of `width` lanes but not from a later one.
template <class T>
TRITMARK_INLINE T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32) {
    const unsigned lane = tritmark_lane(), from = lane ^ with;
    return tritmark_shuffle(mask, value, from <= (lane | (width - 1)) ? from : lane);
}
template <class T>
TRITMARK_INLINE unsigned __match_any_sync(unsigned mask, T value) {
    return static_cast<unsigned>(tritmark_warp(13, mask, tritmark_to_bits(value), 0));
}
template <class T>
TRITMARK_INLINE unsigned __match_all_sync(unsigned mask, T value, int* all) {
    const auto lanes = static_cast<unsigned>(tritmark_warp(14, mask, tritmark_to_bits(value), 0));
    *all = lanes != 0;
    return lanes;
}
#if __CUDA_ARCH__ >= 800
#define TRITMARK_REDUCE(name, type, op)                                                     \
    TRITMARK_INLINE type name(unsigned mask, type value) {                                  \
        return static_cast<type>(tritmark_warp(op, mask, static_cast<unsigned>(value), 0)); \
    }
TRITMARK_REDUCE(__reduce_add_sync, unsigned, 5)
TRITMARK_REDUCE(__reduce_min_sync, unsigned, 6)
TRITMARK_REDUCE(__reduce_max_sync, unsigned, 7)
TRITMARK_REDUCE(__reduce_add_sync, int, 5)
TRITMARK_REDUCE(__reduce_min_sync, int, 8)
TRITMARK_REDUCE(__reduce_max_sync, int, 9)
TRITMARK_REDUCE(__reduce_and_sync, unsigned, 10)
TRITMARK_REDUCE(__reduce_or_sync, unsigned, 11)
TRITMARK_REDUCE(__reduce_xor_sync, unsigned, 12)
#endif

// --- loads and stores with a hint ---------------------------------------------------------------------------------
template <class T>
TRITMARK_PLAIN T tritmark_load(const T* p) {
    tritmark_access(p, sizeof(T), 0, __builtin_return_address(0));
    return *p;
}
template <class T>
TRITMARK_PLAIN void tritmark_store(T* p, std::common_type_t<T> value) {
    tritmark_access(p, sizeof(T), 1, __builtin_return_address(0));
    *p = value;
}
#define TRITMARK_LOAD(name)              \
    template <class T>                   \
    TRITMARK_INLINE T name(const T* p) { \
        return tritmark_load(p);         \
    }
#define TRITMARK_STORE(name)                                       \
    template <class T>                                             \
    TRITMARK_INLINE void name(T* p, std::common_type_t<T> value) { \
        tritmark_store(p, value);                                  \
    }
TRITMARK_LOAD(__ldg)
TRITMARK_LOAD(__ldca)
TRITMARK_LOAD(__ldcg)
TRITMARK_LOAD(__ldcs)
TRITMARK_LOAD(__ldcv)
TRITMARK_LOAD(__ldlu)
TRITMARK_STORE(__stwb)
TRITMARK_STORE(__stcg)
TRITMARK_STORE(__stcs)
TRITMARK_STORE(__stwt)

// --- atomics ------------------------------------------------------------------------------------------------------
// One thread runs at a time, so plain arithmetic is atomic. nvcc has no overloads for `long`.
template <class T, class Function>
TRITMARK_PLAIN T tritmark_atomic(T* p, Function change, void* pc) {
    static_assert((std::is_arithmetic_v<T> && sizeof(T) >= 4) && !std::is_same_v<T, long> &&
                  !std::is_same_v<T, unsigned long>);
    tritmark_access(p, sizeof(T), 3, pc);
    const T old = *p;
    *p = change(old);
    return old;
}
#define TRITMARK_ATOMIC(name, change)                                                                   \
    template <class T>                                                                                  \
    __attribute__((noinline)) T name(T* p, std::common_type_t<T> v) {                                   \
        const auto changed = [v](T old) __attribute__((no_sanitize("thread"))) -> T { return change; }; \
        return tritmark_atomic(p, changed, __builtin_return_address(0));                                \
    }
TRITMARK_ATOMIC(atomicAdd, old + v)
TRITMARK_ATOMIC(atomicSub, old - v)
TRITMARK_ATOMIC(atomicMin, v < old ? v : old)
TRITMARK_ATOMIC(atomicMax, v > old ? v : old)
TRITMARK_ATOMIC(atomicExch, v)
TRITMARK_ATOMIC(atomicAnd, (old & v))
TRITMARK_ATOMIC(atomicOr, old | v)
TRITMARK_ATOMIC(atomicXor, old ^ v)
TRITMARK_ATOMIC(atomicInc, old >= v ? 0 : old + 1)
TRITMARK_ATOMIC(atomicDec, old == 0 || old > v ? v : old - 1)
template <class T>
__attribute__((noinline)) T atomicCAS(T* p, std::common_type_t<T> expected, std::common_type_t<T> v) {
    const auto changed = [=](T old) __attribute__((no_sanitize("thread"))) { return old == expected ? v : old; };
    return tritmark_atomic(p, changed, __builtin_return_address(0));
}

// --- integers and bits --------------------------------------------------------------------------------------------
TRITMARK_INLINE int __float_as_int(float x) { return tritmark_from_bits<int>(tritmark_to_bits(x)); }
TRITMARK_INLINE unsigned __float_as_uint(float x) { return tritmark_from_bits<unsigned>(tritmark_to_bits(x)); }
TRITMARK_INLINE float __int_as_float(int x) { return tritmark_from_bits<float>(tritmark_to_bits(x)); }
TRITMARK_INLINE float __uint_as_float(unsigned x) { return tritmark_from_bits<float>(x); }
TRITMARK_INLINE long long __double_as_longlong(double x) { return tritmark_from_bits<long long>(tritmark_to_bits(x)); }
TRITMARK_INLINE double __longlong_as_double(long long x) { return tritmark_from_bits<double>(tritmark_to_bits(x)); }
TRITMARK_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
TRITMARK_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
TRITMARK_INLINE int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
TRITMARK_INLINE int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
TRITMARK_INLINE int __ffs(int x) { return __builtin_ffs(x); }
TRITMARK_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
TRITMARK_INLINE unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int i = 0; i < 32; i++) reversed |= (x >> i & 1) << (31 - i);
    return reversed;
}
TRITMARK_INLINE unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    const uint64_t both = uint64_t{b} << 32 | a;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned from = selector >> 4 * i & 15;
        unsigned byte = both >> 8 * (from & 7) & 255;
        if (from & 8) byte = byte & 128 ? 255 : 0;  // the sign bit, eight times
        result |= byte << 8 * i;
    }
    return result;
}
TRITMARK_INLINE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
    return (uint64_t{high} << 32 | low) << (by & 31) >> 32;
}
TRITMARK_INLINE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return (uint64_t{high} << 32 | low) >> (by & 31);
}
TRITMARK_INLINE int __mulhi(int a, int b) { return static_cast<int>(int64_t{a} * b >> 32); }
TRITMARK_INLINE unsigned __umulhi(unsigned a, unsigned b) { return uint64_t{a} * b >> 32; }
TRITMARK_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned __int128>(a) * b >> 64;
}
TRITMARK_INLINE int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 32; i += 8) c += static_cast<signed char>(a >> i) * static_cast<signed char>(b >> i);
    return c;
}
TRITMARK_INLINE unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 32; i += 8) c += (a >> i & 255) * (b >> i & 255);
    return c;
}
TRITMARK_INLINE int __dp4a(char4 a, char4 b, int c) { return c + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
TRITMARK_INLINE unsigned __dp4a(uchar4 a, uchar4 b, unsigned c) {
    return c + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}
inline long long tritmark_ticks = 0;
TRITMARK_PLAIN inline long long clock64() { return tritmark_ticks += 16; }  // increases, without a meaning

// --- numbers ------------------------------------------------------------------------------------------------------
template <class A, class B>
TRITMARK_INLINE auto min(A a, B b) {
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point_v<T>) return std::fmin(static_cast<T>(a), static_cast<T>(b));
    else return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <class A, class B>
TRITMARK_INLINE auto max(A a, B b) {
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point_v<T>) return std::fmax(static_cast<T>(a), static_cast<T>(b));
    else return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}
using std::abs, std::isfinite, std::isinf, std::isnan, std::signbit;
TRITMARK_INLINE float rsqrtf(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }
TRITMARK_INLINE float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
#define TRITMARK_ROUNDED(type, infix, fma_name, divide, square_root)         \
    TRITMARK_INLINE type __##infix##add_rn(type a, type b) { return a + b; } \
    TRITMARK_INLINE type __##infix##sub_rn(type a, type b) { return a - b; } \
    TRITMARK_INLINE type __##infix##mul_rn(type a, type b) { return a * b; } \
    TRITMARK_INLINE type divide(type a, type b) { return a / b; }            \
    TRITMARK_INLINE type square_root(type a) { return std::sqrt(a); }        \
    TRITMARK_INLINE type fma_name(type a, type b, type c) { return std::fma(a, b, c); }
TRITMARK_ROUNDED(float, f, __fmaf_rn, __fdiv_rn, __fsqrt_rn)
TRITMARK_ROUNDED(double, d, __fma_rn, __ddiv_rn, __dsqrt_rn)
TRITMARK_INLINE float __frcp_rn(float a) { return 1.0f / a; }
TRITMARK_INLINE double __drcp_rn(double a) { return 1.0 / a; }

// To an integer: nearest (rn), towards zero (rz), down (rd), up (ru); saturated; NaN gives 0 (64-bit: the minimum).
template <class To, class From>
TRITMARK_INLINE To tritmark_saturate(From x) {
    constexpr To LEAST = std::is_signed_v<To> ? static_cast<To>(To{1} << (sizeof(To) * 8 - 1)) : To{0},
                 MOST = static_cast<To>(~LEAST);
    if (x != x) return sizeof(To) == 8 ? static_cast<To>(1ull << 63) : To{0};
    if (x <= static_cast<From>(LEAST)) return LEAST;
    return x >= static_cast<From>(MOST) ? MOST : static_cast<To>(x);
}
#define TRITMARK_TO_INTEGER(from, to_name, to)                                                                 \
    TRITMARK_INLINE to __##from##2##to_name##_rn(from x) { return tritmark_saturate<to>(__builtin_rint(x)); }  \
    TRITMARK_INLINE to __##from##2##to_name##_rz(from x) { return tritmark_saturate<to>(__builtin_trunc(x)); } \
    TRITMARK_INLINE to __##from##2##to_name##_rd(from x) { return tritmark_saturate<to>(__builtin_floor(x)); } \
    TRITMARK_INLINE to __##from##2##to_name##_ru(from x) { return tritmark_saturate<to>(__builtin_ceil(x)); }
TRITMARK_TO_INTEGER(float, int, int)
TRITMARK_TO_INTEGER(float, uint, unsigned)
TRITMARK_TO_INTEGER(float, ll, long long)
TRITMARK_TO_INTEGER(float, ull, unsigned long long)
TRITMARK_TO_INTEGER(double, int, int)
TRITMARK_TO_INTEGER(double, uint, unsigned)
TRITMARK_TO_INTEGER(double, ll, long long)
TRITMARK_TO_INTEGER(double, ull, unsigned long long)
TRITMARK_INLINE unsigned __vminu2(unsigned a, unsigned b) {
    const unsigned low_a = a & 0xffffu, low_b = b & 0xffffu, high_a = a >> 16, high_b = b >> 16;
    return (high_a < high_b ? high_a : high_b) << 16 | (low_a < low_b ? low_a : low_b);
}
TRITMARK_INLINE unsigned __vadd2(unsigned a, unsigned b) {
    return ((a & 0xffff0000u) + (b & 0xffff0000u)) | ((a + b) & 0xffffu);
}
TRITMARK_INLINE unsigned __viaddmin_u16x2(unsigned a, unsigned b, unsigned c) { return __vminu2(__vadd2(a, b), c); }
TRITMARK_INLINE float __int2float_rn(int x) { return static_cast<float>(x); }
TRITMARK_INLINE float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
TRITMARK_INLINE float __ll2float_rn(long long x) { return static_cast<float>(x); }
TRITMARK_INLINE float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
TRITMARK_INLINE double __int2double_rn(int x) { return x; }
TRITMARK_INLINE double __uint2double_rn(unsigned x) { return x; }
TRITMARK_INLINE double __ll2double_rn(long long x) { return static_cast<double>(x); }
TRITMARK_INLINE double __ull2double_rn(unsigned long long x) { return static_cast<double>(x); }
TRITMARK_INLINE float __double2float_rn(double x) { return static_cast<float>(x); }

// --- calls of kernels ---------------------------------------------------------------------------------------------
template <class... P, size_t... I>
TRITMARK_PLAIN void tritmark_call(void (*kernel)(P...), void** arguments, std::index_sequence<I...>) {
    kernel(*static_cast<P*>(arguments[I])...);
}
template <class... P>
TRITMARK_PLAIN void tritmark_enter(void (*kernel)(P...), void** arguments) {
    tritmark_call(kernel, arguments, std::index_sequence_for<P...>{});
}
template <class P>
constexpr char tritmark_sort = std::is_pointer_v<P>          ? 'P'
                               : std::is_floating_point_v<P> ? 'f'
                               : !std::is_integral_v<P>      ? 'V'
                               : std::is_signed_v<P>         ? 'i'
                                                             : 'u';
// For each parameter its type: pointer, float, structure, signed or unsigned. After a zero, '0' plus the bytes of each.
template <class... P>
const char* tritmark_parameters(void (*)(P...)) {
    static const char text[] = {tritmark_sort<P>..., 0, static_cast<char>('0' + sizeof(P))..., 0};
    return text;
}
