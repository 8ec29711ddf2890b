"""How many threads calls may have: what the process is told limits the pool that native kernels share
(cython_ext/src/pool/pool.c).

A call takes the least of what its caller asks for, of the cores that the calling thread may run on, and of the pool's
limit, which is what the control group grants, OMP_THREAD_LIMIT, and what threadpoolctl sets. A caller that asks for no
number is given the physical cores, or OMP_NUM_THREADS if that is less: joblib tells its processes by it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from time import perf_counter_ns, thread_time_ns
from types import ModuleType
from typing import Any

from tritmark.harness.machine import numa
from tritmark.harness.machine.cpu import BINDING, affinity, physical_cores, quota
from tritmark.harness.spec import ThreadTimes

_TEAM = ("GOMP_parallel", "_ZN2at15get_num_threadsEv", "omp_get_thread_num")
"""What the pool has to know of PyTorch's threads; the second is C++'s at::get_num_threads()."""


def variable(name: str) -> int | None:
    """The first number of one of OpenMP's variables; None where there is none above 0, which OpenMP ignores too."""
    first = os.environ.get(name, "").partition(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) else None


def default() -> int:
    """The number of threads of a caller that asks for none."""
    return min(physical_cores(), variable("OMP_NUM_THREADS") or physical_cores())


def limit() -> int:
    """The most threads that a call may have, be more asked for."""
    known = (quota(), variable("OMP_THREAD_LIMIT"), os.cpu_count())
    return min((each for each in known if each is not None), default=1)


def prepare(pool: ModuleType) -> None:
    """Limit the pool, which was just loaded."""
    pool.set_threads(limit())
    if os.environ.get(BINDING[0], "false").lower() != "false":
        pool.set_cores(affinity())  # a thread that OpenMP has bound would seem to have one core
    if numa.several_nodes():
        set_nodes(pool, numa.topology())
    _register()
    if "torch" in sys.modules:
        join_pytorch(pool)


def join_pytorch(pool: ModuleType) -> None:
    """Share calls out over PyTorch's OpenMP threads while these run; nothing where PyTorch has none, or loads it in a
    way that is not known. To be called once PyTorch is imported."""
    import torch

    try:
        # The functions that PyTorch itself finds, whichever OpenMP it came with, and whatever others are loaded.
        loaded = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"), mode=os.RTLD_NOLOAD)
        found = [getattr(loaded, name) for name in _TEAM]
    except (OSError, AttributeError):
        return
    pool.set_team(*(ctypes.cast(function, ctypes.c_void_p).value for function in found))


def set_nodes(pool: ModuleType, there: numa.Topology) -> None:
    """Have the pool keep each worker on the cores of one node, where the process may run on cores of several."""
    pool.set_nodes(list(there.working.values()), dict(there.first))


def watched(pool: ModuleType, calls: Callable[[], object]) -> ThreadTimes | None:
    """What the pool's threads do in `calls()`; None where the pool was asked for nothing.

    What this thread does besides the pool's work it does alone, and counts as busy.
    """
    pool.watch(True)
    try:
        begin, own = perf_counter_ns(), thread_time_ns()
        calls()
        own, wall = thread_time_ns() - own, perf_counter_ns() - begin
    finally:
        pool.watch(False)
    seen = pool.seen()
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
            """It has none of its own."""

    register(PoolController)
