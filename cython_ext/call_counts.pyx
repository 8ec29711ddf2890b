"""Counts and times calls for a monitor (harness/monitor/hook.py), in about a tenth of the time that Python needs.

Each thread has its own counts, found through a thread-local pointer, so that a call takes no lock. Only the thread
writes them; others read copies under the GIL.
"""

from cpython.object cimport PyObject_Call
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <time.h>
    static _Thread_local uint64_t tm_recorder;  /* the number of the Recorder that tm_counts belongs to */
    static _Thread_local PyObject *tm_counts;   /* borrowed: the Recorder keeps it */
    static inline int64_t tm_now(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
    }
    """
    uint64_t tm_recorder
    PyObject *tm_counts
    int64_t tm_now() noexcept nogil
    int __builtin_clzll(unsigned long long) noexcept nogil

cdef enum:
    BITS = 5  # as in harness/monitor/histogram.py
    BUCKETS = 1280  # up to 2^44 ns, which is 4.9 hours

cdef uint64_t _recorders = 0


cdef class Cell:
    """Counts of one entry with one kernel, in one thread."""

    cdef readonly int64_t calls
    cdef readonly double busy_ns  # of all calls, estimated from the timed ones
    cdef readonly dict errors
    cdef uint64_t buckets[BUCKETS]

    def __init__(self):
        self.errors = {}

    def histogram(self) -> dict:
        """Number of a bucket to count, of those that are not empty."""
        return {number: self.buckets[number] for number in range(BUCKETS) if self.buckets[number]}


cdef class ThreadCounts:
    """The counts of one thread. `cells` has a Cell for each pair of entry and KernelRan."""

    cdef readonly dict cells
    cdef public object owner
    cdef public object folded
    cdef object ran
    cdef bint inside
    cdef int64_t begun
    cdef uint32_t skip
    cdef uint32_t weight  # calls for which the next timed one stands
    cdef object last_entry  # of the cell that was counted last: most programs repeat a call
    cdef object last_ran
    cdef Cell last

    def __init__(self):
        self.cells, self.weight = {}, 1

    def taken(self) -> dict:
        """The cells, which the thread then counts anew. Call it from that thread."""
        found, self.cells = self.cells, {}
        self.last = None
        return found


cdef class Recorder:
    """See harness.monitor.hook.Watcher. `begun(counts)` is called in each thread at its first call, `full(counts)` when
    a thread has `most` cells; it may take them. `none` and `unknown` are the kernels of calls that chose none, and
    that reported none."""

    cdef uint64_t number
    cdef uint64_t state
    cdef uint32_t every_
    cdef Py_ssize_t most
    cdef object begun
    cdef object full
    cdef object none
    cdef object unknown

    def __init__(self, begun, full, Py_ssize_t most, none, unknown):
        global _recorders
        _recorders += 1
        self.number, self.state, self.every_ = _recorders, 88172645463325252, 1
        self.begun, self.full, self.most, self.none, self.unknown = begun, full, most, none, unknown

    @property
    def every(self) -> int:
        """One of so many calls is timed, at random. All are counted."""
        return self.every_

    @every.setter
    def every(self, uint32_t value):
        self.every_ = max(1, value)

    cpdef object begin(self):
        """See Watcher."""
        global tm_recorder, tm_counts
        cdef ThreadCounts mine
        if tm_recorder != self.number:
            mine = ThreadCounts()
            self.begun(mine)
            tm_recorder, tm_counts = self.number, <PyObject *>mine
        mine = <ThreadCounts>tm_counts
        if mine.inside:
            return None
        mine.begun = 0 if mine.skip else tm_now()
        return mine

    def call(self, ThreadCounts mine, entry, function, tuple args, kwargs, ran=None):
        """See Watcher."""
        cdef Cell cell
        cdef int64_t begun = mine.begun, ns = 0
        mine.inside, mine.ran = True, ran
        try:
            made = PyObject_Call(function, args, kwargs) if kwargs is not None else function(*args)
            if begun:
                ns = tm_now() - begun
        except BaseException as error:
            mine.inside = False
            cell = self.cell(mine, entry, self.none if mine.ran is None else mine.ran)
            name = type(error).__name__
            cell.errors[name] = cell.errors.get(name, 0) + 1
            raise
        mine.inside = False
        ran = mine.ran
        self.count(mine, entry, self.unknown if ran is None else ran, ns)
        return made

    def end(self, ThreadCounts mine, entry, ran) -> None:
        """See Watcher."""
        self.count(mine, entry, self.unknown if ran is None else ran, tm_now() - mine.begun if mine.begun else 0)

    cdef int count(self, ThreadCounts mine, object entry, object ran, int64_t ns) except -1:
        """Count a call that took `ns`; 0 if it was not timed."""
        cdef Cell cell = self.cell(mine, entry, ran)
        cdef int number, shift
        cell.calls += 1
        if ns <= 0:
            mine.skip -= mine.skip > 0
        elif not ran.simulated:
            cell.busy_ns += <double>ns * mine.weight
            mine.weight = self.every_  # the mean of the calls up to the next timed one, which is drawn below
            shift = 63 - BITS - __builtin_clzll(ns | 1)
            number = (shift << BITS) + <int>(ns >> shift) if shift > 0 else <int>ns
            cell.buckets[min(number, BUCKETS - 1)] += 1
            if self.every_ > 1:  # xorshift64; no pattern of calls is skipped for ever
                self.state ^= self.state << 13
                self.state ^= self.state >> 7
                self.state ^= self.state << 17
                mine.skip = self.state % (2 * self.every_ - 1)
        return 0

    cdef Cell cell(self, ThreadCounts mine, object entry, object ran):
        cdef tuple key
        cdef object found
        if mine.last is not None and mine.last_entry is entry and mine.last_ran is ran:
            return mine.last
        key = (entry, ran)
        found = mine.cells.get(key)
        if found is None:
            if len(mine.cells) >= self.most:
                self.full(mine)
            found = mine.cells[key] = Cell()
        mine.last_entry, mine.last_ran, mine.last = entry, ran, <Cell>found
        return mine.last

    def ran(self, ran) -> None:
        """See Watcher."""
        if tm_recorder == self.number:
            (<ThreadCounts>tm_counts).ran = ran
