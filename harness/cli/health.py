"""`tritmark health`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread, Timer
from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.cli import options
from tritmark.harness.cli.console import console
from tritmark.harness.cli.exit_status import AMBIGUOUS, FAILED, PASSED, UNAVAILABLE, UNJUDGED

if TYPE_CHECKING:
    from tritmark.harness.health.examine import HealthReport
    from tritmark.harness.health.finding import Severity
    from tritmark.harness.spec import Device

LONGEST_S, PASSIVE_S = 90.0, 20.0
"""Time limits of a probe. It takes a few seconds; the first one with a GPU also compiles a kernel."""

KEEP_S = 3.0
"""Time limit for adding a probe that did not end to the history."""

_STYLES = {"ok": "green", "absent": "dim", "warning": "yellow", "unknown": "magenta", "critical": "bold red"}


def health(
    device: options.Device = "*",
    as_json: Annotated[bool, typer.Option("--json", help="Print only the result, as JSON.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help=f"Exit with {AMBIGUOUS} for a warning, too.")] = False,
    passive: Annotated[
        bool, typer.Option("--passive", help="Only read sensors and counters: run nothing, measure no noise.")
    ] = False,
    history: Annotated[bool, typer.Option("--history", help="Print earlier probes, and probe nothing.")] = False,
    out: Annotated[
        Path, typer.Option(metavar="DIR", file_okay=False, help="Folder for Records; checked for room.")
    ] = Path("results"),
) -> None:
    """Check whether this machine and its GPUs are healthy now, and since when. For cron jobs and probes.

    The exit status shows the worst finding: 0 for ok, 1 for critical, 5 for unknown; 0 or, with --strict, 4 for a
    warning."""
    if history:
        _show_history(as_json)
        raise typer.Exit(PASSED)
    from tritmark.harness.health.examine import examined

    with _deadline(PASSIVE_S if passive else LONGEST_S, as_json=as_json):
        report = examined(_devices(device), out, passive=passive)
    _print(report, as_json=as_json)
    raise typer.Exit(status_of(report.overall, strict=strict))


@contextmanager
def _deadline(seconds: float, *, as_json: bool) -> Iterator[None]:
    """End the command as critical if the block takes longer: a driver that hangs answers no call, for hours."""
    watchdog = Timer(seconds, _give_up, (seconds, as_json))
    watchdog.daemon = True
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()


def _give_up(seconds: float, as_json: bool) -> None:
    from tritmark.harness.health.examine import keep_unanswered, unanswered

    report = unanswered(seconds)
    _print(report, as_json=as_json)
    sys.stdout.flush()
    keeper = Thread(target=keep_unanswered, args=(report,), daemon=True)  # the disk may be what hangs
    keeper.start()
    keeper.join(KEEP_S)
    os._exit(FAILED)  # the main thread is inside a call that does not return


def _print(report: HealthReport, *, as_json: bool) -> None:
    if as_json:
        import json
        from dataclasses import asdict

        typer.echo(json.dumps(asdict(report), indent=1))
    else:
        show(report)


def status_of(overall: Severity, *, strict: bool) -> int:
    """The exit status for the worst severity."""
    from tritmark.harness.health.finding import Severity

    return {
        Severity.CRITICAL: FAILED,
        Severity.UNKNOWN: UNJUDGED,
        Severity.WARNING: AMBIGUOUS if strict else PASSED,
    }.get(overall, PASSED)


def _devices(glob: str) -> list[Device]:
    """The devices that a glob or the name of a type selects. If one was requested and none is present, ends the command
    with UNAVAILABLE."""
    from fnmatch import fnmatchcase

    from tritmark.harness.errors import UsageError
    from tritmark.harness.nearest import nearest
    from tritmark.harness.numbered import numbered
    from tritmark.harness.providers import load

    registry = load().registry
    every = registry.every()
    found = [
        each
        for each in every
        if fnmatchcase(each.type, glob) or fnmatchcase((numbered(each.type) or (each.type,))[0], glob)
    ]
    known = numbered(glob)
    if not found and known is not None and known[0] in registry.devices:
        why = registry.number(glob)  # the only device of a type has no number there
        found = [] if why else [registry.devices[glob]]
        if why:
            _unavailable(why)
    if not found:
        raise UsageError(f"--device {glob!r}; {nearest(glob, [each.type for each in every])}")
    missing = [each.missing() for each in found]
    if glob != "*" and None not in missing and missing[0] is not None:
        _unavailable(missing[0])
    return found


def _unavailable(why: str) -> None:
    console(stderr=True).print(f"tritmark: {why}", style="red", soft_wrap=True)
    raise typer.Exit(UNAVAILABLE)


def show(report: HealthReport) -> None:
    """Print a line for each check; for one that is not in order also what is, since when, and the next step."""
    from rich.text import Text

    from tritmark.harness.text.visible import visible

    screen = console()
    for each in report.findings:
        severity = each.severity.value
        text = f" {each.unit}: {each.name}: {visible(each.found)}"
        screen.print(Text(f"{severity:<9}", style=_STYLES[severity]) + Text(text), soft_wrap=True)
        if severity not in {"ok", "absent"}:
            when = f"since {each.since}" if each.since else "new" if report.last else ""
            for line in (when, f"in order: {each.legal}" if each.legal else ""):
                if line:
                    screen.print(Text(f"{'':9} {visible(line)}", style="dim"), soft_wrap=True)
        if each.next_step:
            screen.print(Text(f"{'':9} -> {visible(each.next_step)}"), soft_wrap=True)
    for note in report.notes:
        screen.print(Text(f"{'note':<9} {visible(note)}", style="dim"), soft_wrap=True)
    units = ", ".join(f"{unit} {severity.value}" for unit, severity in report.units.items())
    unread = f" Not read: {', '.join(report.unread)}." if report.unread else ""
    last = f"Last probe: {report.last or 'none'}."
    screen.print(f"\nOverall: {report.overall.value} ({units}).{unread} {last}", soft_wrap=True)


def _show_history(as_json: bool) -> None:
    from tritmark.harness.errors import BadEnvironmentError
    from tritmark.harness.health.history import HealthHistory
    from tritmark.harness.text.visible import visible

    kept = HealthHistory()
    try:
        probes, broken = kept.probes()
    except OSError as problem:
        raise BadEnvironmentError(
            f"{kept.path}: {problem.strerror or problem}", next_step="make it readable, or set TRITMARK_STATE"
        ) from None
    if as_json:
        import json

        typer.echo(json.dumps([probe.model_dump(mode="json") for probe in probes], indent=1))
        return
    for probe in probes:
        parts = [f"{each.severity.value} {each.unit}: {each.name}: {each.found}" for each in probe.findings]
        findings = "; ".join([*parts, *(f"not read {name}" for name in probe.unread)])
        typer.echo(visible(f"{probe.at}  {probe.overall.value:<8}  {findings}".rstrip()))
    if not probes:
        typer.echo(f"No probe of this machine is in {kept.path}; next: tritmark health")
    if broken:
        console(stderr=True).print(f"tritmark: {broken} lines of {kept.path} cannot be read", soft_wrap=True)
