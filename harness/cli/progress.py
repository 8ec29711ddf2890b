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
"""How many times as long a Run takes that is timed. Of the suite quick, on two busy cores, 54 timed ones took 8.0 s
each, and 146 that were only judged 1.3 s each."""
EVERY_S = 60.0
"""How often a line is written where none can be redrawn."""


class WorkPace:
    """How long what is planned will still take, by what was done of it."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._planned = self._done = 0.0
        self._begun: tuple[float, float] | None = None
        """When the first piece was started, and how much was done before: what needs no work says nothing."""
        self._last = 0.0

    def plan(self, work: float) -> None:
        """There is so much work."""
        self._planned = work

    def restart(self) -> None:
        """What follows is other work, whose pace nothing is known of."""
        self._planned = self._done = 0.0
        self._begun = None

    def start(self) -> None:
        """A piece is begun."""
        if self._planned and self._begun is None:
            self._begun = self._last, _ = self._now(), self._done

    def advance(self, work: float) -> None:
        """So much is done."""
        self._done += work
        self._last = self._now()

    def left(self) -> float | None:
        """Seconds. What has been waited for is expected to take as long again at least; None as long as nothing was
        done."""
        if self._begun is None:
            return None
        begun, before = self._begun
        if self._done <= before:
            return None
        now = self._now()
        return max((now - begun) / (self._done - before) * max(0.0, self._planned - self._done), now - self._last)


class _Left(ProgressColumn):
    """The time left; nothing where nothing is known of it."""

    def __init__(self, pace: WorkPace) -> None:
        super().__init__()
        self._pace = pace

    def render(self, task: Task) -> Text:
        """From the work done."""
        left = 0.0 if task.finished else self._pace.left()
        return Text("" if left is None else f"left {_clock(left)}", style="progress.remaining")


class _Count(MofNCompleteColumn):
    """How many of how many; nothing where no number is known."""

    def render(self, task: Task) -> Text:
        """Of the task."""
        return Text("") if task.total is None else super().render(task)


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


class ProgressLine:
    """One line with what is being done, the time left, and how many have failed so far, while it is entered.

    Where the error stream is no terminal that can redraw a line, the line is written once, at the end, and each minute
    another that says how far it is: else nobody who reads a log could tell a long run from one that hangs.
    """

    def __init__(self, console: Console, now: Callable[[], float] = monotonic) -> None:
        self._console = console
        self.failures: list[str] = []
        """What failed, for those who do not print it at the end."""
        self.closing: Callable[[], None] | None = None
        """Is called where what was done ends without an error."""
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
        """From a thread of its own, for one Run may take many minutes."""
        while not self._over.wait(EVERY_S):
            (task,) = self._bar.tasks
            now, left = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", self._pace.left()
            done = "" if task.total is None else f"{task.completed:.0f}/{task.total:.0f} "
            failed = f"{task.fields['failed']} " if task.fields["failed"] else ""
            text = "" if left is None else f"left {_clock(left)} "
            self._console.print(Text(f"{now} {done}{text}{failed}{task.description}"), soft_wrap=True)

    def planned(self, total: int, timed: int = 0) -> None:
        """The bar has a length now; of so many, `timed` take their time."""
        self._pace.plan(total + (_TIMED - 1) * timed)
        self._bar.update(self._task, total=total)

    def restarted(self, total: int) -> None:
        """Other work begins, of so many pieces; what was counted before is over."""
        self._pace.restart()
        self._pace.plan(total)
        self._bar.update(self._task, total=total, completed=0)

    def started(self, what: str) -> None:
        """Show what is being done."""
        self._pace.start()
        self._bar.update(self._task, description=visible(what))

    def advance(self, *, timed: bool = False) -> None:
        """One further."""
        self._pace.advance(_TIMED if timed else 1)
        (task,) = self._bar.tasks
        if task.total is None or task.completed < task.total:
            self._bar.advance(self._task)

    def failed(self, given: str) -> None:
        """Count it."""
        self.failures.append(visible(given))
        self._bar.update(self._task, failed=f"{len(self.failures):,} failed")


class ProgressCallback:
    """Shows on a line what it is called with: a tensor's name, and how many there are."""

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
    """An Observer that counts the Runs and layers that fail, as soon as they do."""

    partial: Partial | None = None
    """What was begun; None before that."""

    def began(self, partial: Partial) -> None:
        """Remember what was begun, for whoever has to say how it can be resumed."""
        self.partial = partial

    def finished(self, found: Run | Layer) -> None:
        """One further."""
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
