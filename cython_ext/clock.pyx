"""The native clock: times bound calls in a loop in C."""

include "native.pxi"

from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc

cdef extern from "src/clock/clock.h":
    ctypedef struct tm_change:
        char *to
        const char *from_ "from"
        size_t rows
        size_t width
        size_t stride
    int64_t tm_clock_sample(tm_call *const *calls, size_t count, size_t first, int64_t n) nogil
    int64_t tm_clock_sample_around(tm_call *const *calls, size_t count, size_t first, int64_t warm, int64_t n,
                                   int64_t before, const tm_change *changes, size_t change_count) nogil

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

    The addresses of a sequence are gathered at its first sample and kept for the last few sequences, so do not change a
    sequence between its samples. A sample then adds less than a microsecond to the launches.
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
        """Runs `calls` launches in a row, cycling through `launches` from index `first`; returns nanoseconds for all of
        them.

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

    def sample_around(
        self, launches, Py_ssize_t first, int64_t calls, int64_t before, changes, *, int64_t warm=0
    ) -> int:
        """The same after `warm` untimed launches, with `changes` made before timed launch `before` (0 to `calls`). The
        changes are made without Python and are not timed.

        Each change has `to` and `source`, uint8 arrays of the host of the same shape (rows, bytes): `source` is copied
        into `to`. Raises ValueError like `sample`, and for invalid changes, before anything is called.
        """
        cdef _Row row = self.row(launches)
        cdef size_t start = <size_t>(first % <Py_ssize_t>row.count)
        cdef size_t count = len(changes)
        cdef tm_change *made
        cdef const unsigned char[:, ::1] source
        cdef unsigned char[:, :] to
        cdef int64_t taken
        if calls < 1 or warm < 0 or not 0 <= before <= calls:
            raise ValueError(f"calls is {calls}, before {before}, warm {warm}; legal: at least 1, 0 to calls, 0 or more")
        made = <tm_change *>PyMem_Calloc(max(count, 1), sizeof(tm_change))
        if made == NULL:
            raise MemoryError()
        try:
            for index, change in enumerate(changes):
                to, source = change.to, change.source
                if to.shape[0] != source.shape[0] or to.shape[1] != source.shape[1] or to.strides[1] != 1:
                    raise ValueError(f"change {index} copies {change.source.shape} to {change.to.shape}; "
                                     "legal: the same shape, of rows without gaps")
                if not change.source.size:
                    continue
                made[<size_t>index] = tm_change(<char *>&to[0, 0], <const char *>&source[0, 0], <size_t>to.shape[0],
                                                <size_t>to.shape[1], <size_t>to.strides[0])
            with nogil:
                taken = tm_clock_sample_around(row.calls, row.count, start, warm, calls, before, made, count)
        finally:
            PyMem_Free(made)
        return taken
