"""Probes whose writes reach memory only after they return."""

from __future__ import annotations

from dataclasses import dataclass

from tritmark.harness.spec import Ceiling


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteBackCeiling(Ceiling):
    """A ceiling whose probe leaves modified lines in the caches. The next code to run pays for their write-back.

    Interleaved with non-temporal stores, plain stores appear 1.1 to 1.9 times as fast on one machine, but alone they
    are as slow. On another machine they are faster alone, too. So if its writes do not stay in the caches, such a probe
    counts by its rate after it has filled them, which includes its own write-back.
    """
