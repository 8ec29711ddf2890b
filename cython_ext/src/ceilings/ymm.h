/* The probes' registers and memory operations with 32-byte vectors, for the target brackets of AVX2 and AVX-VNNI. */
#define VEC 32
typedef __m256i vec;

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
