"""The native clock: times bound calls in a loop in C."""

include "native.pxi"

from cpython.mem cimport PyMem_Free, PyMem_Malloc

cdef extern from "src/clock/clock.h":
    int64_t tm_clock_sample(tm_call *const *calls, size_t count, size_t first, int64_t n) nogil

cdef enum:
    KEPT = 4


cdef class _Row:
    """The addresses of a sequence of launches, gathered once; keeps the launches alive as long as itself."""

    cdef object source
    cdef tuple launches
    cdef tm_call **calls
    cdef size_t count

    def __cinit__(self, source):
        self.source = source
        self.launches = tuple(source)
        self.count = len(self.launches)
        if not self.count:
            raise ValueError("no launches to time")
        self.calls = <tm_call **>PyMem_Malloc(self.count * sizeof(tm_call *))
        if self.calls == NULL:
            raise MemoryError()
        for index, launch in enumerate(self.launches):
            pointer = launch.pointer
            if pointer is None:
                raise ValueError(f"launch {index} has no native call to time")
            self.calls[<size_t>index] = <tm_call *><uintptr_t>pointer

    def __dealloc__(self):
        PyMem_Free(self.calls)


cdef class NativeClock:
    """Times launches in a C loop without the GIL, by CLOCK_MONOTONIC_RAW.

    The addresses of a sequence are gathered at its first sample and kept for the last few sequences: leave a sequence
    as it is between its samples. A sample then costs well under a microsecond beside the launches themselves.
    """

    cdef list rows

    def __init__(self):
        self.rows = []

    @property
    def name(self) -> str:
        return "native loop"

    cdef _Row row(self, launches):
        cdef _Row row
        for row in self.rows:
            if row.source is launches:
                return row
        row = _Row(launches)
        self.rows.insert(0, row)
        del self.rows[KEPT:]
        return row

    def sample(self, launches, Py_ssize_t first, int64_t calls) -> int:
        """Run `calls` launches in a row, cycling through `launches` from index `first`; nanoseconds for all of them.

        Raises ValueError for no launches, a launch without a native call, or less than one call.
        """
        cdef _Row row = self.row(launches)
        cdef size_t start = <size_t>(first % <Py_ssize_t>row.count)
        cdef int64_t taken
        if calls < 1:
            raise ValueError(f"calls is {calls}; legal: at least 1")
        with nogil:
            taken = tm_clock_sample(row.calls, row.count, start, calls)
        return taken
