"""Thread limits of calls, from the settings of the process. They limit the thread pool that native kernels share
(cython_ext/src/pool/pool.c).

A call gets the least of the requested number, the cores on which the calling thread may run, and the pool's limit. That
limit is the least of the control group's quota, OMP_THREAD_LIMIT and the number that threadpoolctl sets. By default a
call requests the physical cores, or OMP_NUM_THREADS if that is less: joblib sets it in its processes.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from threading import Lock
from time import perf_counter_ns, thread_time_ns
from types import ModuleType
from typing import Any

from tritmark.harness.machine import numa
from tritmark.harness.machine.cpu import BINDING, affinity, physical_cores, quota
from tritmark.harness.spec import ThreadTimes

_TEAM = ("GOMP_parallel", "_ZN2at15get_num_threadsEv", "omp_get_thread_num")
"""Functions that the pool needs of PyTorch's threads; the second is C++'s at::get_num_threads()."""

_WATCHING = Lock()
"""The pool has one set of counts."""


def variable(name: str) -> int | None:
    """The first number of an OpenMP variable; None if it is not above 0, which OpenMP ignores too."""
    first = os.environ.get(name, "").partition(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) else None


def default() -> int:
    """The default number of threads of a call."""
    return min(physical_cores(), variable("OMP_NUM_THREADS") or physical_cores())


def limit() -> int:
    """The most threads that a call may have, even if it requests more."""
    known = (quota(), variable("OMP_THREAD_LIMIT"), os.cpu_count())
    return min((each for each in known if each is not None), default=1)


def allowed(pool: ModuleType, threads: int) -> int:
    """The most threads of a call from this thread that requests so many."""
    # OpenMP may have bound this thread to one core; `prepare` then gave the pool those of the process.
    bound = os.environ.get(BINDING[0], "false").lower() != "false"
    cores = affinity() if bound else os.sched_getaffinity(0)
    return max(1, min(int(threads), int(pool.threads()), len(cores)))


def prepare(pool: ModuleType) -> None:
    """Set the limits of the pool after it is loaded."""
    pool.set_threads(limit())
    if os.environ.get(BINDING[0], "false").lower() != "false":
        pool.set_cores(affinity())  # the affinity of a thread that OpenMP has bound is one core
    if numa.several_nodes():
        set_nodes(pool, numa.topology())
    _register()
    if "torch" in sys.modules:
        join_pytorch(pool)


def join_pytorch(pool: ModuleType) -> None:
    """Run calls on PyTorch's OpenMP threads while these run. Does nothing if PyTorch has none, or loads OpenMP in an
    unknown way. Call it after PyTorch is imported."""
    import torch

    try:
        # The functions that PyTorch itself resolves: several OpenMP libraries may be loaded.
        loaded = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"), mode=os.RTLD_NOLOAD)
        found = [getattr(loaded, name) for name in _TEAM]
    except (OSError, AttributeError):
        return
    pool.set_team(*(ctypes.cast(function, ctypes.c_void_p).value for function in found))


def set_nodes(pool: ModuleType, there: numa.Topology) -> None:
    """Keep each worker of the pool on the cores of one node, if the process may run on cores of several."""
    pool.set_nodes(list(there.working.values()), dict(there.first))


def watched(pool: ModuleType, calls: Callable[[], object]) -> ThreadTimes | None:
    """The times of the pool's threads in `calls()`; None if the calls did not use the pool, or while another thread
    watches it.

    This thread's work outside of the pool counts as busy.
    """
    if not _WATCHING.acquire(blocking=False):
        calls()
        return None
    try:
        pool.watch(True)
        begin, own = perf_counter_ns(), thread_time_ns()
        try:
            calls()
        finally:
            pool.watch(False)
        own, wall = thread_time_ns() - own, perf_counter_ns() - begin
        seen = pool.seen()
    finally:
        _WATCHING.release()
    if not seen["calls"]:
        return None
    alone = max(0, own - seen["caller_ns"])
    return ThreadTimes(
        wall_ns=wall,
        busy_ns=seen["busy_ns"] + alone,
        shared=seen["shared"],
        mean_ns=seen["mean_ns"],
        most_ns=seen["most_ns"],
    )


@cache
def _register() -> None:
    from threadpoolctl import LibController, register

    class PoolController(LibController):  # type: ignore[misc]  # threadpoolctl has no types
        """The pool, for threadpool_limits and threadpool_info."""

        user_api = "tritmark"
        internal_api = "tritmark"
        filename_prefixes = ("pool.",)
        check_symbols = ("tritmark_pool_get_threads", "tritmark_pool_set_threads")

        def get_num_threads(self) -> Any:
            return self.dynlib.tritmark_pool_get_threads()

        def set_num_threads(self, num_threads: int) -> None:
            self.dynlib.tritmark_pool_set_threads(num_threads)

        def get_version(self) -> None:
            """The pool has no version."""

    register(PoolController)
