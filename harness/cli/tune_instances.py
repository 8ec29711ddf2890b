"""`tritmark tune instances`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.cli import completion, options
from tritmark.harness.cli.console import console
from tritmark.harness.cli.exit_status import FAILED, PASSED, UNAVAILABLE

if TYPE_CHECKING:
    from tritmark.harness.autotune.tune import Tuned
    from tritmark.harness.providers import Installed
    from tritmark.harness.spec import Axes

_SUITE = "speed"


def instances(
    shape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SIZES",
            help="Sizes in the order of the op's axes, such as 16,2560,2560; repeatable.",
            show_default=False,
        ),
    ] = None,
    suite: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE.toml",
            help=f"The suite whose measured shapes are used; by default '{_SUITE}' if there is no --shape.",
            show_default=False,
            autocompletion=completion.suites,
        ),
    ] = "",
    op: options.Op = "*",
    variant: options.Variant = "*",
    device: options.Device = "*",
    seconds: Annotated[float, typer.Option(min=1, help="Time limit for all of it, with compilation.")] = 120.0,
    seed: options.Seed = None,
) -> None:
    """Measure the fastest instance of a kernel for given shapes on this machine.

    A correct instance that beats the built-in choice is kept for later calls."""
    import secrets

    from tritmark.harness import tuned
    from tritmark.harness.autotune.tune import jobs, tune
    from tritmark.harness.providers import load
    from tritmark.harness.worker import Workers
    from tritmark.harness.worker.process import prepare

    tuned.obeyed()  # raises for an invalid value before anything is measured
    prepare()
    installed = load()
    errors = console(stderr=True)
    asked = list(jobs(installed, _shapes(installed, shape or [], suite, op), variant=variant, device=device))
    missing = {} if asked else _missing(installed, device)
    if missing:
        for name, why in missing.items():
            errors.print(f"tritmark: {name} is missing: {why}", style="red", soft_wrap=True)
        raise typer.Exit(UNAVAILABLE)
    with Workers(installed) as workers:
        found = tune(
            workers,
            asked,
            seconds=seconds,
            seed=secrets.randbits(32) if seed is None else seed,
            report=lambda each: errors.print(_line(each), style="dim", soft_wrap=True),
        )
    _show(found)
    if any(each.chosen for each in found):
        errors.print(f"Choices: {tuned.path()}; {tuned.SELECT}=off ignores them", soft_wrap=True)
    raise typer.Exit(FAILED if any(each.wrong or each.broke for each in found) else PASSED)


def _shapes(installed: Installed, told: list[str], suite: str, glob: str) -> dict[str, list[tuple[Axes, str]]]:
    """The requested shapes with their titles, for each op with instances."""
    from fnmatch import fnmatchcase

    from tritmark.harness.errors import UsageError
    from tritmark.harness.nearest import nearest

    having = dict.fromkeys(each.key.op for each in installed.registry.variants if each.instances is not None)
    ops = [name for name in having if fnmatchcase(name, glob)]
    if not ops:
        raise UsageError(f"--op {glob!r} matches no op whose kernels have several instances; {nearest(glob, having)}")
    if told and suite:
        raise UsageError("both --shape and --suite; legal: one of the two")
    found: dict[str, list[tuple[Axes, str]]] = {name: [] for name in ops}
    for each in told:
        sizes = [int(size) if size.strip().isdecimal() else 0 for size in each.split(",")]
        taking = [name for name in ops if len(installed.ops[name].axes) == len(sizes)]
        if not taking or min(sizes) < 1:
            legal = "; ".join(f"{name}: {','.join(installed.ops[name].axes)}" for name in ops)
            raise UsageError(f"--shape {each!r}; legal: sizes of 1 or more, separated by commas ({legal})")
        for name in taking:
            found[name].append((dict(zip(installed.ops[name].axes, sizes, strict=True)), ""))
    if not told:
        for selected in installed.suite(suite or _SUITE).selected:
            workload = selected.workload
            if workload.op in found and workload.measure and workload.timed:
                found[workload.op].append((dict(workload.axes), workload.title))
    return {
        name: list({tuple(axes.items()): (axes, title) for axes, title in shapes}.values())
        for name, shapes in found.items()
    }


def _missing(installed: Installed, glob: str) -> dict[str, str]:
    """Devices that have kernels with instances and cannot be used here, with the reason."""
    from fnmatch import fnmatchcase

    having = {each.key.device for each in installed.registry.variants if each.instances is not None}
    told = {name: installed.registry.devices[name].missing() for name in sorted(having) if fnmatchcase(name, glob)}
    return {name: why for name, why in told.items() if why is not None}


def _line(each: Tuned) -> str:
    sizes = " ".join(f"{axis}={size}" for axis, size in each.job.axes.items())
    return f"{each.job.variant.id} {sizes}: {len(each.raced)} of {max(0, len(each.names) - 1)} others timed"


def _show(found: list[Tuned]) -> None:
    from tritmark.harness.text import units
    from tritmark.harness.text.table import plain_table
    from tritmark.harness.text.visible import visible

    heads = ("kernel", "shape", "built-in", "time", "kept", "relative time")
    shown = plain_table("", *heads, right=("time",))
    for each in found:
        best = each.confirmed
        shown.add_row(
            visible(each.job.variant.id),
            " ".join(f"{axis}={size}" for axis, size in each.job.axes.items()),
            visible(each.names[0] if each.names else ""),
            units.time(each.builtin_ns),
            visible(each.chosen or "the built-in choice"),
            units.times(None if best is None else best.ratio),
        )
    console().print(shown)
    told = console()
    for each in found:
        place = _line(each).partition(":")[0]
        for kind, reasons in (("is incorrect", each.wrong), ("broke", each.broke)):
            for name, why in reasons.items():
                told.print(visible(f"{place}: {name} {kind}: {why}"), style="red", soft_wrap=True)
        if each.tie:
            told.print(visible(f"{place}: a tie with {each.tie}: the first in the list is kept"), soft_wrap=True)
        if each.note:
            told.print(visible(f"{place}: {each.note}"), soft_wrap=True)
