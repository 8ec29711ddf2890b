"""tritmark.harness.worker: a candidate runs in a process of its own. It may crash, hang, eat memory or lie; the harness
goes on.

The parent keeps the expected values and owns the arrays; the worker binds, runs and times. What passes between them are
tasks: functions of a Site and of arguments that can be pickled. Native code that means harm can do anything within its
own process: what a worker says about itself (times, counts) is evidence, and what the arrays hold is judged.
"""

from __future__ import annotations

from tritmark.harness.worker.site import Site
from tritmark.harness.worker.workers import Worker, Workers

__all__ = ["Site", "Worker", "Workers"]
