/* What the processor and its operating system support, and the sizes of its caches. */
#ifndef TM_CPU_H
#define TM_CPU_H

#include "../isas.h"

#include <stddef.h>

/* The index-th kernel of isas.h: its op and its instruction set; `op` is NULL past the last one. */
typedef struct tm_listed {
    const char *op;
    tm_isa isa;
} tm_listed;
tm_listed tm_listed_at(size_t index);

/* The name of the index-th checked feature, or NULL past the last one. */
const char *tm_feature_name(size_t index);

/* 1 if the processor has the feature and the operating system saves its registers, else 0. */
int tm_feature_here(size_t index);

/* Bytes of the data cache of that level (1, 2 or 3) from the C library; 0 if unknown. */
long tm_cache_bytes(int level);

/* Name and version of the compiler that built this. */
const char *tm_compiler(void);

#endif
