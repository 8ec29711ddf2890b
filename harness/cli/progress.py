"""Progress on the terminal's error stream, so that standard output stays clean."""

from __future__ import annotations

from datetime import UTC, datetime
from threading import Event, Thread
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from tritmark.harness.record import Layer, Run
from tritmark.harness.store import Partial
from tritmark.harness.text.visible import sentence, visible

_WINDOW_S = 60.0
"""Seconds back over which the pace is taken: some Runs take a hundred times as long as others, and they come in
groups."""
EVERY_S = 60.0
"""How often a line is written where none can be redrawn."""


def bar(console: Console) -> Progress:
    """One line: how far it is, the time taken and left, and in what room remains what is being done."""
    return Progress(
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
        console=console,
        expand=console.is_terminal,
        speed_estimate_period=_WINDOW_S,
    )


class ProgressLine:
    """One line with what is being done and the time left, while it is entered; what else is told goes above it.

    Where the error stream is no terminal that can redraw a line, the line is written once, at the end, and each minute
    another that says how far it is: else nobody who reads a log could tell a long run from one that hangs.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = bar(console)
        self._task = self._bar.add_task("", total=None)
        self._over = Event()
        self._log: Thread | None = None
        if not console.is_terminal or console.is_dumb_terminal:
            self._log = Thread(target=self._tell, daemon=True)

    def __enter__(self) -> Self:
        self._bar.start()
        if self._log is not None:
            self._log.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._log is not None:
            self._log.join()
        self._bar.update(self._task, description="")
        self._bar.stop()

    def _tell(self) -> None:
        """From a thread of its own, for one Run may take many minutes."""
        while not self._over.wait(EVERY_S):
            (task,) = self._bar.tasks
            done = f"{task.completed:.0f}/{'?' if task.total is None else f'{task.total:.0f}'}"
            now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
            self._console.print(Text(f"{now} {done} {task.description}"), soft_wrap=True)

    def planned(self, total: int) -> None:
        """The bar has a length now."""
        self._bar.update(self._task, total=total)

    def started(self, what: str) -> None:
        """Show what is being done."""
        self._bar.update(self._task, description=visible(what))

    def advance(self) -> None:
        """One further."""
        self._bar.advance(self._task)

    def failed(self, told: str) -> None:
        """Write that above the line."""
        self._console.print(Text(visible(told), style="red"))


class Following:
    """Shows on a line what it is called with: a tensor's name, and how many there are."""

    def __init__(self, line: ProgressLine) -> None:
        self._line = line
        self._begun = False

    def __call__(self, name: str, total: int) -> None:
        if self._begun:
            self._line.advance()
        self._begun = True
        self._line.planned(total)
        self._line.started(name)


class Terminal(ProgressLine):
    """An Observer that writes a line for each Run or layer that fails, as soon as it does."""

    partial: Partial | None = None
    """What was begun; None before that."""

    def began(self, partial: Partial) -> None:
        """Remember what was begun, for whoever has to say how it can be resumed."""
        self.partial = partial

    def finished(self, found: Run | Layer) -> None:
        """One further."""
        self.advance()
        verdicts = (
            (found.accuracy, found.performance, found.memory, found.cross) if isinstance(found, Run) else (found,)
        )
        name = found.id if isinstance(found, Run) else found.name
        if isinstance(found, Run) and found.receipt is not None and found.receipt.simulated:
            name += " (simulated)"
        for verdict in verdicts:
            if verdict.failed:
                self.failed(f"{verdict.status.value.upper()} {name}: {sentence(verdict.reason)}")
