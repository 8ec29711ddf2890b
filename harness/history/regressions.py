"""From asv's results to regressions: series in the order of commits, their upward steps, and which of them stand."""

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


@dataclass(frozen=True, slots=True)
class Regression:
    """A benchmark that got slower between two commits that were measured."""

    benchmark: str
    parameters: tuple[str, ...]
    machine: str
    good: str
    """The last commit that was measured before."""
    bad: str
    """The first one after."""
    date: str
    """Of `bad`, ISO 8601."""
    before: float
    """Ratio to the anchor."""
    after: float
    size: float
    """0.05 is 5 % slower."""
    confidence: float
    reverted: str | None
    """The first measured commit at which it was back; None where it stands."""

    def as_json(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    def line(self) -> str:
        """As text has it."""
        sure = f"{100 * min(self.confidence, 0.9999):.4g} % sure"
        back = f"  reverted in {self.reverted[:10]}" if self.reverted else ""
        what = " ".join((self.benchmark, *self.parameters))
        return (
            f"{self.good[:10]}..{self.bad[:10]}  {100 * self.size:+.1f} %  {sure}  {self.date[:10]}  {what}  on "
            f"{self.machine}{back}"
        )


def order(folder: Path) -> dict[str, int]:
    """Position of each commit of the branch that is checked out in `folder`, oldest 0. Raises UsageError outside of
    a repository."""
    names = _git(folder, "rev-list", "--reverse", "--topo-order", "HEAD").split()
    return {name: position for position, name in enumerate(names)}


def since(text: str, folder: Path, commits: dict[str, int]) -> int:
    """The position from which on regressions are asked for: after a revision, or from a date on. Raises UsageError
    for neither."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        found = _git(
            folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{text}^{{commit}}", wrong=text
        ).strip()
        if found not in commits:
            raise UsageError(f"--since {text}: that commit is not in the history of HEAD") from None
        return commits[found] + 1
    after = _git(
        folder, "rev-list", "HEAD", f"--since={(moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()}"
    ).split()
    return min((commits[name] for name in after), default=len(commits))


def regressions(values: Iterable[Value], commits: dict[str, int], report: Callable[[str], None]) -> list[Regression]:
    """Every upward step, the newest first. Values of commits that HEAD does not have are left out, which `told` is
    told."""
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
        report(f"left out: results of {len(foreign)} commits that are not in the history of HEAD")
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
    """Those of this machine, and those that the results of others show: these came with the clone, or from a disk that
    is shared, and say nothing of what this one measured."""
    known = list(found)
    return [each for each in known if each.machine == machine], [each for each in known if each.machine != machine]


def _git(folder: Path, *arguments: str, wrong: str = "") -> str:
    try:
        return git(folder, *arguments)
    except OSError as why:
        raise BadEnvironmentError(
            f"git cannot be run ({why.strerror}), and the history needs it for the order of commits",
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
            f"{folder}: git says: {why.stderr.strip()}; next: run this in a clone of the project"
        ) from None
