"""Run a function for many items on the threads of the CPU, the largest items first.

Two ways to use the threads: one call at a time with all threads, or as many calls at a time as threads, each with one.
The first leaves threads idle in the parts of a call that one thread does. The second leaves threads idle at the end,
and calls that run at the same time wait for each other's Python. So calls run at the same time, except:

- the first item, which measures the rate;
- an item with more work than a thread's even share of what is left: the other threads would wait for it. With fewer
  items than threads these are all items;
- items that take less than LEAST_S: waiting for the GIL takes longer than the call.

Kernels release the GIL. A call with one thread does not use the pool (cython_ext/src/parallel.h), and calls with
several threads run one at a time, so there are never more threads at work than allowed.
Measure it: `python suites/performance/spread_on_cpu.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import copy_context
from threading import Lock, Thread
from time import perf_counter, thread_time
from typing import Generic

from tritmark.kernels.native import cpu
from tritmark.kernels.native.threads import allowed, watched
from tritmark.kernels.spreading.result import K, R, Spread, annotate, ordered

LEAST_S = 2e-4
"""Seconds below which items run one at a time. On two cores, shorter calls lost when they ran at once."""


def over_threads(
    call: Callable[[K, int], R], work: Mapping[K, int], threads: int | None, note: Callable[[K], str]
) -> Spread[K, R]:
    """The result of `call(name, threads)` for each name of `work`, which has the work of each in any common unit.

    `threads` is the most at work, by default as in every call (kernels/native/threads.py). After an error no further
    call begins; it is raised with `note(name)`, see `annotate`.
    """
    return _Run(call, work, threads, note).all()


class _Run(Generic[K, R]):
    def __init__(
        self, call: Callable[[K, int], R], work: Mapping[K, int], threads: int | None, note: Callable[[K], str]
    ) -> None:
        self._call, self._work, self._note = call, work, note
        self._pool = cpu.native("pool")
        self._threads = allowed(self._pool, cpu.cores() if threads is None else threads)
        self._waiting = sorted(work, key=lambda name: work[name])
        """The largest last."""
        self._left = sum(work.values())
        self._rate = 0.0
        """The most work per second of any call."""
        self._busy = [0.0] * self._threads
        self._results: dict[K, R] = {}
        self._failed: tuple[K, BaseException] | None = None
        self._stopped = False
        self._lock = Lock()
        self._began = perf_counter()

    def all(self) -> Spread[K, R]:
        """Do everything."""
        while self._waiting and not self._stopped:
            if self._alone():
                self._do(self._take(), 0, self._threads)
            else:
                self._together()
        if self._failed is not None:
            name, error = self._failed
            annotate(error, self._note(name), self._finished())
            raise error
        return self._finished()

    def _alone(self) -> bool:
        """Whether the next call gets all threads."""
        next_ = self._work[self._waiting[-1]]
        return self._threads == 1 or not self._rate or next_ * self._threads > self._left or self._small(next_)

    def _small(self, work: int) -> bool:
        return work < LEAST_S * self._rate

    def _take(self) -> K:
        name = self._waiting.pop()
        self._left -= self._work[name]
        return name

    def _together(self) -> None:
        """One call in each thread at a time, until the next item is small or none is left."""
        count = min(self._threads, len(self._waiting))
        others = [
            # In a copy of this thread's context, so that what it collects gets the receipts of all calls.
            Thread(target=copy_context().run, args=(self._one_by_one, n), name=f"tritmark cpu {n}")
            for n in range(1, count)
        ]
        try:
            for thread in others:
                thread.start()
            self._one_by_one(0)
            for thread in others:
                thread.join()
        except BaseException:  # such as KeyboardInterrupt: no thread begins more work
            self._stopped = True
            raise

    def _one_by_one(self, thread: int) -> None:
        while True:
            with self._lock:
                if self._stopped or not self._waiting or self._small(self._work[self._waiting[-1]]):
                    return
                name = self._take()
            self._do(name, thread, 1)

    def _do(self, name: K, thread: int, threads: int) -> None:
        """Do one item in this thread, with so many threads."""
        made: list[R] = []
        times, failed = None, None
        began, own = perf_counter(), thread_time()
        try:
            if threads > 1:
                times = watched(self._pool, lambda: made.append(self._call(name, threads)))
            else:
                made.append(self._call(name, threads))
        except BaseException as error:
            failed = error
        elapsed, own = perf_counter() - began, thread_time() - own
        with self._lock:
            if times is None:
                self._busy[thread] += own
            else:
                each = min(times.busy_ns * 1e-9 / threads, elapsed)  # calls of others may share the pool
                self._busy[:] = [before + each for before in self._busy]
            if failed is not None:
                self._failed = self._failed or (name, failed)
                self._stopped = True
                return
            self._results[name] = made[0]
            self._rate = max(self._rate, self._work[name] / max(elapsed, 1e-9))

    def _finished(self) -> Spread[K, R]:
        results, busy = ordered(self._work, self._results), sum(self._busy)
        done = sum(self._work[name] for name in results)
        device = cpu.DEVICE.type
        return Spread(
            results=results,
            made_by=dict.fromkeys(results, device),
            failed=(),
            rates={device: done / busy} if busy else {},
            copies={},
            wall_s=perf_counter() - self._began if self._work else 0.0,
            busy_s={f"{device} {number}": seconds for number, seconds in enumerate(self._busy)},
        )
