/* The probes' loops, written once over what an instruction set's file defines before it includes this inside its target
 * brackets:
 *
 *   vec, load(p), store(p, v), stream(p, v), fence()   a register of VEC bytes (16, 32 or 64) and its aligned memory
 *                                                      operations
 *   splat(byte), either(a, b), fold(v)                 fill, exclusive or, exclusive or of the 8-byte words
 *   dot(acc, a, b)                                     dot products of bytes added to lanes, hidden from the compiler,
 *                                                      which must not merge equal ones or move them out of the loop
 *   lane                                               the unsigned type of an accumulator's lanes
 *
 * If an instruction does several dot products of the same bytes, also the macro DOTS_AT_ONCE and:
 *   AT_ONCE, dots_at_once(left, right, rounds)         how many of 64 bytes, and the sum of that many each round */
#include <string.h>

enum {
    PER_LINE = 64 / VEC,
    ACCUMULATORS = 8,
    LINES = ACCUMULATORS / PER_LINE, /* cache lines a step */
    STEP = 64 * LINES,
    /* independent sums: vpdpbusd takes 4 or 5 cycles, and two may start in each; the other instructions take 1 */
    CHAINS = sizeof(lane) == 4 ? 12 : 8,
};

#define UNROLL TM_PRAGMA(GCC unroll 16)

typedef struct sums {
    vec of[ACCUMULATORS];
} sums;

static inline __attribute__((always_inline)) void start(sums *s)
{
    UNROLL
    for (int i = 0; i < ACCUMULATORS; i++)
        s->of[i] = splat(0);
}

static inline uint64_t finish(const sums *s)
{
    vec all = s->of[0];
    for (int i = 1; i < ACCUMULATORS; i++)
        all = either(all, s->of[i]);
    return fold(all);
}

/* One step of STEP bytes. `ahead` is the prefetch distance, 0 for none, into L2 or (`near`) past the outer caches. */
static inline __attribute__((always_inline)) void step(sums *s, const uint8_t *p, size_t ahead, int near)
{
    UNROLL
    for (int line = 0; line < LINES; line++) {
        if (ahead && near)
            __builtin_prefetch(p + 64 * line + ahead, 0, 0);
        else if (ahead)
            __builtin_prefetch(p + 64 * line + ahead, 0, 2);
        UNROLL
        for (int v = 0; v < PER_LINE; v++) {
            int i = line * PER_LINE + v;
            s->of[i] = either(s->of[i], load(p + i * VEC));
        }
    }
}

/* The end of a range: less than a step. */
static uint64_t tail(const uint8_t *p, size_t n)
{
    uint64_t all = 0, word;
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&word, p, 8);
        all ^= word;
    }
    if (n) {
        word = 0;
        memcpy(&word, p, n);
        all ^= word;
    }
    return all;
}

static inline __attribute__((always_inline)) uint64_t read_range(const uint8_t *p, size_t n, size_t ahead, int near)
{
    sums s;
    size_t i = 0;
    start(&s);
    for (; i + STEP + ahead <= n; i += STEP)
        step(&s, p + i, ahead, near);
    for (; i + STEP <= n; i += STEP)
        step(&s, p + i, 0, 0);
    return finish(&s) ^ tail(p + i, n - i);
}

static void read_plain(void *args, size_t begin, size_t end)
{
    tm_probe_args *a = args;
    tm_probe_add(a, read_range(a->data + begin, end - begin, 0, 0));
}

static void read_ahead(void *args, size_t begin, size_t end)
{
    tm_probe_args *a = args;
    tm_probe_add(a, read_range(a->data + begin, end - begin, TM_AHEAD, 0));
}

static void read_nta(void *args, size_t begin, size_t end)
{
    tm_probe_args *a = args;
    tm_probe_add(a, read_range(a->data + begin, end - begin, TM_NTA_AHEAD, 1));
}

/* Two lines of each stream a step. */
static inline __attribute__((always_inline)) void streams_step(sums *s, const uint8_t *p, size_t piece, size_t ahead)
{
    UNROLL
    for (int stream = 0; stream < TM_STREAMS; stream++) {
        const uint8_t *q = p + (size_t)stream * piece;
        UNROLL
        for (int line = 0; line < 2; line++) {
            if (ahead)
                __builtin_prefetch(q + 64 * line + ahead, 0, 2);
            UNROLL
            for (int v = 0; v < PER_LINE; v++) {
                int i = (stream * 2 + line) * PER_LINE + v;
                s->of[i % ACCUMULATORS] = either(s->of[i % ACCUMULATORS], load(q + 64 * line + v * VEC));
            }
        }
    }
}

static void read_streams(void *args, size_t begin, size_t end)
{
    tm_probe_args *a = args;
    const uint8_t *p = a->data + begin;
    size_t n = end - begin, piece = n / TM_STREAMS / 128 * 128, i = 0;
    sums s;
    start(&s);
    for (; i + 128 + TM_STREAM_AHEAD <= piece; i += 128)
        streams_step(&s, p + i, piece, TM_STREAM_AHEAD);
    for (; i < piece; i += 128)
        streams_step(&s, p + i, piece, 0);
    tm_probe_add(a, finish(&s) ^ read_range(p + TM_STREAMS * piece, n - TM_STREAMS * piece, 0, 0));
}

