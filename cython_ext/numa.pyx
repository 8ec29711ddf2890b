"""Boundary of the placement of pages on a NUMA machine: src/numa/numa.c. Raises OSError with the errno."""

import os

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

cdef extern from "src/numa/numa.h":
    enum: TM_NUMA_PREFER
    enum: TM_NUMA_INTERLEAVE
    enum: TM_NUMA_MOST
    int tm_numa_bind(void *begin, size_t nbytes, int policy, const int32_t *nodes, size_t count) nogil
    int tm_numa_pages(const void *begin, size_t nbytes, int64_t *counts, int64_t *absent) nogil
    int tm_numa_policy(int *policy) nogil


cdef int told(int number) except -1:
    if number:
        raise OSError(number, os.strerror(number))
    return 0


def bind(uint8_t[::1] memory, tuple nodes) -> None:
    """Places the pages of `memory`, which is page-aligned, on one node, or interleaved on several."""
    cdef size_t count = len(nodes), nbytes = memory.shape[0]
    cdef int32_t *numbers = <int32_t *>malloc(max(1, count) * sizeof(int32_t))
    cdef int status, policy = TM_NUMA_PREFER if count == 1 else TM_NUMA_INTERLEAVE
    if numbers == NULL:
        raise MemoryError()
    try:
        for index in range(len(nodes)):
            numbers[<size_t>index] = nodes[index]
        with nogil:
            status = tm_numa_bind(&memory[0], nbytes, policy, numbers, count)
    finally:
        free(numbers)
    told(status)


def pages(const uint8_t[::1] memory) -> tuple[dict[int, int], int]:
    """Pages of `memory` by node, and how many of them were never touched."""
    cdef int64_t counts[TM_NUMA_MOST]
    cdef int64_t absent
    cdef size_t nbytes = memory.shape[0]
    cdef int status
    with nogil:
        status = tm_numa_pages(&memory[0], nbytes, counts, &absent)
    told(status)
    return {node: counts[node] for node in range(TM_NUMA_MOST) if counts[node]}, absent


def policy() -> int:
    """The policy of the calling thread as Linux's number; 0: each page goes to the node that touches it first."""
    cdef int found = 0
    told(tm_numa_policy(&found))
    return found
