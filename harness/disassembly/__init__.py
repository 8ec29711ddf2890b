"""tritmark.harness.disassembly: facts about a kernel from its compiled code, without running it, and counters from
Nsight Compute."""

from __future__ import annotations

from tritmark.harness.disassembly.dispatch import asks, linked, of_features
from tritmark.harness.disassembly.read import code_of
from tritmark.harness.disassembly.tools import ToolError

__all__ = ["ToolError", "asks", "code_of", "linked", "of_features"]
