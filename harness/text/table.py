"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from tritmark.harness.text import units


def plain_table(title: str, *columns: str, right: Iterable[str] = ()) -> Table:
    """A table without lines. Columns named in `right` are right-aligned."""
    made = Table(title=title, title_justify="left", show_edge=False, pad_edge=False, box=None, header_style="bold")
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def filled_table(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[str | Text]], right: Iterable[str] = ()
) -> Table:
    """A plain table with its rows, without empty columns."""
    shown = [number for number in range(len(heads)) if any(str(row[number]) not in {"", units.NONE} for row in rows)]
    table = plain_table(title, *(heads[number] for number in shown), right=right)
    for row in rows:
        table.add_row(*(row[number] for number in shown))
    return table


def fit(table: Table, width: int) -> int:
    """Set the widths of the columns and return that of the table: at most `width`, but enough for the longest words.

    Cells are broken only between words. Rich would break words before it narrows another column."""
    cells = [[str(cell) for cell in (column.header, *column.cells)] for column in table.columns]
    least = [max((cell_len(word) for cell in of for word in cell.split()), default=0) for of in cells]
    widths = [max(map(cell_len, of)) for of in cells]
    _, right, _, left = table.padding
    between = (right + left) * (len(widths) - 1)
    while sum(widths) + between > width:
        room = [number for number, taken in enumerate(widths) if taken > least[number]]
        if not room:
            break
        # Figures are broken last.
        text = [number for number in room if table.columns[number].justify == "left"]
        widths[max(text or room, key=lambda number: widths[number])] -= 1
    for column, taken in zip(table.columns, widths, strict=True):
        column.width = taken
    return sum(widths) + between
