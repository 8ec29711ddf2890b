"""`tritmark precision`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.cli import options
from tritmark.harness.cli.console import console
from tritmark.harness.cli.exit_status import FAILED, UNAVAILABLE
from tritmark.harness.errors import DeviceUnavailableError, UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from tritmark.harness.precision import PrecisionTable, Shape

_SHAPES = ("4096x4096x4096", "2048x2560x6912", "512x2560x2560")
"""A square product for the peak, and a prompt and a batch through published layers."""


def precision(
    shapes: Annotated[
        list[str] | None,
        typer.Argument(metavar="MxNxK", help=f"Products to measure; by default {', '.join(_SHAPES)}."),
    ] = None,
    error: Annotated[
        float | None,
        typer.Option(
            metavar="E",
            min=0.0,
            help="The largest admitted relative error, in the Frobenius norm; by default any.",
            show_default=False,
        ),
    ] = None,
    seed: options.Seed = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the table, as JSON, on standard output.")] = False,
    out: options.Out = Path("results"),
) -> None:
    """Measure a product in every precision of the GPU, and pick the fastest that is exact enough."""
    from importlib.metadata import version

    from tritmark.harness.precision import PrecisionTable, fastest, totals
    from tritmark.harness.providers import load
    from tritmark.harness.report.page import put

    wanted = [_shape(text) for text in shapes or _SHAPES]
    measures = [provider.precisions for provider in load().providers.values() if provider.precisions is not None]
    if not measures:
        raise UsageError("no installed package measures precisions; legal: one with `precisions` in its Provider")
    try:
        (measured, *_) = (measure(wanted, seed or 0) for measure in measures)
    except DeviceUnavailableError as why:
        console(stderr=True).print(f"tritmark: {why}", style="red", soft_wrap=True)
        raise typer.Exit(UNAVAILABLE) from None
    now = datetime.now(UTC)
    made = PrecisionTable(
        created=now.isoformat(timespec="seconds"),
        tritmark=version("tritmark"),
        device=measured.device,
        seed=seed or 0,
        error=error,
        results=measured.results,
        chosen=fastest(measured.results, error),
        totals=totals(measured.results),
    )
    try:
        path = put(out / "precision", f"{now:%Y%m%dT%H%M%SZ}.json", f"{made.model_dump_json(indent=1)}\n")
    except OSError as problem:
        raise UsageError(f"{out / 'precision'}: the table cannot be written: {problem}") from problem
    if as_json:
        typer.echo(made.model_dump_json(indent=1))
    else:
        console().print(_table(made))
    shown = console(stderr=as_json)
    for name, mode in made.chosen.items():
        limit = "" if error is None else f" with an error of at most {error:g}"
        shown.print(f"{name}: {mode or 'no mode'}{limit}", style=None if mode else "red", soft_wrap=True)
    shown.print(f"Precisions: {path}", soft_wrap=True)
    if None in made.chosen.values():
        raise typer.Exit(FAILED)


def _shape(text: str) -> Shape:
    try:
        M, N, K = (int(part) for part in text.lower().split("x"))
    except ValueError:
        M = N = K = 0
    if min(M, N, K) < 1:
        raise UsageError(
            f"{text!r} is not a product; legal: three sizes of at least 1, such as 512x2560x2560 (M, N, K)"
        )
    return M, N, K


def _table(made: PrecisionTable) -> Table:
    from tritmark.harness.precision import named
    from tritmark.harness.text import units
    from tritmark.harness.text.table import plain_table
    from tritmark.harness.text.visible import visible

    heads = ("shape", "mode", "product", "TFLOP/s", "conversion", "call", "error", "of bound", "memory", "up", "down")
    shown = plain_table(visible(made.device), *heads, right=heads[2:])
    for each in made.results:
        best = made.chosen[named(each.shape)] == each.mode
        shown.add_row(
            named(each.shape),
            f"{visible(each.mode)}{' *' if best else ''}",
            units.time(each.product_ns),
            f"{each.tflops:.1f}",
            units.time(each.conversion_ns) if each.conversion_ns else "",
            units.time(each.call_ns),
            f"{each.relative_error:.1e}",
            f"{each.share_of_bound:.2f}",
            units.size(each.device_bytes),
            units.size(each.uploaded),
            units.size(each.downloaded),
        )
    for total in made.totals if len(made.chosen) > 1 else ():
        shown.add_row(
            f"all {total.shapes}",
            visible(total.mode),
            units.time(total.product_ns),
            "",
            units.time(total.conversion_ns) if total.conversion_ns else "",
            units.time(total.call_ns),
            "",
            "",
            units.size(total.device_bytes),
            units.size(total.uploaded),
            units.size(total.downloaded),
        )
    return shown
