"""`tritmark doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.console import console
from tritmark.harness.status import FAILED, PASSED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tritmark.harness.doctor.check import Check

_STYLES = {"ok": "green", "absent": "dim", "could be better": "yellow", "mend": "bold red"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON and nothing else.")] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", file_okay=False, help="Where Records would go.")] = Path("results"),
) -> None:
    """Say whether this machine is fit for measuring, and what to do about what is not, and fail where something has to be mended."""
    from tritmark.harness.doctor.check import State

    checks = list(examined(out))
    well = all(each.state is not State.MEND for each in checks)
    if as_json:
        import json
        from dataclasses import asdict

        typer.echo(json.dumps({"well": well, "checks": [asdict(each) for each in checks]}, indent=1))
    else:
        show(checks)
    raise typer.Exit(PASSED if well else FAILED)


def examined(out: Path) -> Iterator[Check]:
    """Every check, in the order in which things are needed. Takes about two seconds."""
    from tritmark.harness.doctor import gpu, host, noise, tools
    from tritmark.harness.doctor.check import Check, State
    from tritmark.harness.errors import TritmarkError
    from tritmark.harness.providers import load
    from tritmark.harness.record import HOST

    means = "what `tritmark run` judges and measures"
    installed = None
    try:
        installed = load()
        keys = dict.fromkeys(variant.key for variant in installed.registry.variants)
        usable = sum(refusal is None for key in keys for _, refusal in installed.registry.candidates(key))
        forced = [f"the environment forces {name}" for device in installed.registry.devices.values() if (name := device.forced())]
    except (TritmarkError, ImportError) as error:
        yield Check("kernels", State.MEND, str(error), means, "install tritmark again: pip install --force-reinstall .")
    else:
        found = f"{usable} of {len(installed.registry.variants)} variants run here"
        if forced:
            yield Check("kernels", State.BETTER, "; ".join([found, *forced]), means, "unset it to have the best ones measured too")
        else:
            yield Check("kernels", State.OK, found, means)
        for problem in installed.problems:
            yield Check("packages", State.MEND, str(problem), problem.traceback.rstrip(), "mend that package, or remove it")
    yield host.compiler()
    there = gpu.present()
    yield gpu.driver(there)
    yield gpu.packages(there)
    if installed is not None:
        yield from gpu.toolkits(installed, there)
    yield from gpu.counters()
    yield host.cores()
    yield host.huge_pages()
    yield host.governor()
    if installed is not None and HOST in installed.registry.devices:
        yield from noise.noise(installed.registry.devices[HOST])
    yield host.counters()
    yield from tools.tools()
    yield host.disk(out)


def show(checks: list[Check]) -> None:
    """Each check in a line, with what it means below, and what to do."""
    from rich.text import Text

    from tritmark.harness.doctor.check import State
    from tritmark.harness.report.text import visible

    screen = console()
    for each in checks:
        state = Text(f"{each.state.value:<15}", style=_STYLES[each.state.value])
        screen.print(state + Text(f" {each.name}: {visible(each.found)}"), soft_wrap=True)
        for line in each.means.splitlines():
            screen.print(Text(f"{'':15} {visible(line)}", style="dim"), soft_wrap=True)
        if each.mend:
            screen.print(Text(f"{'':15} -> {visible(each.mend)}"), soft_wrap=True)
    mend = [each.name for each in checks if each.state is State.MEND]
    screen.print(f"\nTo be mended: {', '.join(mend)}" if mend else "\nFit for measuring.")
