"""`tritmark errors`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.cli.console import console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tritmark.harness.recovery.history import PastFailure


def errors(
    since: Annotated[
        str,
        typer.Option(metavar="TIME", help="Only failures since this day or time in UTC: 2026-11-29, 2026-11-29T08."),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on standard output.")] = False,
) -> None:
    """List the failures of kernels in calls with on_error="recover", what gave the result instead, and what to do.

    The list has the failures of this user on this machine. The oldest are dropped at 1 MiB."""
    from tritmark.harness.recovery import history
    from tritmark.harness.text.visible import visible

    first = _time(since)
    found = history.read()
    failures = [each for each in found.failures if each.created >= first]
    if found.unreadable:
        typer.echo(f"tritmark: {visible(str(history.path()))}: {found.unreadable} lines are cut off", err=True)
    if as_json:
        import json
        from dataclasses import asdict

        told = {"version": 1, "failures": [asdict(each) for each in failures], "unreadable": found.unreadable}
        typer.echo(json.dumps(told, indent=1))
        return
    if not failures:
        typer.echo("no failures are recorded" + (f" since {first}" if first else ""))
        return
    show(failures)


def show(failures: Sequence[PastFailure]) -> None:
    """Print a line for each failure, then what to do about each kind."""
    from rich.text import Text

    from tritmark.harness.recovery import Strategy
    from tritmark.harness.text.table import filled_table, fit

    heads = ("time (UTC)", "kernel", "failure", "answered by", "result of", "lost, s")
    rows = [
        (
            _line(each.created),
            _line(each.kernel or each.op),
            _line(f"{each.kind}: {each.code}" if each.code else str(each.kind)),
            "refused" if each.strategy is Strategy.NONE else str(each.strategy),
            _line(each.replacement),
            f"{each.seconds_lost:.3g}",
        )
        for each in failures
    ]
    screen = console()
    table = filled_table("", heads, rows, right=("lost, s",))
    fit(table, screen.width)
    screen.print(table)
    refused = sum(each.strategy is Strategy.NONE for each in failures)
    count = "1 failure" if len(failures) == 1 else f"{len(failures)} failures"
    screen.print(f"\n{count}, {refused} without a result")
    for kind in dict.fromkeys(each.kind for each in failures):
        same = [each for each in failures if each.kind is kind]
        kernels = list(dict.fromkeys(each.kernel or each.op for each in same))
        more = f" and {len(kernels) - 3} more" if len(kernels) > 3 else ""
        screen.print(f"\n{kind} ({len(same)}): {_line(', '.join(kernels[:3]))}{more}", soft_wrap=True)
        screen.print(Text(f"  last: {_line(same[-1].found)}", style="dim"), soft_wrap=True)
        screen.print(f"  -> {_line(same[-1].advice)}", soft_wrap=True)


def _line(text: str) -> str:
    r"""The text on one line, newlines as \n: a kernel's message must not look like lines of this command."""
    from tritmark.harness.text.visible import visible

    return visible(text).replace("\n", "\\n")


def _time(given: str) -> str:
    """The time as entries have it, or a beginning of it, which sorts before. Raises UsageError."""
    from datetime import UTC, datetime

    from tritmark.harness.errors import UsageError

    if not given:
        return ""
    try:
        found = datetime.fromisoformat(given)
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(
            f"--since is {given!r}; legal: a day or a time, such as 2026-11-29 or 2026-11-29T08:30"
        ) from None
    return f"{found.replace(tzinfo=None).isoformat(timespec='seconds')}Z"
