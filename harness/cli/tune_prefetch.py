"""`tritmark tune prefetch`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.cli import completion, options
from tritmark.harness.cli.console import console
from tritmark.harness.cli.exit_status import UNAVAILABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tritmark.harness.record import TunedPrefetch
    from tritmark.harness.spec import Device

_OFF = (
    "Not measured: disabled hardware prefetchers. Disabling them takes root on bare metal, because they are controlled "
    "by registers of the processor (MSR 0x1A4 on Intel), and affects every process."
)


def prefetch(
    device: Annotated[
        str,
        typer.Option(metavar="NAME", help="The device to tune.", autocompletion=completion.devices),
    ] = "cpu",
    threads: options.Threads = None,
    seconds: Annotated[float, typer.Option(min=1, help="Time limit for all of it.")] = 30.0,
    seed: options.Seed = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the results, as JSON.")] = False,
) -> None:
    """Measure the fastest prefetch distance for weights on this machine.

    A distance that beats the built-in one is kept for later calls."""
    import secrets

    from tritmark.harness import prefetched, tuned
    from tritmark.harness.autotune.prefetch import tune_prefetch
    from tritmark.harness.providers import load

    obeyed = tuned.obeyed()  # raises for an invalid value before anything is measured
    installed, errors = load(), console(stderr=True)
    found = _device(installed.registry.devices, device)
    missing = found.missing()
    asked = [] if missing else list(found.prefetching())
    if not asked:
        why = missing or "no kernel on this processor has a prefetch distance to tune"
        errors.print(f"tritmark: {device}: {why}", style="red", soft_wrap=True)
        raise typer.Exit(UNAVAILABLE)
    told = [
        tune_prefetch(
            installed,
            found,
            each,
            threads=threads or found.cores(),
            seconds=seconds / len(asked),
            seed=secrets.randbits(32) if seed is None else seed,
        )
        for each in asked
    ]
    if as_json:
        typer.echo(f"[{', '.join(each.model_dump_json(indent=1) for each in told)}]")
        return
    for each in told:
        _show(each)
    errors.print(f"Kept in {prefetched.path()}; {tuned.SELECT}=off ignores it", soft_wrap=True)
    if not obeyed:
        errors.print(f"{tuned.SELECT} is off, so the result has no effect", soft_wrap=True)


def _device(known: Mapping[str, Device], name: str) -> Device:
    """The device of that type. Raises UsageError for a device without prefetch distances."""
    from tritmark.harness.errors import UsageError
    from tritmark.harness.nearest import nearest
    from tritmark.harness.spec import Device

    plain = Device.__dataclass_fields__["prefetching"].default
    tunable = [each for each in known.values() if each.prefetching is not plain]
    for each in tunable:
        if each.type == name:
            return each
    legal = nearest(name, [each.type for each in tunable])
    more = "; instances of its kernels: tritmark tune instances --device " + name if name in known else ""
    raise UsageError(f"device {name!r} has no prefetch distance to tune; {legal}{more}")


def _show(found: TunedPrefetch) -> None:
    from tritmark.harness.text import units
    from tritmark.harness.text.table import plain_table
    from tritmark.harness.text.visible import visible

    screen = console()
    screen.print(
        visible(
            f"{found.op} at {'; '.join(found.shapes)}, threads {found.threads}; times relative to no software prefetch"
        ),
        soft_wrap=True,
    )
    shown = plain_table("", "prefetch", "cold", "hot", "", right=())
    for each in found.figures:
        marks = [
            words for words, name in (("built in", found.builtin), ("chosen", found.chosen)) if name == each.strategy
        ]
        shown.add_row(
            visible(units.prefetch(each.strategy)),
            units.times(each.cold),
            units.times(each.hot),
            ", ".join(marks),
        )
    screen.print(shown)
    verdict = (
        f"Chosen: {units.prefetch(found.chosen)}, confirmed at {units.times(found.confirmed)} of the built-in time"
        if found.chosen
        else f"Kept the built-in: {units.prefetch(found.builtin)}" + (f" ({found.note})" if found.note else "")
    )
    screen.print(visible(verdict), soft_wrap=True)
    screen.print(_OFF, soft_wrap=True)
