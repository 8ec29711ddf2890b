"""`tritmark new`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tritmark.harness.cli import completion


class TemplateKind(StrEnum):
    """The language of a template."""

    PY = "py"
    C = "c"
    CU = "cu"


def new(
    op: Annotated[str, typer.Argument(metavar="OP", help="The op of the kernel; `tritmark list ops` shows all.")],
    kind: Annotated[TemplateKind, typer.Option(help="Python, or C or CUDA with a manifest.")] = TemplateKind.PY,
    format: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            autocompletion=completion.formats,
            help="The format of the weights, for ops that take several; by default the template's own.",
            show_default=False,
        ),
    ] = "",
    out: Annotated[Path, typer.Option(metavar="DIR", file_okay=False, help="Folder for the files.")] = Path("."),
) -> None:
    """Write a simple, correct kernel to start from; it passes `tritmark check`."""
    from tritmark.harness.candidate.new import write
    from tritmark.harness.providers import load

    paths = write(load(), op, kind.value, out, format)
    for path in paths:
        typer.echo(path)
    typer.echo(f"Check it with: tritmark check {paths[0]}")
