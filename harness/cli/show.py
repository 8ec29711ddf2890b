"""A Record that was made: its page, what is said of it, and where it lies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tritmark.harness.cli.console import console

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
    told: Callable[[], None] | None = None,
    seconds: float | None = None,
) -> None:
    """`told` tells the Record in place of what `tritmark run` says."""
    errors = console(stderr=True)
    page: Path | None = None
    try:
        page = _report(record, store)
    except OSError as error:
        errors.print(f"tritmark: the report cannot be written: {error}", style="red", soft_wrap=True)
    if as_json:
        from tritmark.harness.record import with_digest

        typer.echo(with_digest(record), nl=False)
    else:
        (told or partial(_tell, record, every=every))()
    if not record.passed:
        errors.print(f"Repeat with --seed {record.environment.seed}")
    # The Record must be alone on standard output, paths then go elsewhere.
    paths = errors if as_json else console()
    path = store.path(record.id)
    paths.print(f"Record: {path} ({_size(path)})", soft_wrap=True)
    if page is not None:
        paths.print(f"Report: {page} ({_size(page)})", soft_wrap=True)
    if seconds is not None:
        paths.print(f"Time: {seconds:.1f} s", soft_wrap=True)


def _size(path: Path) -> str:
    nbytes = path.stat().st_size
    return f"{nbytes / 1e6:.2f} MB" if nbytes >= 1e5 else f"{nbytes / 1e3:.0f} kB"


def _tell(record: Record, *, every: bool) -> None:
    """The verdict first, then a line for each op and format; what every variant did at every shape where there is
    room, or `every`."""
    from tritmark.harness.cli import tables

    out = console()
    paragraphs(out, [tables.verdict(record)], list(tables.failures(record)), tables.best(record, out.width))
    if any(not layer.format for layer in record.layers):
        paragraphs(out, [tables.layers(record)])
    if every or out.width >= tables.ROOM_FOR_DETAILS:
        paragraphs(out, tables.details(record))
        paragraphs(out, tables.threads(record))
    elif record.runs:
        paragraphs(out, ["Every variant at every shape: --table, a wider terminal, or the report."])
    left_out = tables.not_run(record)
    paragraphs(out, [left_out] if left_out is not None else [], list(tables.lanes(record)))
    paragraphs(out, list(tables.stored(record)))


def paragraphs(out: Console, *parts: Iterable[Any]) -> None:
    """Tables, and lists of lines, with an empty line after each."""
    for part in parts:
        for each in part:
            out.print(each)
            if not isinstance(part, list):
                out.print("")
        if isinstance(part, list) and part:
            out.print("")


def _report(record: Record, store: Store) -> Path:
    from tritmark.harness.cli.report import given_for
    from tritmark.harness.report import build

    return build(record, store.html, given_for(record, store, path=str(store.path(record.id))))
