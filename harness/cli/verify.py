"""`tritmark verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tritmark.harness.cli import completion
from tritmark.harness.cli.console import console
from tritmark.harness.cli.exit_status import FAILED, PASSED


def verify(
    record: Annotated[
        str,
        typer.Argument(metavar="RECORD", autocompletion=completion.records, help="Path or id; by default the newest."),
    ] = "",
    allow_simulated: Annotated[
        bool,
        typer.Option("--allow-simulated", help="Accept simulated devices, which prove correctness and claim no speed."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the checks, as JSON.")] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", file_okay=False, help="Folder of Records.")] = Path("results"),
) -> None:
    """Check a Record: it is unchanged, its figures follow from its samples, and receipts prove its GPU claims."""
    from tritmark.harness import verify as verification
    from tritmark.harness.store import Store

    store = Store(out)
    found = verification.verify(store.find(record) if record else store.latest(), allow_simulated=allow_simulated)
    if as_json:
        import json

        checks = [
            {"name": each.name, "status": each.status.lower(), "told": each.detail, "faults": each.faults}
            for each in found.checks
        ]
        typer.echo(json.dumps({"record": found.id, "passed": found.passed, "checks": checks}, indent=1))
    else:
        from tritmark.harness.text.visible import visible

        screen = console()
        for each in found.checks:
            for line in each.lines:
                screen.print(visible(line), style="bold red" if each.faults else None, soft_wrap=True)
    raise typer.Exit(PASSED if found.passed else FAILED)
