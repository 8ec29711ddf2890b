"""`tritmark list`."""

from __future__ import annotations

from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated

import typer

from tritmark.harness.cli import options
from tritmark.harness.cli.console import console
from tritmark.harness.cli.problems import tell_problems


class Listing(StrEnum):
    """A kind of things to list."""

    OPS = "ops"
    VARIANTS = "variants"
    FORMATS = "formats"
    WORKLOADS = "workloads"


def list_(
    what: Annotated[Listing, typer.Argument(help="ops, variants, formats or workloads.")], op: options.Op = "*"
) -> None:
    """List the installed ops, variants, formats or workloads, and what this machine can run."""
    from tritmark.harness.cli import listings
    from tritmark.harness.errors import UsageError
    from tritmark.harness.nearest import nearest
    from tritmark.harness.providers import load
    from tritmark.harness.text.table import fit

    installed = load()
    if not any(fnmatchcase(each, op) for each in installed.ops):
        raise UsageError(f"--op {op!r} matches no op; {nearest(op, installed.ops)}")
    if what is Listing.FORMATS:
        if op != "*":
            raise UsageError("formats are not listed by op; legal with --op: ops, variants, workloads")
        table = listings.formats(installed)
    else:
        table = getattr(listings, what.value)(installed, op)
    screen = console()
    if not any(column.no_wrap for column in table.columns):
        fit(table, screen.width)
    screen.print(table)
    tell_problems(installed, traceback=True)
