"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table


def plain_table(title: str, *columns: str, right: Iterable[str] = ()) -> Table:
    """A table without lines; the columns named in `right` are aligned to the right."""
    made = Table(title=title, title_justify="left", show_edge=False, pad_edge=False, box=None, header_style="bold")
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made
