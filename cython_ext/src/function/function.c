#include "function.h"

#define FLOATS_OF(a) \
    (a)->floats[0], (a)->floats[1], (a)->floats[2], (a)->floats[3], (a)->floats[4], (a)->floats[5], (a)->floats[6], \
        (a)->floats[7]
#if TM_ARM
#define INTEGER_TYPES int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t
#define INTEGERS_OF(a) \
    (a)->integers[0], (a)->integers[1], (a)->integers[2], (a)->integers[3], (a)->integers[4], (a)->integers[5], \
        (a)->integers[6], (a)->integers[7]
#else
#define INTEGER_TYPES int64_t, int64_t, int64_t, int64_t, int64_t, int64_t
#define INTEGERS_OF(a) \
    (a)->integers[0], (a)->integers[1], (a)->integers[2], (a)->integers[3], (a)->integers[4], (a)->integers[5]
#endif
#define FLOAT_TYPES double, double, double, double, double, double, double, double

#define TYPES_8 int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t
#define TYPES_64 TYPES_8, TYPES_8, TYPES_8, TYPES_8, TYPES_8, TYPES_8, TYPES_8, TYPES_8
#define WORDS_8(w) (w)[0], (w)[1], (w)[2], (w)[3], (w)[4], (w)[5], (w)[6], (w)[7]
#define WORDS_64(w) \
    WORDS_8(w), WORDS_8((w) + 8), WORDS_8((w) + 16), WORDS_8((w) + 24), WORDS_8((w) + 32), WORDS_8((w) + 40), \
        WORDS_8((w) + 48), WORDS_8((w) + 56)

/* clang's -fsanitize=function compares the function's type with the caller's, which differs on purpose. */
#if defined(__clang__)
#define ANY_TYPE __attribute__((no_sanitize("function")))
#else
#define ANY_TYPE
#endif

static int finished(tm_function_args *a)
{
    a->run.used = a->run.threads;
    return tm_finish(&a->run, 0);
}

ANY_TYPE static int no_words(void *args)
{
    tm_function_args *a = args;
    a->run.bad = -1;
    ((void (*)(INTEGER_TYPES, FLOAT_TYPES))a->function)(INTEGERS_OF(a), FLOATS_OF(a));
    return finished(a);
}

ANY_TYPE static int words_8(void *args)
{
    tm_function_args *a = args;
    a->run.bad = -1;
    ((void (*)(INTEGER_TYPES, FLOAT_TYPES, TYPES_8))a->function)(INTEGERS_OF(a), FLOATS_OF(a), WORDS_8(a->words));
    return finished(a);
}

ANY_TYPE static int words_64(void *args)
{
    tm_function_args *a = args;
    a->run.bad = -1;
    ((void (*)(INTEGER_TYPES, FLOAT_TYPES, TYPES_64))a->function)(INTEGERS_OF(a), FLOATS_OF(a), WORDS_64(a->words));
    return finished(a);
}

tm_kernel tm_function_kernel(size_t words) { return words == 0 ? no_words : words <= 8 ? words_8 : words_64; }
