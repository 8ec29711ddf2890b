/* A process that finds fewer features of its processor than there are. */
#ifndef TM_MASKING_H
#define TM_MASKING_H

#include <stddef.h>

/* The name of the index-th step, in falling order, or NULL past the last one. */
const char *tm_step_name(size_t index);

/* One bit of a feature: its step's place, its name in /proc/cpuinfo ("" for none), and whether the processor has it. */
typedef struct tm_bit {
    size_t step;
    const char *name; /* NULL past the last one */
    int here;
} tm_bit;
tm_bit tm_bit_at(size_t index);

/* 0 where this thread can have CPUID trap, or the system's number of why not. Changes nothing. */
int tm_masking_missing(void);

/* What stands in place of CPUID's two bytes (0f a2) in code that was changed because CPUID does not trap: its first is no
 * instruction of x86-64. */
enum { TM_STAND_IN = 0x06, TM_STAND_IN_2 = 0xa2 };

/* Have this thread, and those that it starts, find none of the steps above the one of that place: by the instruction
 * CPUID, wherever it stands if it traps here, and by what stands in for it, and by what the C library was asked for when the process began (getauxval,
 * __x86_get_cpuid_feature_leaf). For good, and once only. `trapping`: by having CPUID trap. 0, or the system's number of why
 * not. */
int tm_masking_begin(size_t step, int trapping);

#endif
