/* Calls of a user's C function with the arguments that it was bound to, by the native clock's signature: no Python
 * between the loop and the function, nor anything that looks at types.
 *
 * The calling conventions of x86-64 (System V) and aarch64 (AAPCS64) put integers and pointers into one row of
 * registers and floating-point numbers into another, each in the order of the arguments, and what finds no register
 * onto the stack in words of 8 bytes. So one signature with all registers reaches every function: one that takes fewer
 * looks at no others. */
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
    tm_run run; /* `bad` is -1 before each call; the function may be given its address */
    void *function;
    int64_t integers[TM_INTEGERS];
    double floats[TM_FLOATS]; /* a narrower number in the low bytes, as registers hold it */
    int64_t words[TM_WORDS];  /* on the stack, in the order of the arguments */
} tm_function_args;

/* The tm_kernel for so many words on the stack, up to TM_WORDS. */
tm_kernel tm_function_kernel(size_t words);

#endif
