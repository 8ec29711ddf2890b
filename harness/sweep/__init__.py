"""Time kernels over an axis of an op, and draw them: `tritmark.sweep` and `tritmark sweep`."""

from __future__ import annotations

from tritmark.harness.sweep.api import Sweep, sweep

__all__ = ["Sweep", "sweep"]
