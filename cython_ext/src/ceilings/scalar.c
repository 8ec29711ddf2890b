/* The probes in plain C, over vectors that the compiler lowers to what the base architecture has (SSE2, NEON). No store
 * around the caches. */
#include "ceilings.h"

#include <string.h>

#define VEC 16
typedef uint64_t vec __attribute__((vector_size(16)));
typedef uint16_t lane;
#if TM_X86
#define IN_REGISTER "+x"
#elif defined(__aarch64__)
#define IN_REGISTER "+w"
#else
#define IN_REGISTER "+m"
#endif

typedef uint16_t u16x8 __attribute__((vector_size(16)));

static inline vec load(const uint8_t *p) { return *(const vec *)p; }
static inline void store(uint8_t *p, vec v) { *(vec *)p = v; }
static inline void stream(uint8_t *p, vec v) { store(p, v); }
static inline void fence(void) {}
static inline vec splat(uint8_t byte) { return (vec){} + byte * 0x0101010101010101u; }
static inline vec either(vec a, vec b) { return a ^ b; }

/* The even and the odd bytes as 16-bit lanes, multiplied and added; every byte is under 128. */
static inline vec dot(vec sum_u16x8, vec a_u8x16, vec b_u8x16)
{
    __asm__ volatile("" : IN_REGISTER(a_u8x16)); /* as in sse41.c */
    u16x8 a = (u16x8)a_u8x16, b = (u16x8)b_u8x16;
    return (vec)((u16x8)sum_u16x8 + (a & 255) * (b & 255) + (a >> 8) * (b >> 8));
}

static inline uint64_t fold(vec v) { return v[0] ^ v[1]; }

#include "loops.h"

int tm_probe_scalar(void *args) { return tm_probe_run(args, bodies, TM_RANK(scalar)); }

TM_TABLE(probe);
