"""tritmark.harness.advise.code: what compiled code says about a kernel without running it, and what Nsight Compute counted."""

from __future__ import annotations

from tritmark.harness.advise.code.read import code_of

__all__ = ["code_of"]
