"""`tritmark new`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tritmark.harness.cli import completion


class TemplateKind(StrEnum):
    """What a template is written in."""

    PY = "py"
    C = "c"
    CU = "cu"


def new(
    op: Annotated[str, typer.Argument(metavar="OP", help="What the kernel computes; `tritmark list ops` has them.")],
    kind: Annotated[
        TemplateKind, typer.Option(help="Python, C with its manifest, or CUDA with its manifest.")
    ] = TemplateKind.PY,
    format: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            autocompletion=completion.formats,
            help="The weights' format, of an op that takes any; unless told, one that the template was written for.",
            show_default=False,
        ),
    ] = "",
    out: Annotated[Path, typer.Option(metavar="DIR", file_okay=False, help="Where the files go.")] = Path("."),
) -> None:
    """Write a simple, right kernel to begin with: `tritmark check` passes it as it is."""
    from tritmark.harness.candidate.new import write
    from tritmark.harness.providers import load

    paths = write(load(), op, kind.value, out, format)
    for path in paths:
        typer.echo(path)
    typer.echo(f"Check it with: tritmark check {paths[0]}")
