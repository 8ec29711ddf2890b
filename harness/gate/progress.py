"""The gate's progress on the error stream: one line with the time left, and a line for each benchmark that makes it fail."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.text import Text

from tritmark.harness.gate.result import Benchmark
from tritmark.harness.progress import bar
from tritmark.harness.report.text import visible


class Terminal:
    """An Observer of harness.gate.run."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = bar(console)
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.update(self._task, description="")
        self._bar.stop()

    def planned(self, total: int) -> None:
        """The bar has a length now."""
        self._bar.update(self._task, total=total)

    def started(self, what: str) -> None:
        """Show what is being done."""
        self._bar.update(self._task, description=visible(what))

    def finished(self, found: Benchmark) -> None:
        """One further."""
        self._bar.advance(self._task)
        if found.failed:
            self._console.print(Text(f"{found.outcome.value} {visible(found.id)}: {visible(found.reason)}", style="red"))
