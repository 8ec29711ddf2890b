"""`tritmark compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.cli import options
from tritmark.harness.cli.console import console
from tritmark.harness.cli.exit_status import FAILED
from tritmark.harness.errors import UsageError

if TYPE_CHECKING:
    from tritmark.harness.store import Store

_MOST = 10
"""Number of differences that are listed."""


def compare(
    a: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="A .safetensors file, a folder of them, a .gguf, an .onnx, or hf:OWNER/NAME. Or a Record, path or id.",
        ),
    ],
    b: Annotated[
        str, typer.Argument(metavar="B", help="The model to compare with A; the same kinds. Or a newer Record.")
    ],
    layout: options.Layout = "",
    weight_scale: options.WeightScale = "",
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="Of two Records: a picture of each kernel's speed in B over A, PNG, SVG or HTML by the suffix.",
            show_default=False,
        ),
    ] = None,
    results: Annotated[Path, typer.Option(metavar="DIR", file_okay=False, help="Folder of Records.")] = Path("results"),
) -> None:
    """Report whether two weight files hold the same model: names, shapes, codes, scales and other values.

    Codes are compared with floats as code times scale. Nothing is quantized.

    Of two Records of one machine, report the speed of each kernel in B over A."""
    from tritmark.harness.store import Store

    store = Store(results)
    records = [_is_record(each, store) for each in (a, b)]
    if all(records):
        if layout or weight_scale:
            raise UsageError("--layout or --weight-scale beside Records; legal: with weight files")
        _records(store.find(a), store.find(b), plot)
        return
    if any(records):
        raise UsageError(f"{a} and {b}: one is a Record, the other is not; legal: two Records, or two weight files")
    if plot is not None:
        raise UsageError(f"--plot {plot} beside weight files; legal: with two Records (.json)")
    _models(a, b, layout, weight_scale)


def _is_record(name: str, store: Store) -> bool:
    """Whether the name is that of a Record: an id, or a .json, which no weight file is."""
    return store.find(name) != Path(name) or (Path(name).suffix == ".json" and not Path(name).is_dir())


def _records(old: Path, new: Path, plot: Path | None) -> None:
    from tritmark.harness.report.compare_plot import compared, rows_of, save
    from tritmark.harness.report.picture import checked
    from tritmark.harness.store import read
    from tritmark.harness.text.table import fit, plain_table
    from tritmark.harness.text.visible import visible

    if plot is not None:
        checked(plot, "--plot")
    found = compared(read(old), read(new))
    screen = console()
    if found.distrust:
        console(stderr=True).print(f"tritmark: {visible(found.distrust)}", style="bold red", soft_wrap=True)
    screen.print(found.headline, style="bold", soft_wrap=True)
    for note in found.notes:
        screen.print(visible(note), soft_wrap=True)
    table = plain_table("Speed of B over A", "kernel", "data", "B over A", "change", right=("B over A",))
    for row in rows_of(found):
        table.add_row(*map(visible, row))
    screen.width = max(screen.width, fit(table, screen.width))
    screen.print(table)
    screen.print("The Records were not interleaved, so a change is no verdict; next: tritmark gate A B", soft_wrap=True)
    if plot is not None:
        screen.print(f"Picture: {save(found, plot)}", soft_wrap=True)


def _models(a: str, b: str, layout: str, weight_scale: str) -> None:
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
