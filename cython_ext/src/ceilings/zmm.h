/* The probes' registers and memory operations with 64-byte vectors, and vpdpbusd, for the target brackets of AVX-512
 * and AMX. */
#define VEC 64
typedef __m512i vec;
typedef uint32_t lane;

static inline vec load(const uint8_t *p) { return _mm512_load_si512(p); }
static inline void store(uint8_t *p, vec v) { _mm512_store_si512(p, v); }
static inline void stream(uint8_t *p, vec v) { _mm512_stream_si512((void *)p, v); }
static inline void fence(void) { _mm_sfence(); }
static inline vec splat(uint8_t byte) { return _mm512_set1_epi8((char)byte); }
static inline vec either(vec a, vec b) { return _mm512_xor_si512(a, b); }

static inline uint64_t fold(vec v)
{
    uint64_t word[8] __attribute__((aligned(64)));
    _mm512_store_si512(word, v);
    return word[0] ^ word[1] ^ word[2] ^ word[3] ^ word[4] ^ word[5] ^ word[6] ^ word[7];
}

/* With the intrinsic GCC 12 adds two moves each time, which would hide the second port of Intel's servers. */
static inline vec dot(vec sum_i32x16, vec a_u8x64, vec b_i8x64)
{
    __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(sum_i32x16) : "v"(a_u8x64), "v"(b_i8x64));
    return sum_i32x16;
}
