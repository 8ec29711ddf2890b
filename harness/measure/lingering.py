"""Probes that are not over when they return."""

from __future__ import annotations

from dataclasses import dataclass

from tritmark.harness.spec import Ceiling


@dataclass(frozen=True, slots=True, kw_only=True)
class Lingering(Ceiling):
    """A ceiling whose probe leaves lines in the caches that are yet to be written to memory, which whoever runs next pays for.

    Measured by turns with stores around the caches, plain ones seem 1.1 to 1.9 times as fast and are not: alone they are as slow. So such
    a probe counts only where what it writes stays in the caches.
    """
