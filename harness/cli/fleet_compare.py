"""`tritmark fleet compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.cli import options
from tritmark.harness.cli.console import console
from tritmark.harness.cli.exit_status import FAILED, PASSED
from tritmark.harness.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from tritmark.harness.fleet.comparison import FleetComparison

_MOST_CHANGES = 20
"""Rows on the terminal; the page has all."""


def compare(
    sets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SET]...",
            help="Ids of sets, or folders with runs/; several are merged. By default the newest set.",
            show_default=False,
        ),
    ] = None,
    against: Annotated[
        str,
        typer.Option(metavar="SET", help="An earlier set: report which figures are slower now.", show_default=False),
    ] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print only the comparison, as JSON, on standard output.")
    ] = False,
    out: options.Out = Path("results"),
) -> None:
    """Compare the machines of a set: which kernel is the fastest where, percent of the ceiling, and regressions.

    Exits with 1 if a figure is slower than in the earlier set."""
    from tritmark.harness.fleet.comparison import compared
    from tritmark.harness.fleet.merge import merged
    from tritmark.harness.fleet.page import write
    from tritmark.harness.fleet.sets import find
    from tritmark.harness.store import Store

    folders = list(dict.fromkeys(find(name, out) for name in sets or [""]))
    earlier = find(against, out) if against else None
    if earlier is not None and earlier.resolve() in {folder.resolve() for folder in folders}:
        raise UsageError(f"--against {against!r} is among the sets themselves; legal: an earlier set")
    found = compared(merged(folders), None if earlier is None else merged([earlier]))
    try:
        page = write(found, Store(out).html)
    except OSError as error:
        raise UsageError(f"{Store(out).html}: the page cannot be written: {error}") from error
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
    else:
        _show(found)
    console(stderr=as_json).print(f"Page: {page}", soft_wrap=True, markup=False)
    raise typer.Exit(FAILED if found.slower else PASSED)


def _show(found: FleetComparison) -> None:
    from tritmark.harness.cli.show import paragraphs
    from tritmark.harness.fleet.page import MARKS, changes, different, headline
    from tritmark.harness.text.units import counted
    from tritmark.harness.text.visible import visible

    screen = console()
    lines = [headline(found)]
    for title, items in (
        ("Failed", found.failures),
        ("Not run", found.not_run),
        ("Left out", found.left_out),
        ("Different", different(found)),
    ):
        lines += [f"{title}: {each}" for each in items]
    for each in found.machines:
        compared = f"; {changes(each)}" if found.against else ""
        lines.append(f"{each.label}: {each.description}, machine {each.machine}, {counted(each.runs, 'Run')}{compared}")
    if found.repeated:
        lines.append(f"{counted(found.repeated, 'Run')} with a newer one of the same machine: not counted")
    for line in lines:
        screen.print(visible(line), soft_wrap=True, markup=False)
    screen.print("")
    if found.changes:
        paragraphs(screen, (_changes(found),))
        if len(found.changes) > _MOST_CHANGES:
            screen.print(f"{counted(len(found.changes) - _MOST_CHANGES, 'more change')} on the page\n")
    if found.rows:
        paragraphs(screen, (_fastest(found),))
        screen.print(MARKS, soft_wrap=True, markup=False)
    else:
        screen.print("No kernel was timed.")


def _fastest(found: FleetComparison) -> Table:
    from tritmark.harness.fleet.page import figures, kernel
    from tritmark.harness.text.table import plain_table
    from tritmark.harness.text.visible import visible

    shown = plain_table("Fastest kernels", "kernel", "shape", *(visible(each.label) for each in found.machines))
    for row in found.rows:
        cells = [
            f"{kernel(cell)}{' *' if cell.fastest else ''}, {figures(cell)}" if cell.variant else cell.reason
            for cell in row.cells
        ]  # fmt: skip
        shown.add_row(*map(visible, (row.name, row.shape, *cells)))
    return shown


def _changes(found: FleetComparison) -> Table:
    from tritmark.harness.text import units
    from tritmark.harness.text.table import plain_table
    from tritmark.harness.text.visible import visible

    shown = plain_table("Changes since the earlier set", "change", "kind", "kernel", "workload", "data", "speed")
    for each in found.changes[:_MOST_CHANGES]:
        shown.add_row(
            each.change.value,
            *map(visible, (each.label, each.kernel, each.workload)),
            each.temperature,
            units.times(each.speed),
        )
    return shown
