"""Probes that are not over when they return."""

from __future__ import annotations

from dataclasses import dataclass

from tritmark.harness.spec import Ceiling


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteBackCeiling(Ceiling):
    """A ceiling whose probe leaves lines in the caches that are yet to be written to memory, which whoever runs next
    pays for.

    Measured by turns with stores around the caches, plain ones seem 1.1 to 1.9 times as fast on one machine and are
    not: alone they are as slow. On another they are faster alone, too. So where what it writes does not stay in the
    caches such a probe counts by its rate once it has filled them, and pays for what it left there.
    """
