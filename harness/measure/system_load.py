"""How busy others keep the cores that this process may use while something is measured."""

from __future__ import annotations

from time import perf_counter, process_time

from tritmark.harness.machine.cpu import affinity

SHORTEST_S = 0.2
"""The kernel counts in hundredths of a second; over less time than this that says nothing."""


class SystemLoad:
    """Counts, from when it is made, the time that other processes and the hypervisor take from the cores that this
    process may use."""

    def __init__(self) -> None:
        self._begin = _now()

    def cores(self) -> float | None:
        """Cores' worth of time taken so far; None where too little time has passed to tell."""
        wall, own, busy = (now - then for now, then in zip(_now(), self._begin, strict=True))
        return max(0.0, busy - own) / wall if wall >= SHORTEST_S else None


def crowded(taken: float | None, threads: int, cores: int, share: float) -> bool:
    """Whether `taken` cores leave so little of `cores` that `threads` threads lose more than `share` of their time."""
    return taken is not None and taken - max(0, cores - threads) > share * threads


def core_times() -> tuple[float, float]:
    """Seconds so far, on the cores that this process may use: in which they were busy, what the hypervisor took
    included, and what it took of that."""
    import psutil

    allowed = affinity()
    busy = stolen = 0.0
    for core, times in enumerate(psutil.cpu_times(percpu=True)):
        if core in allowed:
            idle = times.idle + getattr(times, "iowait", 0.0)
            # Linux counts a guest's time in user, and in nice, already.
            busy += sum(times) - idle - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
            stolen += getattr(times, "steal", 0.0)
    return busy, stolen


def _now() -> tuple[float, float, float]:
    """Seconds: of the clock, of this process, and of everybody on the cores that it may use, what the hypervisor
    takes included."""
    return perf_counter(), process_time(), core_times()[0]
