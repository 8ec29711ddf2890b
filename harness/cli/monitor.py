"""`tritmark monitor`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.cli.console import console
from tritmark.harness.cli.examples import epilog
from tritmark.harness.cli.exit_status import FAILED, PASSED
from tritmark.harness.cli.once import Once
from tritmark.harness.errors import UsageError

if TYPE_CHECKING:
    from tritmark.harness.monitor.summary import Report

monitor = typer.Typer(
    name="monitor",
    help="Sessions of programs that ran with TRITMARK_MONITOR=1 or inside `with tritmark.monitor():`.",
    epilog=epilog("monitor"),
    no_args_is_help=True,
)
_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class MonitorFormat(StrEnum):
    """The form of the report."""

    TEXT = "text"
    HTML = "html"
    JSON = "json"


@monitor.callback()
def _root() -> None:
    """Typer would make a group of one command that command."""


def report(
    since: Annotated[
        str, typer.Option(metavar="AGE|DAY", help="Sessions that began since then: 90m, 12h, 7d, 4w or 2026-01-31.")
    ] = "7d",
    program: Annotated[str, typer.Option(metavar="NAME", help="Only sessions of this program.")] = "",
    format: Annotated[
        MonitorFormat, typer.Option("--format", help="html: write a page and print its path.")
    ] = MonitorFormat.TEXT,
    database: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="Sessions; default: in the state folder.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", file_okay=False, help="Folder of pages, and of Records with ceilings."),
    ] = Path("results"),
) -> None:
    """Report what ran, trends, slow-downs, health and advice.

    Exits with 1 if a kernel was slower in its newest session than earlier ones predict."""
    from tritmark.harness.monitor.ceilings import stored
    from tritmark.harness.monitor.database import Database
    from tritmark.harness.monitor.summary import as_json, summarize

    found = summarize(Database(database), since=_moment(since), program=program, ceilings=stored(out))
    if format is MonitorFormat.JSON:
        import json

        typer.echo(json.dumps(as_json(found), indent=1))
    elif format is MonitorFormat.HTML:
        _write(found, out)
    else:
        from tritmark.harness.monitor.text import show

        show(found, console())
    raise typer.Exit(FAILED if found.slower else PASSED)


def _write(found: Report, out: Path) -> None:
    from tritmark.harness.monitor.page import build

    try:
        typer.echo(build(found, out / "html"))
    except OSError as error:
        raise UsageError(f"{out}: the page cannot be written: {error}") from error


def _moment(text: str) -> float:
    """Seconds since 1970."""
    import time
    from datetime import UTC, datetime

    number, unit = text[:-1], text[-1:]
    try:
        if number.isdecimal() and unit in _UNITS:
            return max(0.0, time.time() - int(number) * _UNITS[unit])
        day = datetime.fromisoformat(text)
        return (day if day.tzinfo else day.replace(tzinfo=UTC)).astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        legal = "a number with m, h, d or w, such as 7d, or a day such as 2026-01-31 (UTC)"
        raise UsageError(f"--since is {text!r}; legal: {legal}") from None


monitor.command("report", cls=Once, epilog=epilog("monitor report"))(report)
