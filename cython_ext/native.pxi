# Included by every boundary: the C side of isa.h, the pool of threads, and the base of its bound calls.
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint16_t, uintptr_t
from libc.string cimport strcmp

from tritmark.cython_ext import pool

cdef extern from *:
    """
    #include "src/parallel.h"
    tm_pool tm_shared_pool;
    """
    ctypedef void *tm_pool
    tm_pool tm_shared_pool

tm_shared_pool = <tm_pool><uintptr_t>pool.address()

cdef extern from "src/isa.h":
    ctypedef int (*tm_kernel)(void *args) noexcept nogil
    ctypedef struct tm_run:
        int32_t ran
        int32_t threads
        int32_t used
        int64_t runs
        int64_t bad
    ctypedef struct tm_call:
        tm_kernel fn
        void *args
    ctypedef struct tm_isa:
        const char *name
        int32_t rank
    ctypedef struct tm_entry:
        tm_isa isa
        tm_kernel fn


cdef class NativeCall:
    """A kernel bound to its arguments; a subclass fills in `call` and keeps the arrays alive in `owners`."""

    cdef tm_call call
    cdef const tm_entry *table
    cdef object owners

    cdef int bind(self, const tm_entry *table, str isa, void *args, int threads, object owners) except -1:
        cdef tm_run *run = <tm_run *>args
        cdef const tm_entry *entry = table
        cdef bytes name = isa.encode()
        while entry.fn != NULL and strcmp(entry.isa.name, name):
            entry += 1
        if entry.fn == NULL:
            raise ValueError(f"no kernel for {isa} is compiled in")
        self.table = table
        self.call.fn = entry.fn
        self.call.args = args
        self.owners = owners
        run.ran = -1
        run.threads = threads
        run.bad = -1
        return 0

    def run(self) -> None:
        """Run once, without the GIL."""
        with nogil:
            self.call.fn(self.call.args)

    @property
    def ran(self) -> str:
        """The instruction set whose code ran last, written by that code; "" before the first run."""
        cdef tm_run *run = <tm_run *>self.call.args
        cdef const tm_entry *entry = self.table
        while entry.fn != NULL and entry.isa.rank != run.ran:
            entry += 1
        return entry.isa.name.decode() if entry.fn != NULL else ""

    @property
    def runs(self) -> int:
        return (<tm_run *>self.call.args).runs

    @property
    def threads_used(self) -> int:
        return (<tm_run *>self.call.args).used

    @property
    def bad(self) -> int:
        """Index of the first input element that the contract forbids, or -1."""
        return (<tm_run *>self.call.args).bad

    @property
    def pointer(self) -> int:
        """Address of the call, for the native clock."""
        return <uintptr_t>&self.call
