"""Ceilings of one session that cannot all be true."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from tritmark.harness.record.machine import CeilingFacts

FARTHER = 1.25
"""What is farther from the cores is reached through what is nearer, so it is no faster: so many times as fast is a
fault of the measurement. Quiet Records have 1.14 at most (`python suites/performance/noise_of_records.py`)."""
WRITES = 1.5
"""The same of writing over reading. In its caches a core loads at least as many bytes a cycle as it stores; memory has
one bus for both. A core waits for lines that it reads and not for those that it writes, so few cores write faster than
they read: 1.42x at most in these Records."""
_LEVELS = ("L2", "L3", "memory")
"""From near to far. L1 is left out: calls on many threads are too short for it, and starting the threads counts."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two ceilings of a device, with as many threads, of which the first is too fast beside the second."""

    fast: CeilingFacts
    slow: CeilingFacts

    @property
    def ratio(self) -> float:
        """How many times as fast."""
        return self.fast.rate / self.slow.rate

    @property
    def description(self) -> str:
        """cpu's read ceiling of L3 is 1.9x that of L2 (2 threads)."""
        fast, slow = self.fast, self.slow
        other = f"that of {slow.level}" if fast.name == slow.name else f"that of {slow.name}"
        threads = f"{fast.threads:,} thread{'' if fast.threads == 1 else 's'}"
        return f"{fast.device}'s {fast.name} ceiling of {fast.level} is {self.ratio:.1f}x {other} ({threads})"


def contradictions(ceilings: Iterable[CeilingFacts]) -> list[Contradiction]:
    """All of them, the largest ratio first."""
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
    """Those in a contradiction: which of the two is wrong is not known."""
    given = list(ceilings)
    each = [side for found in contradictions(given) for side in (found.fast, found.slow)]
    return [ceiling for ceiling in given if ceiling in each]
