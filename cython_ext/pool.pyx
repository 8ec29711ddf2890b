"""The pool of threads that all kernels of the process share: src/pool/pool.c."""

from libc.stdint cimport int32_t, uintptr_t
from libc.stdlib cimport free, malloc

cdef extern from "src/pool/pool.h":
    int32_t tm_pool_run(size_t, size_t, size_t, int32_t, void (*)(void *, size_t, size_t) noexcept, void *) nogil
    int32_t tritmark_pool_get_threads()
    void tritmark_pool_set_threads(int32_t most)
    int32_t tm_pool_workers()
    void tm_pool_cores(const int32_t *cores, size_t count)


def address() -> int:
    """Of the function that shares a call out, for the other extension modules."""
    return <uintptr_t>&tm_pool_run


def workers() -> int:
    """Threads that the pool has made, the callers not counted: none before the first call that is shared."""
    return tm_pool_workers()


def threads() -> int:
    """The most threads that a call may have, its caller counted, be more asked for."""
    return tritmark_pool_get_threads()


def set_threads(int most) -> None:
    """Set the same, at least 1. A call has never more than there are cores that its thread may use."""
    tritmark_pool_set_threads(most)


def set_cores(cores) -> None:
    """The cores that calls may use, whatever the calling thread may, for processes whose threads OpenMP binds. None:
    those that the calling thread may use."""
    told = [] if cores is None else sorted(cores)
    cdef int32_t *numbers = <int32_t *>malloc(max(1, len(told)) * sizeof(int32_t))
    if numbers == NULL:
        raise MemoryError()
    for index, core in enumerate(told):
        numbers[<size_t>index] = core
    tm_pool_cores(numbers, len(told))
    free(numbers)
