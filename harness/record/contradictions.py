"""Ceilings of one session that contradict each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from tritmark.harness.record.machine import CeilingFacts

FARTHER = 1.25
"""Rate of a far level / rate of a near level above which the measurement is at fault: data of a far level passes
through the near one. Quiet Records have 1.14 at most (`python suites/performance/noise_of_records.py`)."""
WRITES = 1.5
"""Write rate / read rate above which the measurement is at fault. A core loads at least as many bytes per cycle from
its caches as it stores, and memory has one bus for both. Few cores may write faster than they read, because they wait
only for reads: 1.42x at most in these Records."""
_LEVELS = ("L2", "L3", "memory")
"""From near to far. L1 is excluded: its calls on many threads are so short that the start of threads dominates."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two ceilings of a device on equal threads, of which the first is too fast relative to the second."""

    fast: CeilingFacts
    slow: CeilingFacts

    @property
    def ratio(self) -> float:
        """Rate of the fast ceiling / rate of the slow one."""
        return self.fast.rate / self.slow.rate

    @property
    def description(self) -> str:
        """Such as "cpu's read ceiling of L3 is 1.9x that of L2 (2 threads)"."""
        fast, slow = self.fast, self.slow
        other = f"that of {slow.level}" if fast.name == slow.name else f"that of {slow.name}"
        threads = f"{fast.threads:,} thread{'' if fast.threads == 1 else 's'}"
        return f"{fast.device}'s {fast.name} ceiling of {fast.level} is {self.ratio:.1f}x {other} ({threads})"


def contradictions(ceilings: Iterable[CeilingFacts]) -> list[Contradiction]:
    """All contradictions, the largest ratio first."""
    by: dict[tuple[str, int, str], dict[str, CeilingFacts]] = {}
    for each in ceilings:
        if each.level in _LEVELS and each.unit == "bytes/s" and each.rate > 0:
            by.setdefault((each.device, each.threads, each.name), {})[each.level] = each
    found = []
    for (device, threads, name), levels in by.items():
        for near, far in combinations([levels[level] for level in _LEVELS if level in levels], 2):
            if far.rate > FARTHER * near.rate:
                found.append(Contradiction(far, near))
        if name == "write":
            reads = by.get((device, threads, "read"), {})
            for level, write in levels.items():
                if level in reads and write.rate > WRITES * reads[level].rate:
                    found.append(Contradiction(write, reads[level]))
    return sorted(found, key=lambda each: -each.ratio)


def contradicted(ceilings: Iterable[CeilingFacts]) -> list[CeilingFacts]:
    """The ceilings of all contradictions: both sides, since either may be incorrect."""
    given = list(ceilings)
    each = [side for found in contradictions(given) for side in (found.fast, found.slow)]
    return [ceiling for ceiling in given if ceiling in each]
