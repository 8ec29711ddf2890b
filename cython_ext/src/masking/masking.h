/* A process that finds fewer features of its processor than exist. */
#ifndef TM_MASKING_H
#define TM_MASKING_H

#include <stddef.h>

/* The name of the index-th step, in falling order, or NULL past the last one. */
const char *tm_step_name(size_t index);

/* One bit of a feature: the index of its step, its name in /proc/cpuinfo ("" for none), and whether the processor has
 * it. */
typedef struct tm_bit {
    size_t step;
    const char *name; /* NULL past the last one */
    int here;
} tm_bit;
tm_bit tm_bit_at(size_t index);

/* 0 if CPUID can trap in this thread, or the errno otherwise. Changes nothing. */
int tm_masking_missing(void);

/* What replaces CPUID's two bytes (0f a2) in code that is changed because CPUID does not trap: its first byte is no
 * instruction of x86-64. */
enum { TM_STAND_IN = 0x06, TM_STAND_IN_2 = 0xa2 };

/* Hides the steps above the given one from this thread and those that it starts: for the instruction CPUID anywhere, if
 * it traps; for its replacement; and for what the C library queried when the process began (getauxval,
 * __x86_get_cpuid_feature_leaf). Permanent, and only once. `trapping`: by having CPUID trap. Returns 0, or the
 * errno. */
int tm_masking_begin(size_t step, int trapping);

#endif
