/* Calls of a user's C function with bound arguments, by the native clock's signature: no Python and no inspection of
 * types between the loop and the function.
 *
 * The calling conventions of x86-64 (System V) and aarch64 (AAPCS64) put integers and pointers into one sequence of
 * registers and floating-point numbers into another, in the order of the arguments. The rest goes onto the stack in
 * words of 8 bytes. So one signature with all registers reaches every function: one with fewer arguments ignores the
 * others. */
#ifndef TM_FUNCTION_H
#define TM_FUNCTION_H

#include "../isa.h"

#if TM_ARM
enum { TM_INTEGERS = 8 };
#else
enum { TM_INTEGERS = 6 };
#endif
enum { TM_FLOATS = 8, TM_WORDS = 64 };

typedef struct tm_function_args {
    tm_run run; /* `bad` is -1 before each call; the function may get its address */
    void *function;
    int64_t integers[TM_INTEGERS];
    double floats[TM_FLOATS]; /* a narrower number is in the low bytes, as in a register */
    int64_t words[TM_WORDS];  /* on the stack, in the order of the arguments */
} tm_function_args;

/* The tm_kernel for this many words on the stack, up to TM_WORDS. */
tm_kernel tm_function_kernel(size_t words);

#endif
