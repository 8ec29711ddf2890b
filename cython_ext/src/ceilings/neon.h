/* The probes' registers and memory operations with NEON, for the target brackets of its instruction sets. No intrinsic
 * stores around the caches. */
#define VEC 16
typedef uint8x16_t vec;

static inline vec load(const uint8_t *p) { return vld1q_u8(p); }
static inline void store(uint8_t *p, vec v) { vst1q_u8(p, v); }
static inline void stream(uint8_t *p, vec v) { store(p, v); }
static inline void fence(void) {}
static inline vec splat(uint8_t byte) { return vdupq_n_u8(byte); }
static inline vec either(vec a, vec b) { return veorq_u8(a, b); }

static inline uint64_t fold(vec v)
{
    const uint64x2_t words = vreinterpretq_u64_u8(v);
    return vgetq_lane_u64(words, 0) ^ vgetq_lane_u64(words, 1);
}
