"""`tritmark list`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tritmark.harness.cli.console import console
from tritmark.harness.cli.problems import tell_problems


class Listing(StrEnum):
    """A kind of things to list."""

    OPS = "ops"
    VARIANTS = "variants"
    FORMATS = "formats"
    WORKLOADS = "workloads"


def list_(what: Annotated[Listing, typer.Argument(help="ops, variants, formats or workloads.")]) -> None:
    """List the installed ops, variants, formats or workloads, and what this machine can run."""
    from tritmark.harness.cli import listings
    from tritmark.harness.providers import load
    from tritmark.harness.text.table import fit

    installed = load()
    table, screen = getattr(listings, what.value)(installed), console()
    if not any(column.no_wrap for column in table.columns):
        fit(table, screen.width)
    screen.print(table)
    tell_problems(installed, traceback=True)
