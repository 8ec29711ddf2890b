"""The load of other processes on this process's cores during a measurement."""

from __future__ import annotations

from time import perf_counter, process_time

from tritmark.harness.machine.cpu import affinity

SHORTEST_S = 0.2
"""The kernel counts in units of 10 ms, so shorter intervals give no usable load."""


class SystemLoad:
    """Counts the time that other processes and the hypervisor take from this process's cores, from its creation on."""

    def __init__(self) -> None:
        self._begin = _now()

    def cores(self) -> float | None:
        """The mean number of cores taken so far; None before SHORTEST_S."""
        wall, own, busy = (now - then for now, then in zip(_now(), self._begin, strict=True))
        return max(0.0, busy - own) / wall if wall >= SHORTEST_S else None


def crowded(taken: float | None, threads: int, cores: int, share: float) -> bool:
    """Whether `taken` cores leave so little of `cores` that `threads` threads lose more than `share` of their time."""
    return taken is not None and taken - max(0, cores - threads) > share * threads


def core_times() -> tuple[float, float]:
    """Seconds since boot on this process's cores: busy, including steal time, and steal time alone."""
    import psutil

    allowed = affinity()
    busy = stolen = 0.0
    for core, times in enumerate(psutil.cpu_times(percpu=True)):
        if core in allowed:
            idle = times.idle + getattr(times, "iowait", 0.0)
            # Linux already counts guest time in user and nice.
            busy += sum(times) - idle - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
            stolen += getattr(times, "steal", 0.0)
    return busy, stolen


def _now() -> tuple[float, float, float]:
    """Seconds: wall clock, CPU time of this process, and busy time of all processes on its cores, including steal
    time."""
    return perf_counter(), process_time(), core_times()[0]
