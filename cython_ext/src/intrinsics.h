/* The compiler's intrinsics, for files of vector code alone: GCC takes 0.4 s for those of x86, several times what it
 * takes for a file in plain C. setup.py has this header compiled once for all of them. */
#ifndef TM_INTRINSICS_H
#define TM_INTRINSICS_H

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#endif
