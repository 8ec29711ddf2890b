"""tritmark.harness.recovery: what a program may do after a kernel failed, only where it asks for it.

Calls run in worker processes, so crashes and hangs do not reach the program. A failure is classified, answered by
other ways to compute the same result, and written to the error history. Judges never recover: see harness.judged.
"""

from __future__ import annotations

from tritmark.harness.recovery.failures import Diagnosis, FailureKind
from tritmark.harness.recovery.result import (
    NumericalFailureError,
    Recovery,
    RecoveryWarning,
    Tried,
    UnrecoveredError,
)
from tritmark.harness.recovery.strategies import Strategy

__all__ = [
    "Diagnosis",
    "FailureKind",
    "NumericalFailureError",
    "Recovery",
    "RecoveryWarning",
    "Strategy",
    "Tried",
    "UnrecoveredError",
]
