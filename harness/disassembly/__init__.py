"""tritmark.harness.disassembly: what compiled code says about a kernel without running it, and what Nsight Compute
counted."""

from __future__ import annotations

from tritmark.harness.disassembly.read import code_of

__all__ = ["code_of"]
