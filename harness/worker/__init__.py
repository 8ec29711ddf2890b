"""tritmark.harness.worker: runs each candidate in its own process. The harness survives a crash, a hang, excessive
memory use and false reports.

The parent keeps the expected values and owns the arrays. The worker binds, runs and times. The parent sends tasks:
functions of a Site and of picklable arguments. Hostile native code can do anything within its own process. So times
and counts that a worker reports are only evidence, and the verdict rests on the contents of the arrays.
"""

from __future__ import annotations

from tritmark.harness.worker.site import Site
from tritmark.harness.worker.workers import Worker, Workers

__all__ = ["Site", "Worker", "Workers"]
