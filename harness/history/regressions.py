"""Regressions from asv's results: series in the order of commits, their upward steps, and later reverts."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tritmark.harness.errors import BadEnvironmentError, UsageError
from tritmark.harness.history.results import Value
from tritmark.harness.history.steps import rises
from tritmark.harness.machine.repository import OUTSIDE, git, must_be_whole, refused_by_git
from tritmark.harness.text.units import counted


@dataclass(frozen=True, slots=True)
class Regression:
    """A benchmark that became slower between two measured commits."""

    benchmark: str
    parameters: tuple[str, ...]
    machine: str
    good: str
    """The last measured commit before the step."""
    bad: str
    """The first measured commit after it."""
    date: str
    """Of `bad`, ISO 8601."""
    before: float
    """Ratio to the anchor before the step."""
    after: float
    """Ratio to the anchor after the step."""
    size: float
    """0.05 is 5 % slower."""
    confidence: float
    reverted: str | None
    """The first measured commit at the old level or below; None if the regression stands."""

    def as_json(self) -> dict[str, Any]:
        """The JSON object."""
        return asdict(self)

    def line(self) -> str:
        """One line of text."""
        sure = f"{100 * min(self.confidence, 0.9999):.4g} % sure"
        back = f"  reverted in {self.reverted[:10]}" if self.reverted else ""
        what = " ".join((self.benchmark, *self.parameters))
        return (
            f"{self.good[:10]}..{self.bad[:10]}  {100 * self.size:+.1f} %  {sure}  {self.date[:10]}  {what}  on "
            f"{self.machine}{back}"
        )


def order(folder: Path) -> dict[str, int]:
    """Position of each commit of the branch checked out in `folder`; the oldest is 0.

    Raises UsageError outside a repository."""
    names = _git(folder, "rev-list", "--reverse", "--topo-order", "HEAD").split()
    return {name: position for position, name in enumerate(names)}


def since(text: str, folder: Path, commits: dict[str, int]) -> int:
    """The first position after a revision, or from a date. Raises UsageError if `text` is neither."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        found = _git(
            folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{text}^{{commit}}", wrong=text
        ).strip()
        if found not in commits:
            raise UsageError(
                f"--since {text}: this commit is not in the history of HEAD; legal: main~20, 2026-01-31"
            ) from None
        return commits[found] + 1
    after = _git(
        folder, "rev-list", "HEAD", f"--since={(moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()}"
    ).split()
    return min((commits[name] for name in after), default=len(commits))


def regressions(values: Iterable[Value], commits: dict[str, int], report: Callable[[str], None]) -> list[Regression]:
    """All upward steps, the newest first. Values of commits outside the history of HEAD are left out and reported."""
    series: dict[tuple[str, str, str, tuple[str, ...]], dict[str, Value]] = {}
    foreign = set()
    for value in values:
        if value.commit not in commits:
            foreign.add(value.commit)
            continue
        series.setdefault((value.machine, value.environment, value.benchmark, value.parameters), {})[value.commit] = (
            value
        )
    if foreign:
        report(f"left out: results of {counted(len(foreign), 'commit')} outside the history of HEAD")
    found = [
        each for one in series.values() for each in _of(sorted(one.values(), key=lambda value: commits[value.commit]))
    ]
    return sorted(found, key=lambda each: (-commits[each.bad], -each.size))


def _of(values: Sequence[Value]) -> list[Regression]:
    return [
        Regression(
            benchmark=values[0].benchmark,
            parameters=values[0].parameters,
            machine=values[0].machine,
            good=values[step.before].commit,
            bad=values[step.after].commit,
            date=datetime.fromtimestamp(values[step.after].date / 1000, UTC).isoformat(timespec="seconds"),
            before=step.old,
            after=step.new,
            size=step.size,
            confidence=step.confidence,
            reverted=None if step.reverted is None else values[step.reverted].commit,
        )
        for step in rises([value.value for value in values])
    ]


def apart(found: Iterable[Regression], machine: str) -> tuple[list[Regression], list[Regression]]:
    """The regressions of this machine, and those of other machines, whose results are in the clone or on a shared
    disk."""
    known = list(found)
    return [each for each in known if each.machine == machine], [each for each in known if each.machine != machine]


def _git(folder: Path, *arguments: str, wrong: str = "") -> str:
    try:
        return git(folder, *arguments)
    except OSError as why:
        raise BadEnvironmentError(
            f"git cannot be run ({why.strerror}); the history needs it for the order of commits",
            next_step="install git",
        ) from None
    except subprocess.CalledProcessError as why:
        if wrong:
            must_be_whole(folder, wrong)
            raise UsageError(
                f"--since {wrong}: neither a revision of this repository nor a date; legal: main~20, 1a2b3c4, "
                "2026-01-31"
            ) from None
        if OUTSIDE not in why.stderr:
            raise refused_by_git(folder, why.stderr) from None
        raise UsageError(
            f"{folder}: git reports: {why.stderr.strip()}; next: run this in a clone of the project"
        ) from None
