"""`tritmark soak`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tritmark.harness.cli import options
from tritmark.harness.cli.console import console
from tritmark.harness.cli.exit_status import FAILED, INTERRUPTED, MEANINGS, PASSED, UNTRIED
from tritmark.harness.errors import UsageError

if TYPE_CHECKING:
    from tritmark.harness.soak.kinds import FaultTally, FaultTrial, Soaked
    from tritmark.harness.soak.soak import SoakResult


def soak(
    minutes: Annotated[
        float | None, typer.Option(min=0.01, help="Duration in minutes; 1 by default.", show_default=False)
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            min=1, help="In place of --minutes: number of runs, each with a planted fault.", show_default=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Fixes the Runs, but not where faults strike.")] = 0,
    device: options.Device = "*",
) -> None:
    """Test the harness itself: make random Runs and kill their processes, or plant faults of ten kinds.

    Passes if no result is incorrect, no Run is lost, and the harness does not crash; with --runs, also if at least
    99 % of the faults are named."""
    if runs is not None:
        if minutes is not None:
            raise UsageError("--runs and --minutes are both given; legal: one of the two")
        if device != "*":
            raise UsageError("--device is given beside --runs, which chooses the device of each fault; next: omit it")
        _planted(runs, seed)
    _signals(1.0 if minutes is None else minutes, seed, device)


def _planted(runs: int, seed: int) -> None:
    from tritmark.harness.providers import load
    from tritmark.harness.soak.runs import soak_runs
    from tritmark.harness.text.visible import visible

    progress = console(stderr=True)
    shown = 0

    def show(state: Soaked) -> None:
        nonlocal shown
        total = state.total
        for each in state.bad[shown:]:  # at once: a thousand runs take most of an hour
            progress.print()
            _echo(each)
        shown = len(state.bad)
        progress.print(
            f"{state.seconds:7.0f} s  {total.runs} of {runs} runs  {total.planted} faults  {len(state.bad)} to look at",
            end="\r",
        )

    legal = frozenset(MEANINGS) - {INTERRUPTED}
    found = soak_runs(load(), runs, seed=seed, legal=legal, report=show)
    progress.print()
    console().print(_table(found))
    for kind, why in found.absent.items():
        typer.echo(f"not planted: {kind}: {visible(why)}")
    total = found.total
    typer.echo(f"seconds: {found.seconds:.0f}")
    typer.echo(f"survived: {_share(total.survived, total.planted)}")
    typer.echo(f"named: {_share(total.named, total.to_name)}; the goal is 99 %")
    verdict = f"{total.planted} faults in {total.runs} runs"
    if found.failed:
        typer.echo(f"FAIL: {verdict}; see above")
    elif not found.tried:
        typer.echo(f"NOT RUN: {verdict}, and not every kind took effect; next: more --runs")
    else:
        typer.echo(f"PASS: {verdict}; the harness never died, no figure is incorrect, no Run is lost")
    raise typer.Exit(FAILED if found.failed else PASSED if found.tried else UNTRIED)


def _echo(trial: FaultTrial) -> None:
    """What is wrong with a run, and what its command printed."""
    from tritmark.harness.text.visible import visible

    typer.echo(f"{trial.kind}: {visible(trial.form)} ({trial.seconds:.1f} s)")
    what = [trial.died, *trial.wrong, *(f"lost: {run}" for run in trial.lost)]
    if trial.struck and not trial.named and not trial.harmless:
        what.append("not named")
    for line in (*filter(None, what), *trial.seen.splitlines()):
        typer.echo(f"    {visible(line)}")


def _table(found: Soaked) -> Any:
    from rich.table import Table

    from tritmark.harness.soak.kinds import Kind

    table = Table(box=None, pad_edge=False)
    table.add_column("fault")
    for name in ("runs", "planted", "survived", "to name", "named", "wrong figures", "lost Runs"):
        table.add_column(name, justify="right")

    def row(name: str, of: FaultTally) -> None:
        counts = (of.runs, of.planted, of.survived, of.to_name, of.named, of.wrong, of.lost)
        table.add_row(name, *map(str, counts))

    for kind in Kind:
        if kind not in found.absent:
            row(kind.value, found.of(kind))
    row("total", found.total)
    return table


def _share(successes: int, trials: int) -> str:
    """A share with its exact bound."""
    from tritmark.harness.measure.statistics import least_share

    shown = f"{100 * successes / trials:.1f} %" if trials else "unknown"
    return (
        f"{successes} of {trials} ({shown}; at least {100 * least_share(successes, trials):.2f} % with 95 % confidence)"
    )


def _signals(minutes: float, seed: int, device: str) -> None:
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
