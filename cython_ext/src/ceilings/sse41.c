/* The probes with SSE4.1: four loads a cache line; dot products as in avx2.c, 16 bytes wide. */
#include "ceilings.h"

#if TM_X86
#include "../intrinsics.h"

TM_BEGIN(sse41)

#define VEC 16
typedef __m128i vec;
typedef uint16_t lane;

static inline vec load(const uint8_t *p) { return _mm_load_si128((const __m128i *)p); }
static inline void store(uint8_t *p, vec v) { _mm_store_si128((__m128i *)p, v); }
static inline void stream(uint8_t *p, vec v) { _mm_stream_si128((__m128i *)p, v); }
static inline void fence(void) { _mm_sfence(); }
static inline vec splat(uint8_t byte) { return _mm_set1_epi8((char)byte); }
static inline vec either(vec a, vec b) { return _mm_xor_si128(a, b); }

static inline uint64_t fold(vec v)
{
    uint64_t word[2] __attribute__((aligned(16)));
    _mm_store_si128((__m128i *)word, v);
    return word[0] ^ word[1];
}

static inline vec dot(vec sum_i16x8, vec a_u8x16, vec b_i8x16)
{
    /* hides its value from the compiler, which must compute the product anew */
    __asm__ volatile("" : "+x"(a_u8x16));
    return _mm_add_epi16(sum_i16x8, _mm_maddubs_epi16(a_u8x16, b_i8x16));
}

#include "loops.h"

int tm_probe_sse41(void *args) { return tm_probe_run(args, bodies, TM_RANK(sse41)); }

TM_END
#endif
