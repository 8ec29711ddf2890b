/* What the processor and its operating system support, and the sizes of its caches. */
#ifndef TM_CPU_H
#define TM_CPU_H

#include "../isas.h"

#include <stddef.h>

/* The index-th kernel of isas.h, by its op and its set; `op` is NULL past the last one. */
typedef struct tm_listed {
    const char *op;
    tm_isa isa;
} tm_listed;
tm_listed tm_listed_at(size_t index);

/* The name of the index-th feature that is looked for, or NULL past the last one. */
const char *tm_feature_name(size_t index);

/* 1 where the processor has the feature and the operating system saves its registers; 0 elsewhere. */
int tm_feature_here(size_t index);

/* Bytes of the data cache of that level (1, 2 or 3) as the C library knows it; 0 where it does not tell. */
long tm_cache_bytes(int level);

/* Name and version of the compiler that built this. */
const char *tm_compiler(void);

#endif
