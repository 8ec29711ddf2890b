"""`tritmark frame`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.cli import completion
from tritmark.harness.cli.console import console
from tritmark.harness.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table


class TableFormat(StrEnum):
    """The file format of the table."""

    CSV = "csv"
    PARQUET = "parquet"


def frame(
    records: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECORDS",
            autocompletion=completion.records,
            help="Paths, ids, or patterns of these; by default all in DIR.",
        ),
    ] = None,
    to: Annotated[TableFormat, typer.Option(help="csv, or parquet, which keeps the types.")] = TableFormat.CSV,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", dir_okay=False, help="The file to write; by default CSV on standard output."),
    ] = None,
    samples: Annotated[bool, typer.Option("--samples", help="A row for each sample instead of each Run.")] = False,
    columns: Annotated[bool, typer.Option("--columns", help="Print only a description of the columns.")] = False,
    results: Annotated[Path, typer.Option(metavar="DIR", file_okay=False, help="Folder of Records.")] = Path("results"),
) -> None:
    """Write Records as one table, CSV or Parquet, for pandas and spreadsheets."""
    if columns:
        console().print(described())
        return
    if to is TableFormat.PARQUET and out is None:
        raise UsageError("--to parquet without --out: Parquet is binary; legal: --out FILE")
    from tritmark.harness.frame import table
    from tritmark.harness.store import Store
    from tritmark.harness.text.units import counted
    from tritmark.harness.text.visible import visible

    made = table.table(table.find(records or [], Store(results)), samples=samples)
    for id in dict.fromkeys(made["record"][~made["believed"]]):
        text = f"tritmark: NOT BELIEVED: tritmark verify refutes {visible(id)}; see the column believed"
        console(stderr=True).print(text, style="bold red", soft_wrap=True)
    if out is None:
        typer.echo(table.csv(made), nl=False)
        return
    table.write(out, table.csv(made).encode() if to is TableFormat.CSV else table.parquet(made))
    console(stderr=True).print(
        f"{counted(len(made), 'row')}, {counted(len(made.columns), 'column')}: {out}", soft_wrap=True
    )


def described() -> Table:
    """A table that describes the columns."""
    from tritmark.harness.frame.columns import AXES, COLUMNS, SAMPLES
    from tritmark.harness.text.table import plain_table

    shown = plain_table("Columns", "column", "type", "unit", "what it holds")
    for column in COLUMNS:
        shown.add_row(column.name, column.kind, column.unit, column.description)
    for row in (AXES, *SAMPLES):
        shown.add_row(*row)
    return shown
