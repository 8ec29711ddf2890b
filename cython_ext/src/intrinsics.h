/* The compiler's intrinsics, for files of vector code only: those of x86 take GCC 0.4 s, several times a file in plain
 * C. setup.py precompiles this header once for all of them. */
#ifndef TM_INTRINSICS_H
#define TM_INTRINSICS_H

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#endif
