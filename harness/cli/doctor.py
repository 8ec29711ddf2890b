"""`tritmark doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.cli.console import console
from tritmark.harness.cli.exit_status import FAILED, PASSED

if TYPE_CHECKING:
    from tritmark.harness.doctor.check import Check

_STYLES = {"ok": "green", "absent": "dim", "could be better": "yellow", "mend": "bold red"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print only the checks, as JSON.")] = False,
    out: Annotated[
        Path, typer.Option(metavar="DIR", file_okay=False, help="Folder for Records; checked for room.")
    ] = Path("results"),
) -> None:
    """Check whether this machine is fit for measuring, and show how to fix each problem.

    Fails if something must be fixed."""
    from tritmark.harness.doctor import examine
    from tritmark.harness.doctor.check import State

    checks = list(examine.examined(out))
    well = all(each.state is not State.MEND for each in checks)
    if as_json:
        import json
        from dataclasses import asdict

        typer.echo(json.dumps({"well": well, "checks": [asdict(each) for each in checks]}, indent=1))
    else:
        show(checks)
    raise typer.Exit(PASSED if well else FAILED)


def show(checks: list[Check]) -> None:
    """Print a line for each check, then its meaning and the fix."""
    from rich.text import Text

    from tritmark.harness.doctor.check import State
    from tritmark.harness.text.visible import visible

    screen = console()
    for each in checks:
        state = Text(f"{each.state.value:<15}", style=_STYLES[each.state.value])
        screen.print(state + Text(f" {each.name}: {visible(each.found)}"), soft_wrap=True)
        for line in (each.means, *each.traceback.splitlines()):
            screen.print(Text(f"{'':15} {visible(line)}", style="dim"), soft_wrap=True)
        if each.mend:
            screen.print(Text(f"{'':15} -> {visible(each.mend)}"), soft_wrap=True)
    mend = [each.name for each in checks if each.state is State.MEND]
    screen.print(f"\nTo be fixed: {', '.join(mend)}" if mend else "\nFit for measuring.")
