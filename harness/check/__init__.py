"""Judge a user's kernel from Python, as `tritmark check` does: `tritmark.check`."""

from __future__ import annotations

from tritmark.harness.check.api import check
from tritmark.harness.check.facts import KernelVerdict
from tritmark.harness.check.verdict import CheckVerdict

__all__ = ["CheckVerdict", "KernelVerdict", "check"]
