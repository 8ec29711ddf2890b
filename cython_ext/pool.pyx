"""The pool of threads that all kernels of the process share: src/pool/pool.c."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uintptr_t
from libc.stdlib cimport free, malloc

cdef extern from "src/pool/pool.h":
    int32_t tm_pool_run(size_t, size_t, size_t, int32_t, void (*)(void *, size_t, size_t) noexcept, void *) nogil
    int32_t tritmark_pool_get_threads()
    void tritmark_pool_set_threads(int32_t most)
    int32_t tm_pool_workers()
    void tm_pool_cores(const int32_t *cores, size_t count)
    void tm_pool_nodes(const int32_t *node, const int32_t *first, size_t count)
    int32_t tm_pool_shares(int32_t threads, int32_t at, uint32_t *begin)
    ctypedef struct tm_pool_seen:
        int64_t calls
        int64_t busy_ns
        int64_t caller_ns
        int64_t shared
        int64_t mean_ns
        int64_t most_ns
        int64_t team
    ctypedef void (*tm_fork)(void (*)(void *), void *, unsigned, unsigned)
    ctypedef int (*tm_number)()
    void tm_pool_team(tm_fork fork, tm_number size, tm_number number)
    void tm_pool_watch(int32_t on)
    tm_pool_seen tm_pool_saw()


def address() -> int:
    """Address of the function that shares out a call, for the other extension modules."""
    return <uintptr_t>&tm_pool_run


def workers() -> int:
    """Threads that the pool has made, without the callers: none before the first call that is shared out."""
    return tm_pool_workers()


def threads() -> int:
    """The most threads of a call, its caller included, even if more are requested."""
    return tritmark_pool_get_threads()


def set_threads(int most) -> None:
    """Set the most threads of a call, at least 1. A call never has more threads than its thread may use cores."""
    tritmark_pool_set_threads(most)


def set_cores(cores) -> None:
    """Set the cores that calls may use, independently of the calling thread's, for processes whose threads OpenMP
    binds. None: those that the calling thread may use."""
    told = [] if cores is None else sorted(cores)
    cdef int32_t *numbers = <int32_t *>malloc(max(1, len(told)) * sizeof(int32_t))
    if numbers == NULL:
        raise MemoryError()
    for index, core in enumerate(told):
        numbers[<size_t>index] = core
    tm_pool_cores(numbers, len(told))
    free(numbers)


def set_nodes(nodes, first) -> None:
    """Keeps each worker on the cores of one node, and the shares of a node next to each other.

    `nodes` are the cores of each NUMA node with cores, in the order of the nodes' numbers, 64 at most; `first` maps a
    core to the first of those that share its physical core. With fewer than two nodes nothing is done. Call it before
    the first call that is shared out.
    """
    cdef size_t count = 1 + max([core for cores in nodes for core in cores], default=-1), at
    cdef int32_t *told = <int32_t *>malloc(max(1, 2 * count) * sizeof(int32_t))
    if told == NULL:
        raise MemoryError()
    for at in range(count):
        told[at], told[count + at] = -1, first.get(at, at)
    for number, cores in enumerate(nodes):
        for core in cores:
            told[<size_t>core] = number
    tm_pool_nodes(told, told + count, count)
    free(told)


def shares(int threads, int at) -> list[range]:
    """For each node of `set_nodes` the shares of its threads in a call with `threads` threads from a core of node `at`
    (-1: none), over the cores of `set_cores`."""
    cdef uint32_t begin[65]
    cdef int32_t count = tm_pool_shares(threads, at, begin)
    return [range(begin[node], begin[node + 1]) for node in range(count)]


def set_team(uintptr_t fork, uintptr_t size, uintptr_t number) -> None:
    """Shares calls out over another library's OpenMP threads while these run, by the addresses of its functions: see
    pool.h. 0 turns it off."""
    tm_pool_team(<tm_fork>fork, <tm_number>size, <tm_number>number)


def watch(bint on) -> None:
    """Starts counting what threads do in calls, from 0, or stops; see pool.h."""
    tm_pool_watch(on)


def seen() -> dict[str, int]:
    """The counts: the fields of tm_pool_seen in pool.h."""
    return tm_pool_saw()
