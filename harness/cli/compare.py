"""`tritmark compare`."""

from __future__ import annotations

from typing import Annotated

import typer

from tritmark.harness.cli import options
from tritmark.harness.cli.console import console
from tritmark.harness.cli.exit_status import FAILED

_MOST = 10
"""Number of differences that are listed."""


def compare(
    a: Annotated[
        str,
        typer.Argument(metavar="A", help="A .safetensors file, a folder of them, a .gguf, an .onnx, or hf:OWNER/NAME."),
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="The model to compare with A; the same kinds.")],
    layout: options.Layout = "",
    weight_scale: options.WeightScale = "",
) -> None:
    """Report whether two weight files hold the same model: names, shapes, codes, scales and other values.

    Codes are compared with floats as code times scale. Nothing is quantized."""
    from tritmark.harness.cli.progress import ProgressCallback, ProgressLine
    from tritmark.harness.providers import load
    from tritmark.harness.text.units import counted
    from tritmark.harness.text.visible import visible
    from tritmark.harness.weights import Conventions, holders_of
    from tritmark.harness.weights.compare import compare as compared

    with ProgressLine(console(stderr=True)) as line:
        found = compared(a, b, holders_of(load()), Conventions(layout, weight_scale), ProgressCallback(line))
        line.advance()
    if found.aside:
        names = visible(", ".join(found.aside))
        console().print(f"Not read, because they are not part of the model: {names}", soft_wrap=True)
    ternary = counted(found.matrices, "ternary matrix", "ternary matrices")
    counts = f"{ternary} and {counted(found.others, 'other tensor')} in both"
    if not found.differences:
        console().print(f"The same model: {counts}, without a difference", soft_wrap=True)
        return
    console().print(f"Different: {counts}; {counted(len(found.differences), 'difference')}; the first:", soft_wrap=True)
    for each in found.differences[:_MOST]:
        also = f" ({each.other_name} in {b})" if each.other_name else ""
        console().print(visible(f"{each.name}: {each.what}: {each.description}{also}"), soft_wrap=True)
    raise typer.Exit(FAILED)
