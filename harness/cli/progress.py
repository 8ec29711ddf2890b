"""Progress on the terminal's error stream, so that standard output stays clean."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from time import monotonic
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from tritmark.harness.record import Layer, Run
from tritmark.harness.store import Partial
from tritmark.harness.text.visible import sentence, visible

_TIMED = 6
"""Time of a timed Run over that of a Run that is only judged. In the suite quick on two busy cores, 54 timed Runs took
8.0 s each, and 146 others 1.3 s each."""
EVERY_S = 60.0
"""Seconds between two lines where a line cannot be redrawn."""


class WorkPace:
    """Estimates the time left from the work that was done."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._planned = self._done = 0.0
        self._begun: tuple[float, float] | None = None
        """When the first item that needs work began, and the work counted before. Items without work do not count."""
        self._last = 0.0

    def plan(self, work: float) -> None:
        """Set the amount of work."""
        self._planned = work

    def restart(self) -> None:
        """Begin other work, at an unknown pace."""
        self._planned = self._done = 0.0
        self._begun = None

    def start(self) -> None:
        """Begin an item."""
        if self._planned and self._begun is None:
            self._begun = self._last, _ = self._now(), self._done

    def advance(self, work: float) -> None:
        """Count work as done."""
        self._done += work
        self._last = self._now()

    def left(self) -> float | None:
        """Seconds left; None before any work is done. The current item is expected to take at least as long again as
        it has taken."""
        if self._begun is None:
            return None
        begun, before = self._begun
        if self._done <= before:
            return None
        now = self._now()
        return max((now - begun) / (self._done - before) * max(0.0, self._planned - self._done), now - self._last)


class _Left(ProgressColumn):
    """The time left; empty if unknown."""

    def __init__(self, pace: WorkPace) -> None:
        super().__init__()
        self._pace = pace

    def render(self, task: Task) -> Text:
        """See ProgressColumn."""
        left = 0.0 if task.finished else self._pace.left()
        return Text("" if left is None else f"left {_clock(left)}", style="progress.remaining")


class _Count(MofNCompleteColumn):
    """The number done of the total; empty if the total is unknown."""

    def render(self, task: Task) -> Text:
        """See ProgressColumn."""
        return Text("") if task.total is None else super().render(task)


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


class ProgressLine:
    """One line with the current item, the time left and the number of failures, while the context is active.

    If the error stream cannot redraw a line, a line is written every minute and one at the end. A log then shows that
    a long run does not hang.
    """

    def __init__(self, console: Console, now: Callable[[], float] = monotonic) -> None:
        self._console = console
        self.failures: list[str] = []
        """Failures, for commands that were interrupted before their output."""
        self.closing: Callable[[], None] | None = None
        """Called at the end, unless there was an error."""
        self._pace = WorkPace(now)
        self._bar = Progress(
            BarColumn(bar_width=24),
            _Count(),
            TimeElapsedColumn(),
            _Left(self._pace),
            TextColumn("{task.fields[failed]}", style="red"),
            TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
            console=console,
            expand=console.is_terminal,
            get_time=now,
        )
        self._task = self._bar.add_task("", total=None, failed="")
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
        if kind is None and self.closing is not None:
            self.closing()
        self._bar.update(self._task, description="")
        self._bar.stop()

    def _tell(self) -> None:
        """Runs in its own thread, because one Run may take many minutes."""
        while not self._over.wait(EVERY_S):
            (task,) = self._bar.tasks
            now, left = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", self._pace.left()
            done = "" if task.total is None else f"{task.completed:.0f}/{task.total:.0f} "
            failed = f"{task.fields['failed']} " if task.fields["failed"] else ""
            text = "" if left is None else f"left {_clock(left)} "
            self._console.print(Text(f"{now} {done}{text}{failed}{task.description}"), soft_wrap=True)

    def planned(self, total: int, timed: int = 0) -> None:
        """Set the number of items; `timed` of them take longer."""
        self._pace.plan(total + (_TIMED - 1) * timed)
        self._bar.update(self._task, total=total)

    def restarted(self, total: int) -> None:
        """Begin other work of `total` items; counts start at 0."""
        self._pace.restart()
        self._pace.plan(total)
        self._bar.update(self._task, total=total, completed=0)

    def started(self, what: str) -> None:
        """Show the current item."""
        self._pace.start()
        self._bar.update(self._task, description=visible(what))

    def advance(self, *, timed: bool = False) -> None:
        """Count one item as done."""
        self._pace.advance(_TIMED if timed else 1)
        (task,) = self._bar.tasks
        if task.total is None or task.completed < task.total:
            self._bar.advance(self._task)

    def failed(self, given: str) -> None:
        """Count a failure."""
        self.failures.append(visible(given))
        self._bar.update(self._task, failed=f"{len(self.failures):,} failed")


class ProgressCallback:
    """Shows on a line the arguments of each call: the name of a tensor, and the number of tensors."""

    def __init__(self, line: ProgressLine) -> None:
        self._line = line
        self._begun = False

    def __call__(self, name: str, total: int) -> None:
        if self._begun:
            self._line.advance()
        self._begun = True
        self._line.closing = self._line.advance  # it is not called after the last one
        self._line.planned(total)
        self._line.started(name)


class Terminal(ProgressLine):
    """An Observer that counts failed Runs and layers as they finish."""

    partial: Partial | None = None
    """The invocation; None before it began."""

    def began(self, partial: Partial) -> None:
        """Keep the invocation, so that a message can state how to resume it."""
        self.partial = partial

    def finished(self, found: Run | Layer) -> None:
        """Count one Run or layer, and its failure."""
        self.advance(timed=isinstance(found, Run) and bool(found.performance.cold or found.performance.hot))
        verdicts = (
            (found.accuracy, found.performance, found.memory, found.cross) if isinstance(found, Run) else (found,)
        )
        name = found.id if isinstance(found, Run) else found.name
        if isinstance(found, Run) and found.receipt is not None and found.receipt.simulated:
            name += " (simulated)"
        failed = next((verdict for verdict in verdicts if verdict.failed), None)
        if failed is not None:
            self.failed(f"{failed.status.value.upper()} {name}: {sentence(failed.reason)}")
