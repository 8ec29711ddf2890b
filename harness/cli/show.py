"""Shows a new Record: writes its page, prints its summary, and prints the paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tritmark.harness.cli.console import console
from tritmark.harness.errors import BadEnvironmentError

if TYPE_CHECKING:
    from rich.console import Console

    from tritmark.harness.record import Record
    from tritmark.harness.store import Store


def show(
    record: Record,
    store: Store,
    as_json: bool,
    *,
    every: bool = False,
    report: Callable[[], None] | None = None,
    seconds: float | None = None,
) -> None:
    """Print the Record, then the paths of the Record and its page, the next command, and the duration. `report` prints
    the Record in place of the output of `tritmark run`."""
    from tritmark.harness.cli import overview

    errors = console(stderr=True)
    page: Path | None = None
    try:
        page = _report(record, store)
    except OSError as error:
        errors.print(f"tritmark: the report cannot be written: {error}", style="red", soft_wrap=True)
    path = store.path(record.id)
    try:
        if as_json:
            from tritmark.harness.record import with_digest

            typer.echo(with_digest(record), nl=False)
            for line in overview.failures(record):
                errors.print(line, soft_wrap=True)
        else:
            (report or partial(_tell, record, every=every))()
    except BadEnvironmentError:
        errors.print(f"Record: {path} ({_size(path)})", soft_wrap=True)
        raise
    # With --json, standard output has only the Record.
    paths = errors if as_json else console()
    paths.print(f"Record: {path} ({_size(path)})", soft_wrap=True)
    if page is not None:
        paths.print(f"Report: {page} ({_size(page)})", soft_wrap=True)
    paths.print(f"Next: {_further(record)}", soft_wrap=True)
    if seconds is not None:
        paths.print(f"Time: {seconds:.1f} s", soft_wrap=True)


def _further(record: Record) -> str:
    """The next command and its purpose."""
    from tritmark.harness.cli import overview
    from tritmark.harness.text import commands
    from tritmark.harness.text.outcome import outcome

    if not outcome(record).passed:
        return f"{commands.of_failure(record)}  # repeats the same data"
    if overview.noisy(record):
        return "tritmark doctor  # what disturbs measurements here"
    if record.proposals:
        return f"{commands.of_advice(record)}  # proposed optimizations"
    return f"{commands.of_report(record)} --open  # every kernel at every shape"


def _size(path: Path) -> str:
    nbytes = path.stat().st_size
    return f"{nbytes / 1e6:.2f} MB" if nbytes >= 1e5 else f"{nbytes / 1e3:.0f} kB"


def _tell(record: Record, *, every: bool) -> None:
    """Print failures, the verdict, at most ten lines of overview with them, and what was not judged. With `every`,
    print all Runs, too."""
    from tritmark.harness.cli import overview, tables

    out = console()
    failed, doubted = overview.failures(record), overview.suspicions(record)
    most = max(1, overview.MOST_LINES - len(failed) - len(doubted))
    best = overview.fastest(record, out.width, most) or overview.right(record, most)
    paragraphs(out, failed, [tables.verdict(record)], doubted, () if best is None else (best,))
    changed = overview.layers(record, overview.MOST_LINES if best is None else overview.MOST_LINES // 2)
    paragraphs(out, tables.stored(record), () if changed is None else (changed,))
    if every:
        if any(not layer.format for layer in record.layers):
            paragraphs(out, (tables.layers(record),))
        paragraphs(out, tables.best(record, out.width), tables.details(record), tables.threads(record))
        left_out = tables.not_run(record)
        paragraphs(out, () if left_out is None else (left_out,))
    paragraphs(out, [*tables.quantized(record), *tables.lanes(record)], list(tables.not_judged(record)))


def paragraphs(out: Console, *parts: Iterable[Any]) -> None:
    """Print tables and lists of lines, with an empty line after each. A table whose words do not fit the terminal is
    printed wider, so that no text is cut off."""
    from rich.table import Table

    from tritmark.harness.text.table import fit

    width = out.width
    for part in parts:
        for each in part:
            if isinstance(each, Table):
                out.width = max(width, fit(each, width))
            out.print(each)
            out.width = width
            if not isinstance(part, list):
                out.print("")
        if isinstance(part, list) and part:
            out.print("")


def _report(record: Record, store: Store) -> Path:
    from tritmark.harness.cli.report import given_for
    from tritmark.harness.report import build

    return build(record, store.html, given_for(record, store, path=str(store.path(record.id))))
