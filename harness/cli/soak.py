"""`tritmark soak`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.cli import options
from tritmark.harness.cli.console import console
from tritmark.harness.cli.exit_status import FAILED, PASSED, UNTRIED

if TYPE_CHECKING:
    from tritmark.harness.soak.soak import SoakResult


def soak(
    minutes: Annotated[float, typer.Option(min=0.01, help="Duration in minutes.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Fixes the Runs, but not where faults strike.")] = 0,
    device: options.Device = "*",
) -> None:
    """Test the harness itself: make random Runs and kill their processes.

    Passes if no result is incorrect, no Run is lost, and the harness does not crash."""
    from tritmark.harness.providers import load
    from tritmark.harness.soak.soak import soak as soaked
    from tritmark.harness.text.units import counted
    from tritmark.harness.text.visible import visible

    progress = console(stderr=True)

    def show(state: SoakResult) -> None:
        progress.print(
            f"{state.seconds:7.0f} s  Runs {state.runs}  calls {state.calls}  faults {state.faults}", end="\r"
        )

    found = soaked(load(), minutes=minutes, seed=seed, device=device, report=show)
    progress.print()
    growth = (
        "unknown"
        if found.growth is None
        else f"{found.growth.median:.3g} (95 %: {found.growth.low:.3g} to {found.growth.high:.3g})"
    )
    for name, value in (
        ("seconds", f"{found.seconds:.0f}"),
        ("calls of kernels", found.calls),
        ("Runs", found.runs),
        ("ops", ", ".join(f"{op} {count}" for op, count in sorted(found.ops.items()))),
        ("faults planted in workers", found.faults),
        ("Runs that report a planted fault", found.attributed),
        ("incorrect results", len(found.wrong)),
        ("Runs that broke without a fault", len(found.unexplained)),
        ("crashes of the harness", len(found.crashes)),
        ("lost Runs", found.lost),
        ("processes left over", found.left_over),
        ("growth of the harness, bytes a call", growth),
    ):
        typer.echo(f"{name}: {value}")
    for each in (*found.wrong, *found.unexplained, *found.crashes):
        typer.echo(visible(each))
    if found.passed:
        typer.echo(f"PASS: {counted(found.faults, 'fault')} planted; no result is incorrect, no Run is lost")
    elif found.failed:
        typer.echo("FAIL: see above")
    else:
        typer.echo("NOT RUN: no fault could be planted; next: a longer test with --minutes")
    raise typer.Exit(PASSED if found.passed else FAILED if found.failed else UNTRIED)
