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

    installed = load()
    console().print(getattr(listings, what.value)(installed))
    tell_problems(installed, traceback=True)
