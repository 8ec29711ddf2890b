"""Effect of the project's commits on the speed of kernels on this machine: the time of each commit over the time of
the anchor, and the lasting steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tritmark.harness.record import Machine, Record
from tritmark.harness.report import chart
from tritmark.harness.report.section import History, HistoryLine, PageContext, Section, SpeedChange

_MOST_PLOTS = 8


def gathered(results: Path, machine: Machine, report: Callable[[str], None]) -> History:
    """The history of this machine from asv's results under `results`, in the commit order of the current branch.

    Raises UsageError if there are no results or no repository.
    """
    from tritmark.harness.history import regressions
    from tritmark.harness.history.results import Value, values

    commits = regressions.order(Path.cwd())
    # asv's name of a machine ends with the machine's id.
    own = [
        value
        for value in values(results, report)
        if value.machine.endswith(f"-{machine.id}") and value.commit in commits
    ]
    series: dict[str, dict[str, Value]] = {}
    for value in own:
        series.setdefault(" ".join((value.benchmark, *value.parameters)), {})[value.commit] = value
    lines = []
    for benchmark, measured in series.items():
        ordered = sorted(measured.values(), key=lambda value: commits[value.commit])
        lines.append(
            HistoryLine(benchmark, tuple(value.commit for value in ordered), tuple(value.value for value in ordered))
        )
    steps = [
        SpeedChange(
            " ".join((each.benchmark, *each.parameters)),
            each.good,
            each.bad,
            each.after / each.before,
            each.confidence,
            each.reverted is not None,
        )
        for each in regressions.regressions(own, commits, report)
    ]
    return History(tuple(lines), tuple(steps))


def _beside(_: Record, given: PageContext) -> dict[str, Any] | None:
    history = given.history
    if history is None or not (history.lines or history.steps):
        return None
    stepped = {step.benchmark for step in history.steps}
    ordered = sorted(
        (line for line in history.lines if len(line.ratios) > 1), key=lambda line: line.benchmark not in stepped
    )
    plots = []
    for line in ordered[:_MOST_PLOTS]:
        points = [
            chart.Point(place + 1, ratio, ratio, ratio, f"commit {commit[:12]}, {ratio:.3f}")
            for place, (commit, ratio) in enumerate(zip(line.commits, line.ratios, strict=True))
        ]
        title = f"Time of {line.benchmark} at each commit over the anchor's; the table below has the same figures"
        plots.append(
            {
                "line": line,
                "plot": chart.lines(
                    [(line.benchmark, points)],
                    title,
                    ("commit, the oldest first", "time over the anchor's"),
                    ordinal=True,
                ),
            }
        )
    return {"steps": history.steps, "plots": plots, "more": max(0, len(ordered) - _MOST_PLOTS)}


SECTION = Section("history", "History", "past.html", beside=_beside)
