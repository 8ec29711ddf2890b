"""The result as text, with colours on a terminal."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.text import Text

from tritmark.harness.gate.result import Benchmark, GateResult, Outcome
from tritmark.harness.gate.wording import (
    build,
    change,
    compared,
    conclusion,
    counts,
    kernel,
    name,
    percent,
    place,
    sorted_benchmarks,
    took,
)
from tritmark.harness.record import Status
from tritmark.harness.text.table import plain_table
from tritmark.harness.text.units import counted
from tritmark.harness.text.visible import visible

_STYLES = {
    Outcome.SLOWER: "bold red",
    Outcome.DIFFERS: "bold red",
    Outcome.ERROR: "bold red",
    Outcome.AMBIGUOUS: "yellow",
    Outcome.FASTER: "green",
    Outcome.SAME: "",
}
_EXPLAINED = frozenset({Outcome.SLOWER, Outcome.DIFFERS, Outcome.ERROR, Outcome.AMBIGUOUS})
"""Outcomes with a reason below the table."""


def show(result: GateResult, console: Console) -> None:
    """Print a table of the benchmarks, worst first, the reasons, and the conclusion."""
    figures = ("change", "detectable", "seconds")
    table = plain_table("", "outcome", "kernel", "shape", *figures, right=figures)
    ordered = sorted_benchmarks(result)
    for each in ordered:
        cells = (
            [change(each.ratio), percent(each.smallest), f"{each.seconds:.2f}"]
            if not each.identical
            else ["same code", "", ""]
        )
        table.add_row(
            Text(each.outcome.value, style=_STYLES.get(each.outcome, "dim")),
            Text(kernel(each)),
            Text(place(each)),
            *cells,
        )
    for text in _head(result):
        console.print(Text(text), soft_wrap=True)
    console.print(table)
    for each in ordered:
        for text in _explanation(each):
            console.print(Text(text, style=_STYLES.get(each.outcome, "dim")), soft_wrap=True)
    for reason, count in Counter(each.reason for each in ordered if each.outcome is Outcome.NOT_RUN).items():
        console.print(
            Text(f"{Outcome.NOT_RUN.value} {counted(count, 'benchmark')}: {visible(reason)}", style="dim"),
            soft_wrap=True,
        )
    style = {Status.FAIL: "bold red", Status.AMBIGUOUS: "yellow"}.get(result.status, "bold green")
    console.print(Text(f"{counts(result)}. {conclusion(result)} {took(result)}", style=style), soft_wrap=True)


def _head(result: GateResult) -> list[str]:
    how = "both builds in one process" if result.together else "a process for each build, interleaved"
    lines = [
        *(f"NOTE {visible(note)}" for note in result.notes),
        f"BASE {build(result.base)}",
        f"HEAD {build(result.head)}",
        f"{how}{f'; {visible(result.why)}' if result.why else ''}",
        *compared(result),
    ]
    return [
        *lines,
        (
            "change: HEAD's time relative to BASE's, with the 95 % interval; detectable: the smallest slow-down that "
            "this gate detects in 95 % of launches"
        ),
        "",
    ]


def _explanation(each: Benchmark) -> list[str]:
    if each.outcome not in _EXPLAINED:
        return []
    lines = [f"{each.outcome.value} {kernel(each)} {place(each)}: {visible(each.reason)}"]
    if each.first is not None:
        index = ", ".join(map(str, each.first.index))
        lines.append(
            f"  first at {name(each.first.output)}[{index}]: BASE {name(each.first.expected)}, HEAD "
            f"{name(each.first.found)}"
        )
    for launch in each.confirmed:
        said = launch.outcome.value if launch.outcome is not None else "no verdict"
        why = f": {visible(launch.reason)}" if launch.reason else ""
        lines.append(f"  a fresh process reports {said}{f', {change(launch.ratio)}' if launch.ratio else ''}{why}")
    return lines
