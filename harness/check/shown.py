"""A verdict as text, for a terminal, and for a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from tritmark.harness.check.facts import CheckFacts, KernelVerdict
from tritmark.harness.record import Status
from tritmark.harness.text import units
from tritmark.harness.text.visible import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES = {Status.PASS: "green", Status.FAIL: "bold red", Status.ERROR: "bold red", Status.AMBIGUOUS: "yellow"}
_COLOURS = {Status.PASS: "#1a7f37", Status.FAIL: "#b3261e", Status.ERROR: "#b3261e", Status.AMBIGUOUS: "#8a6100"}


def headline(verdict: CheckFacts) -> str:
    """FAIL (accuracy.values): my.kernel."""
    code = "" if verdict.code == "pass" else f" ({verdict.code})"
    return f"{verdict.status.value.upper()}{code}: {', '.join(visible(each.kernel) for each in verdict.kernels)}"


def rows(kernel: KernelVerdict) -> Iterator[tuple[str, str, Status | None]]:
    """Each fact: its name, its text, and the status of a dimension."""
    for name, each in kernel.dimensions.items():
        where = f" on {each.workload}" if each.workload else ""
        reason = f"{where}: {visible(each.reason)}" if each.reason else ""
        yield name, f"{each.status.value.upper()}{reason}", each.status
    for limit in kernel.limits:
        yield "not judged", visible(limit), None
    if kernel.first is not None:
        yield "first difference", visible(str(kernel.first)), None
    if kernel.failing is not None:
        size = ", ".join(f"{axis}={value}" for axis, value in kernel.failing.axes.items())
        yield "smallest failing input", f"{size} ({kernel.failing.family}), {visible(kernel.failing.file)}", None
        yield "replay", visible(kernel.failing.command), None
    for speed in kernel.speed:
        parts = [f"{units.time(speed.time_ns)} {speed.data}"]
        if speed.speedup is not None:
            parts.append(f"{units.number(speed.speedup)}x the speed of {visible(kernel.best.rpartition('/')[2])}")
        if speed.ceiling_fraction is not None:
            parts.append(f"{units.percent(speed.ceiling_fraction)} of the ceiling ({speed.ceiling})")
        yield speed.workload, ", ".join(parts), None
    if kernel.score is not None:
        yield "score", f"{kernel.score:.3f} (0: {visible(kernel.baseline.rpartition('/')[2])}, 1: the ceiling)", None
    for step in kernel.next:
        gain = f"{step.gain.low:.2f}x to {step.gain.high:.2f}x"
        yield "next", f"{visible(step.title)}, {gain}: {visible(step.edit)}", None


def text(verdict: CheckFacts) -> str:
    """The verdict in lines; also what a failed assertion shows."""
    lines = [headline(verdict)]
    for kernel in verdict.kernels:
        if len(verdict.kernels) > 1:
            lines.append(visible(kernel.kernel))
        lines += [f"  {name}: {fact}" for name, fact, _ in rows(kernel)]
    lines += [f"  not available: {visible(each)}" for each in verdict.not_available]
    return "\n".join([*lines, f"  {_footer(verdict)}"])


def renderable(verdict: CheckFacts) -> RenderableType:
    """The verdict for a terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    found: list[RenderableType] = [Text(headline(verdict), style=_STYLES.get(verdict.status, ""))]
    for kernel in verdict.kernels:
        if len(verdict.kernels) > 1:
            found.append(Text(visible(kernel.kernel), style="bold"))
        table = Table(show_header=False, box=None, pad_edge=False)
        table.add_column(overflow="fold")
        table.add_column(overflow="fold")  # paths and commands stay whole
        for name, fact, status in rows(kernel):
            table.add_row(Text(name, style="dim"), Text(fact, style=_STYLES.get(status, "") if status else ""))
        found.append(table)
    found += [Text(f"not available: {visible(each)}", style="yellow") for each in verdict.not_available]
    return Group(*found, Text(_footer(verdict), style="dim"))


def html(verdict: CheckFacts) -> str:
    """The verdict for a notebook: one table for each kernel, without a script."""
    parts = [f"<p><b style='color:{_COLOURS.get(verdict.status, 'inherit')}'>{escape(headline(verdict))}</b></p>"]
    for kernel in verdict.kernels:
        caption = f"<caption>{escape(visible(kernel.kernel))}</caption>" if len(verdict.kernels) > 1 else ""
        body = "".join(
            f"<tr><th style='text-align:left;vertical-align:top'>{escape(name)}</th>"
            f"<td style='text-align:left;color:{_COLOURS.get(status, 'inherit') if status else 'inherit'}'>"
            f"{escape(fact)}</td></tr>"
            for name, fact, status in rows(kernel)
        )
        parts.append(f"<table>{caption}{body}</table>")
    parts += [f"<p>not available: {escape(visible(each))}</p>" for each in verdict.not_available]
    return f"<div>{''.join(parts)}<p><small>{escape(_footer(verdict))}</small></p></div>"


def _footer(verdict: CheckFacts) -> str:
    record = f"Record: {visible(verdict.record)}; " if verdict.record else ""
    return f"{record}seed {verdict.seed}; {verdict.seconds:.1f} s"
