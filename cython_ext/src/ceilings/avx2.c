/* The probes with AVX2: two loads a cache line; dot products by maddubs into 16-bit lanes that wrap. */
#include "ceilings.h"

#if TM_X86
TM_BEGIN(avx2)

#define VEC 32
typedef __m256i vec;
typedef uint16_t lane;

static inline vec load(const uint8_t *p) { return _mm256_load_si256((const __m256i *)p); }
static inline void store(uint8_t *p, vec v) { _mm256_store_si256((__m256i *)p, v); }
static inline void stream(uint8_t *p, vec v) { _mm256_stream_si256((__m256i *)p, v); }
static inline void fence(void) { _mm_sfence(); }
static inline vec splat(uint8_t byte) { return _mm256_set1_epi8((char)byte); }
static inline vec either(vec a, vec b) { return _mm256_xor_si256(a, b); }

static inline uint64_t fold(vec v)
{
    uint64_t word[4] __attribute__((aligned(32)));
    _mm256_store_si256((__m256i *)word, v);
    return word[0] ^ word[1] ^ word[2] ^ word[3];
}

static inline vec dot(vec sum_i16x16, vec a_u8x32, vec b_i8x32)
{
    vec pairs_i16x16;
    __asm__ volatile("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sum_i16x16), "=&x"(pairs_i16x16) : "x"(a_u8x32), "x"(b_i8x32));
    return sum_i16x16;
}

#include "loops.h"

int tm_probe_avx2(void *args) { return tm_probe_run(args, bodies, TM_RANK(avx2)); }

TM_END
#endif
