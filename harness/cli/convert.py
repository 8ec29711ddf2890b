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
        typer.Argument(
            metavar="IN", help="A .safetensors file, a folder of them, a .gguf, an .onnx, or hf:OWNER/NAME."
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A .gguf or .safetensors file; replaced if it exists.")],
    format: Annotated[str, typer.Option(metavar="NAME", help="The format of the ternary matrices in OUT.")],
    layout: options.Layout = "",
    weight_scale: options.WeightScale = "",
    quantize: Annotated[
        str,
        typer.Option(
            metavar="absmean",
            help="Quantize linear layers whose floats are not ternary, by BitNet's rule; by default they stay floats.",
            show_default=False,
        ),
    ] = "",
) -> None:
    """Convert a model's ternary weights to another format, with the same codes and scales or not at all."""
    from tritmark.harness.cli.progress import ProgressCallback, ProgressLine
    from tritmark.harness.providers import load
    from tritmark.harness.text.units import counted, size
    from tritmark.harness.text.visible import visible
    from tritmark.harness.weights import Conventions, holders_of
    from tritmark.harness.weights.convert import convert as converted

    with ProgressLine(console(stderr=True)) as line:
        asked = Conventions(layout, weight_scale)
        found = converted(source, out, format, holders_of(load()), asked, ProgressCallback(line), quantize=quantize)
        line.advance()
    matrices = counted(found.matrices, "matrix", "matrices")
    text = f"{matrices} in {format}, {counted(found.others, 'other tensor')} unchanged, {size(found.nbytes)}"
    console().print(f"{out}: {text}; read back and identical", soft_wrap=True)
    if found.quantized:
        lossy = f"Quantized from floats with {quantize}: {counted(found.quantized, 'matrix', 'matrices')}; {found.loss}"
        console().print(lossy, soft_wrap=True)
    if found.floats:
        text = f"Floats that are not ternary stay floats: {counted(found.floats, 'linear layer')}"
        console().print(f"{text}; --quantize absmean quantizes them", soft_wrap=True)
    if found.aside:
        names = visible(", ".join(found.aside))
        console().print(f"Not read, because they are not part of the model: {names}", soft_wrap=True)