#define WRITE(name, put) \
    static void name(void *args, size_t begin, size_t end) \
    { \
        tm_probe_args *a = args; \
        const vec v = splat(tm_probe_fill(a)); \
        size_t i = begin; \
        for (; i + STEP <= end; i += STEP) { \
            UNROLL \
            for (int k = 0; k < STEP; k += VEC) \
                put(a->data + i + k, v); \
        } \
        for (; i < end; i++) \
            a->data[i] = tm_probe_fill(a); \
        fence(); \
    }
WRITE(write_plain, store)
WRITE(write_around, stream)

static void write_around_streams(void *args, size_t begin, size_t end)
{
    tm_probe_args *a = args;
    const vec v = splat(tm_probe_fill(a));
    size_t piece = (end - begin) / TM_STREAMS / 128 * 128, i = 0;
    for (; i < piece; i += 128) {
        UNROLL
        for (int part = 0; part < TM_STREAMS; part++) {
            UNROLL
            for (int k = 0; k < 128; k += VEC)
                stream(a->data + begin + (size_t)part * piece + i + k, v);
        }
    }
    for (i = begin + TM_STREAMS * piece; i < end; i++)
        a->data[i] = tm_probe_fill(a);
    fence();
}

static void write_string(void *args, size_t begin, size_t end)
{
    tm_probe_args *a = args;
#if TM_X86
    void *to = a->data + begin;
    size_t n = end - begin;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(tm_probe_fill(a)) : "memory");
#else
    memset(a->data + begin, tm_probe_fill(a), end - begin);
#endif
}

#define COPY(name, put) \
    static void name(void *args, size_t begin, size_t end) \
    { \
        tm_probe_args *a = args; \
        uint8_t *to = a->data + a->nbytes / 2; \
        size_t i = begin; \
        for (; i + STEP <= end; i += STEP) { \
            UNROLL \
            for (int k = 0; k < STEP; k += VEC) \
                put(to + i + k, load(a->data + i + k)); \
        } \
        for (; i < end; i += 64) \
            for (int k = 0; k < 64; k += VEC) \
                put(to + i + k, load(a->data + i + k)); \
        fence(); \
    }
COPY(copy_plain, store)
COPY(copy_around, stream)

/* TM_DOTS dot products of 64 bytes for each byte of the range, divided evenly among the chains; the first takes the
 * rest. */
static void compute(void *args, size_t begin, size_t end)
{
    tm_probe_args *a = args;
    uint8_t left_bytes[64] __attribute__((aligned(64)));
    uint8_t right_bytes[64] __attribute__((aligned(64)));
    for (int i = 0; i < 64; i++) {
        left_bytes[i] = a->data[i] & 127;
        right_bytes[i] = (uint8_t)(i + 1);
    }
    vec left[PER_LINE], right[PER_LINE], chain[CHAINS];
    for (int v = 0; v < PER_LINE; v++) {
        left[v] = load(left_bytes + v * VEC);
        right[v] = load(right_bytes + v * VEC);
    }
    UNROLL
    for (int c = 0; c < CHAINS; c++)
        chain[c] = splat(0);
    size_t dots = (end - begin) * TM_DOTS;
    uint64_t sum = 0;
#ifdef DOTS_AT_ONCE
    sum = dots_at_once(left_bytes, right_bytes, dots / AT_ONCE);
    dots %= AT_ONCE;
#endif
    for (size_t rest = dots % CHAINS; rest; rest--)
        for (int v = 0; v < PER_LINE; v++)
            chain[0] = dot(chain[0], left[v], right[v]);
    for (size_t rounds = dots / CHAINS; rounds; rounds--) {
        UNROLL
        for (int v = 0; v < PER_LINE; v++) {
            UNROLL
            for (int c = 0; c < CHAINS; c++)
                chain[c] = dot(chain[c], left[v], right[v]);
        }
    }
    lane lanes[VEC / sizeof(lane)] __attribute__((aligned(64)));
    for (int c = 0; c < CHAINS; c++) {
        store((uint8_t *)lanes, chain[c]);
        for (size_t i = 0; i < VEC / sizeof(lane); i++)
            sum += lanes[i];
    }
    tm_probe_add(a, sum);
}

static const tm_body bodies[TM_PROBES] = {
    [TM_READ] = read_plain,
    [TM_READ_AHEAD] = read_ahead,
    [TM_READ_STREAMS] = read_streams,
    [TM_READ_NTA] = read_nta,
    [TM_WRITE] = write_plain,
    [TM_WRITE_AROUND] = write_around,
    [TM_WRITE_AROUND_STREAMS] = write_around_streams,
    [TM_WRITE_STRING] = write_string,
    [TM_COPY] = copy_plain,
    [TM_COPY_AROUND] = copy_around,
    [TM_COMPUTE] = compute,
};
