"""The gate's progress on the error stream: one line with the time left and the number of failing benchmarks."""

from __future__ import annotations

from rich.text import Text

from tritmark.harness.cli.progress import ProgressLine
from tritmark.harness.gate.result import Benchmark
from tritmark.harness.text.visible import visible


class GateTerminal(ProgressLine):
    """See GateObserver."""

    _done = 0

    def planned(self, total: int, timed: int = 0) -> None:
        """Begin other work: files to compile, kernels to compare, or benchmarks."""
        self._done = 0
        self.restarted(total)

    def advanced(self, done: int) -> None:
        """Set how many of the planned items are done."""
        for _ in range(done - self._done):
            self.advance()
        self._done = max(done, self._done)

    def noted(self, what: str) -> None:
        """Print a note above the line."""
        self._console.print(Text(f"tritmark: {visible(what)}", style="yellow"), soft_wrap=True)

    def finished(self, found: Benchmark) -> None:
        """Count one benchmark, and its failure."""
        self.advance()
        if found.failed:
            self.failed(f"{found.outcome.value} {found.id}: {found.reason}")
