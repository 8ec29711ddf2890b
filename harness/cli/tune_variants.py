"""`tritmark tune variants`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.cli import completion, options
from tritmark.harness.cli.console import console
from tritmark.harness.cli.exit_status import FAILED, PASSED, UNAVAILABLE
from tritmark.harness.requirement import Requirement

if TYPE_CHECKING:
    from tritmark.harness.providers import Installed
    from tritmark.harness.selection.measure import MeasuredChoice
    from tritmark.harness.selection.placement import MeasuredDevice
    from tritmark.harness.spec import Axes, Op


def variants(
    op: Annotated[str, typer.Argument(help="The op.", autocompletion=completion.ops)],
    shape: Annotated[list[str], typer.Option(metavar="AXES", help="A shape, such as M=1,N=2560,K=2560; repeatable.")],
    requirement: Annotated[
        Requirement,
        typer.Option(
            help="The criterion: latency is the cold time of a call, throughput the hot time, memory the bytes, "
            "exactness the time of variants without an error bound."
        ),
    ] = Requirement.LATENCY,
    format: Annotated[
        str,
        typer.Option(
            metavar="GLOB",
            help="Choose among the variants of each of these formats; by default, for M=1, the format is chosen, too.",
            show_default=False,
        ),
    ] = "",
    dtype: Annotated[
        str, typer.Option(metavar="GLOB", help="Output dtypes; by default that of a linear layer.", show_default=False)
    ] = "",
    device: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The device: cpu, cuda, or one of several GPUs, such as cuda:1. auto: which device is the "
            "fastest for arrays in host memory.",
        ),
    ] = "cpu",
    threads: options.Threads = None,
    why: Annotated[bool, typer.Option("--why", help="Print the fate of each candidate.")] = False,
    seconds: Annotated[float, typer.Option(min=1, help="Time limit for each choice.")] = 60.0,
    seed: options.Seed = None,
) -> None:
    """Measure the best variant of an op for given shapes on this machine.

    It is kept for later calls that do not force a variant."""
    import secrets

    from tritmark.harness import tuned
    from tritmark.harness.errors import UsageError
    from tritmark.harness.nearest import nearest
    from tritmark.harness.providers import load
    from tritmark.harness.selection.measure import measure
    from tritmark.harness.selection.placement import AUTO
    from tritmark.harness.selection.questions import questions
    from tritmark.harness.worker import Workers
    from tritmark.harness.worker.process import prepare

    if not tuned.obeyed():
        raise UsageError(f"{tuned.SELECT} is off, so a choice would have no effect; legal: on")
    prepare()
    installed = load()
    if op not in installed.ops:
        raise UsageError(f"op {op!r}; {nearest(op, installed.ops)}")
    asked = installed.ops[op]
    if device == AUTO:
        if requirement is not Requirement.LATENCY or format or dtype:
            raise UsageError(
                "--requirement, --format or --dtype with --device auto, which times whole calls; legal: none of them"
            )
        drawn = secrets.randbits(32) if seed is None else seed
        _devices(installed, asked, [_axes(asked, each) for each in shape], threads=threads, seconds=seconds, seed=drawn)
    missing = _missing(installed, op, device)
    if missing is not None:
        console(stderr=True).print(f"tritmark: {device} is missing: {missing}", style="red", soft_wrap=True)
        raise typer.Exit(UNAVAILABLE)
    wanted = dtype or (asked.stored.dtype if asked.stored is not None else "*")
    errors, found = console(stderr=True), []
    with Workers(installed) as workers:
        for axes in [_axes(asked, each) for each in shape]:
            for question in questions(
                installed,
                asked,
                axes,
                device=device,
                dtype=wanted,
                format=format,
                requirement=requirement,
                threads=threads,
            ):
                drawn = secrets.randbits(32) if seed is None else seed
                found.append(measure(workers, question, seconds=seconds, seed=drawn))
    _show(found, why)
    if any(each.chosen for each in found):
        errors.print(f"Choices: {tuned.path()}; {tuned.SELECT}=off ignores them", soft_wrap=True)
    raise typer.Exit(FAILED if any(each.failed for each in found) else PASSED)


def _devices(
    installed: Installed, op: Op, shapes: list[Axes], *, threads: int | None, seconds: float, seed: int
) -> None:
    """Measure which device is the fastest for public functions of the op, and exit."""
    from tritmark.harness import tuned
    from tritmark.harness.errors import UsageError
    from tritmark.harness.numbered import numbered
    from tritmark.harness.selection.placement import measure_devices

    known = installed.registry.devices
    others = [name for name, each in known.items() if each.memory is not None and numbered(name) is None]
    missing = {name: _missing(installed, op.name, name) for name in others}
    if None not in missing.values():
        for name, why in missing.items():
            console(stderr=True).print(f"tritmark: {name} is missing: {why}", style="red", soft_wrap=True)
        raise typer.Exit(UNAVAILABLE)
    found = [
        each
        for axes in shapes
        for each in measure_devices(installed, op, axes, threads=threads, seconds=seconds, seed=seed)
    ]
    if not found:
        raise UsageError(f"{op.name} has no public function on several devices; legal: see docs/python.md")
    _show_devices(found)
    if any(each.chosen for each in found):
        console(stderr=True).print(f"Choices: {tuned.path()}; {tuned.SELECT}=off ignores them", soft_wrap=True)
    raise typer.Exit(FAILED if any(each.failed for each in found) else PASSED)


def _show_devices(found: list[MeasuredDevice]) -> None:
    from tritmark.harness.text import units
    from tritmark.harness.text.table import plain_table
    from tritmark.harness.text.visible import visible

    shown = plain_table("", "call", "shapes", "time of a call", "kept")
    for each in found:
        sizes = " ".join(f"{axis}={size}" for axis, size in each.call.axes.items())
        times = ", ".join(f"{name} {units.time(ns)}" for name, ns in each.times_ns.items())
        shown.add_row(visible(each.call.place), sizes, times, each.chosen or "nothing")
    told = console()
    told.print(shown)
    for each in found:
        place = visible(each.call.place)
        if each.note:
            told.print(f"{place}: nothing is kept: {visible(each.note)}", soft_wrap=True)
        for name, why in each.why.items():
            style = "red" if name in each.failed else None
            told.print(f"{place}: {name}: {visible(why)}", style=style, soft_wrap=True)


def _missing(installed: Installed, op: str, device: str) -> str | None:
    """Why the device cannot be used here, or None. Raises NoCompatibleKernelError for an unknown device,
    DeviceUnavailableError for a simulated one: a choice would be taken for that of the device itself."""
    from tritmark.harness.autotune.tune import untimed
    from tritmark.harness.errors import DeviceUnavailableError

    found = installed.registry.device(device, f"{op} on {device!r}")
    if found.simulated():
        raise DeviceUnavailableError(
            f"{device} is simulated: {untimed(found)}, so no choice can be measured",
            next_step=f"run it where {device} is not simulated",
        )
    return found.missing()


def _axes(op: Op, told: str) -> Axes:
    from tritmark.harness.errors import UsageError

    pairs = dict(each.partition("=")[::2] for each in told.replace(" ", "").split(","))
    sizes = {axis: int(size) for axis, size in pairs.items() if size.isdecimal()}
    if set(pairs) != set(op.axes) or sizes.keys() != pairs.keys() or min(sizes.values()) < 1:
        legal = ",".join(f"{axis}=SIZE" for axis in op.axes)
        raise UsageError(f"--shape {told!r}; legal: {legal}, sizes of 1 or more")
    return {axis: sizes[axis] for axis in op.axes}


def _show(found: list[MeasuredChoice], why: bool) -> None:
    from tritmark.harness.registry import ROWS, fewest
    from tritmark.harness.text import units
    from tritmark.harness.text.table import plain_table
    from tritmark.harness.text.units import counted
    from tritmark.harness.text.visible import visible

    shown = plain_table("", "choice between", "shapes", "threads", "built-in", "kept", "relative time")
    for each in found:
        question = each.question
        axes = {axis: size for axis, size in question.axes.items() if axis != "threads"}
        least = fewest(axes)
        ranges = [
            f"{axis}={least[axis]}..{size}" if axis == ROWS and least[axis] != size else f"{axis}={size}"
            for axis, size in axes.items()
        ]
        kept = each.chosen or "nothing"
        shown.add_row(
            visible(question.place),
            " ".join(ranges),
            str(question.threads),
            visible(question.builtin.id),
            visible("the built-in choice" if each.chosen == question.builtin.id else kept),
            units.times(each.ratio),
        )
    told = console()
    told.print(shown)
    for each in found:
        place = visible(each.question.place)
        if each.tie_ratio is not None:
            kept, other = map(_short, each.tie)
            times = units.times(each.tie_ratio)
            told.print(
                f"{place}: a tie: {visible(kept)} takes {times} of {visible(other)}'s time, within noise; the built-in "
                "order and then the name decide",
                soft_wrap=True,
            )
        if each.note:
            told.print(f"{place}: nothing is kept: {visible(each.note)}", soft_wrap=True)
        listed = {name: reason for name, reason in each.why.items() if why or name in each.failed}
        if listed:
            told.print(f"\n{place}, {counted(each.question.threads, 'thread')}:", soft_wrap=True)
        for name, reason in listed.items():
            style = "red" if name in each.failed else None
            told.print(f"  {visible(_short(name))}: {visible(reason)}", style=style, soft_wrap=True)


def _short(id: str) -> str:
    """Format, dtype and name; the line above has device and op."""
    return "/".join(id.split("/")[2:])
