"""`tritmark convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tritmark.harness.cli import options
from tritmark.harness.cli.console import console


def convert(
    source: Annotated[
        str,
        typer.Argument(metavar="IN", help="A .safetensors file, a folder of them, a .gguf, or hf:OWNER/NAME."),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A .gguf or .safetensors file, new or to be replaced.")],
    format: Annotated[str, typer.Option(metavar="NAME", help="The format of its ternary matrices.")],
    layout: options.Layout = "",
    weight_scale: options.WeightScale = "",
) -> None:
    """Write a model's ternary weights in another format: the same codes and scales, or nothing."""
    from tritmark.harness.cli.progress import Following, ProgressLine
    from tritmark.harness.providers import load
    from tritmark.harness.text.units import size
    from tritmark.harness.weights import Conventions, holders_of
    from tritmark.harness.weights.convert import convert as converted

    with ProgressLine(console(stderr=True)) as line:
        asked = Conventions(layout, weight_scale)
        found = converted(source, out, format, holders_of(load()), asked, Following(line))
        line.advance()
    told = f"{found.matrices} matrices in {format}, {found.others} other tensors as they were, {size(found.nbytes)}"
    console().print(f"{out}: {told}; read back, and the same", soft_wrap=True)
