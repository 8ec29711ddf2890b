"""Boundary of processes that find fewer features of their processor: src/masking/masking.c. Loads no pool of threads.
Raises OSError with the errno."""

import os

cdef extern from "src/masking/masking.h":
    ctypedef struct tm_bit:
        size_t step
        const char *name
        int here
    const char *tm_step_name(size_t index)
    tm_bit tm_bit_at(size_t index)
    int tm_masking_missing()
    int tm_masking_begin(size_t step, int trapping)
    enum: TM_STAND_IN
    enum: TM_STAND_IN_2

CPUID = b"\x0f\xa2"
STAND_IN = bytes((TM_STAND_IN, TM_STAND_IN_2))
"""The bytes that replace CPUID in changed code."""


def steps() -> dict[str, list[tuple[str, bool]]]:
    """The steps in falling order, each with its features: their names in /proc/cpuinfo ("" for none), and whether the
    processor has them. Empty on other architectures than x86-64."""
    cdef size_t index = 0
    cdef tm_bit each = tm_bit_at(0)
    names, found = [], {}
    while tm_step_name(index) != NULL:
        names.append(tm_step_name(index).decode())
        index += 1
    index = 0
    while each.name != NULL:
        found.setdefault(names[each.step], []).append((each.name.decode(), each.here != 0))
        index += 1
        each = tm_bit_at(index)
    return {name: found.get(name, []) for name in names} if found else {}


cdef int told(int number) except -1:
    if number:
        raise OSError(number, os.strerror(number))
    return 0


def possible() -> None:
    """Raises OSError if CPUID cannot trap here. Changes nothing."""
    told(tm_masking_missing())


def begin(str step, bint trapping) -> None:
    """Hides the steps above this one from this thread and those that it starts, by having CPUID trap or by its
    replacement. Permanent."""
    cdef size_t index = 0
    wanted = step.encode()
    while tm_step_name(index) != NULL:
        if tm_step_name(index) == wanted:
            told(tm_masking_begin(index, trapping))
            return
        index += 1
    raise ValueError(f"step is {step!r}; legal: {', '.join(steps())}")
