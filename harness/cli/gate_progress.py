"""The gate's progress on the error stream: one line with the time left, and a line for each benchmark that makes it
fail."""

from __future__ import annotations

from tritmark.harness.cli.progress import ProgressLine
from tritmark.harness.gate.result import Benchmark


class GateTerminal(ProgressLine):
    """See GateObserver."""

    def finished(self, found: Benchmark) -> None:
        """One further."""
        self.advance()
        if found.failed:
            self.failed(f"{found.outcome.value} {found.id}: {found.reason}")
