"""`tritmark sweep`."""

from __future__ import annotations

import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.cli import completion, options
from tritmark.harness.cli.console import console
from tritmark.harness.cli.exit_status import UNAVAILABLE

if TYPE_CHECKING:
    from rich.table import Table

    from tritmark.harness.sweep import Sweep
    from tritmark.harness.sweep.points import SweepGrid


def sweep(
    op: Annotated[str, typer.Argument(metavar="OP", autocompletion=completion.ops, help="The op.")],
    axis: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=SIZES",
            help="Sizes of an axis: M=1..4096 (powers of two), M=1..4096:x1.5 (a factor), M=1,2,8 (a list). "
            "Repeatable; the first one with several sizes is that of the plot.",
        ),
    ],
    variant: options.Variant = "*",
    format: Annotated[
        str,
        typer.Option(metavar="GLOB", autocompletion=completion.formats, help="Only these formats of weights."),
    ] = "*",
    dtype: Annotated[str, typer.Option(metavar="GLOB", help="Only these dtypes of the output.")] = "*",
    device: options.Numbered = "*",
    threads: options.Threads = None,
    seed: options.Seed = None,
    timeout: options.Timeout = 120.0,
    resume: Annotated[
        str,
        typer.Option(
            metavar="RUN", autocompletion=completion.interrupted, help="Continue an interrupted sweep, by id or folder."
        ),
    ] = "",
    out: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="The picture, PNG, SVG or HTML by its suffix; repeatable. By default DIR/sweeps/ID.html.",
            show_default=False,
        ),
    ] = None,
    frame: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", dir_okay=False, help="Write the table, CSV or Parquet by its suffix.", show_default=False
        ),
    ] = None,
    as_json: options.Json = False,
    results: Annotated[Path, typer.Option(metavar="DIR", file_okay=False, help="Folder of Records.")] = Path("results"),
) -> None:
    """Time kernels of an op over the sizes of an axis; write a Record and a picture of times, rates and ceilings.

    By default the best kernel of each format is timed."""
    began = monotonic()
    from functools import partial

    from tritmark.harness.record.facts import ask
    from tritmark.harness.worker.process import prepare

    ask()
    prepare()
    from tritmark.harness.cli.execute import executed, seed_of
    from tritmark.harness.cli.outcome import status_of
    from tritmark.harness.cli.show import show
    from tritmark.harness.frame.table import suffix_checked, write_table
    from tritmark.harness.judge.planning import chosen_devices, missing
    from tritmark.harness.providers import load
    from tritmark.harness.report.picture import checked
    from tritmark.harness.store import Store
    from tritmark.harness.sweep.api import Sweep
    from tritmark.harness.sweep.axes import merged
    from tritmark.harness.sweep.page import save
    from tritmark.harness.sweep.plan import SweepOptions, planned

    for each in out or ():
        checked(each, "--out")
    if frame is not None:
        suffix_checked(frame, "--frame")
    installed = load()
    installed.choose(device)
    chosen = SweepOptions(
        op=op,
        axes=merged(axis),
        variant=variant,
        format=format,
        dtype=dtype,
        device=device,
        threads=threads,
        timeout_s=timeout,
    )
    plan, store = planned(installed, chosen), Store(results)
    request = plan.request(seed_of(seed, store, resume or None), ("tritmark", *sys.argv[1:]))
    absent = missing(installed, request)
    for name, why in absent.items() if device != "*" else ():
        console(stderr=True).print(f"tritmark: {name} is missing: {why}", style="red", soft_wrap=True)
    if absent.keys() == chosen_devices(installed, request).keys():
        raise typer.Exit(UNAVAILABLE)
    record = executed(installed, request, store, resume or None)
    found = Sweep(record, plan, store.path(record.id))
    show(record, store, as_json, report=partial(_tell, found), seconds=monotonic() - began)
    paths = console(stderr=as_json)
    if frame is not None:
        write_table(frame, found.frame)
        paths.print(f"Table: {frame}", soft_wrap=True)
    if not found.grids:
        text = "nothing was timed, so there is no picture; the reasons are above"
        console(stderr=True).print(f"tritmark: {text}", style="yellow", soft_wrap=True)
    else:
        if not out:
            (results / "sweeps").mkdir(parents=True, exist_ok=True)
        for each in out or [results / "sweeps" / f"{record.id}.html"]:
            paths.print(f"Picture: {save(found, each)}", soft_wrap=True)
    raise typer.Exit(status_of(record, strict=False))


def _tell(found: Sweep) -> None:
    """Print the notes, then the fastest kernel at each size, and where it changes."""
    from tritmark.harness.cli.show import paragraphs
    from tritmark.harness.sweep.page import crossings, headline, notes
    from tritmark.harness.text.visible import visible

    screen = console()
    screen.print(headline(found), style="bold", soft_wrap=True)
    for note in notes(found):
        screen.print(visible(note), style="yellow", soft_wrap=True)
    for grid in found.grids:
        paragraphs(screen, (_table(grid),))
        for each in crossings(grid):
            screen.print(visible(each), soft_wrap=True)


def _table(grid: SweepGrid) -> Table:
    """The fastest kernel at each size."""
    from tritmark.harness.sweep.page import rate
    from tritmark.harness.text import units
    from tritmark.harness.text.table import plain_table
    from tritmark.harness.text.visible import visible

    heads = (grid.along, "fastest", "time", "rate", "ceil.")
    shown = plain_table(visible(grid.place), *heads, right=(grid.along, *heads[2:]))
    for size in sorted({point.size for line in grid.lines for point in line.points}):
        at = [(point, line) for line in grid.lines for point in line.points if point.size == size]
        point, line = min(at, key=lambda each: (each[0].too_noisy, each[0].ns))
        time = f"{units.time(point.ns)}, {units.NOISY}" if point.too_noisy else units.time(point.ns)
        shown.add_row(f"{size:,}", visible(line.label), time, rate(grid, point), units.percent(point.share))
    return shown
