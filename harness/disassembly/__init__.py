"""tritmark.harness.disassembly: what compiled code says about a kernel without running it, and what Nsight Compute
counted."""

from __future__ import annotations

from tritmark.harness.disassembly.dispatch import asks, linked, of_features
from tritmark.harness.disassembly.read import code_of
from tritmark.harness.disassembly.tools import ToolError

__all__ = ["ToolError", "asks", "code_of", "linked", "of_features"]
