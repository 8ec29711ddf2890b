"""`tritmark history`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tritmark.harness.cli.exit_status import FAILED, PASSED


def history(
    since: Annotated[
        str, typer.Option(metavar="REV|DATE", help="Only regressions after this commit, or from this day on.")
    ] = "",
    everything: Annotated[bool, typer.Option("--all", help="Those that were reverted too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on standard output.")] = False,
    results: Annotated[Path, typer.Option(metavar="DIR", file_okay=False, help="Where asv keeps its results.")] = Path(
        "results/asv"
    ),
    register_machine: Annotated[
        bool, typer.Option("--register-machine", help="Tell asv what this machine is called, print the name, and end.")
    ] = False,
) -> None:
    """List what became slower over the commits that asv measured."""
    from tritmark.harness.history.identity import register

    if register_machine:
        typer.echo(register())
        return
    from tritmark.harness.history import regressions as found_by
    from tritmark.harness.history.results import values
    from tritmark.harness.text.visible import visible

    def told(text: str) -> None:
        typer.echo(f"tritmark: {visible(text)}", err=True)

    commits = found_by.order(Path.cwd())
    first = found_by.since(since, Path.cwd(), commits) if since else 0
    measured = list(values(results, told))
    found = [each for each in found_by.regressions(measured, commits, told) if commits[each.bad] >= first]
    standing = [each for each in found if each.reverted is None]
    shown = found if everything else standing
    count = len({each.commit for each in measured})
    if as_json:
        import json

        typer.echo(
            json.dumps({"version": 1, "commits": count, "regressions": [each.told() for each in shown]}, indent=1)
        )
    else:
        for each in shown:
            typer.echo(visible(each.line()))
        typer.echo(f"{len(standing)} regressions stand, over {count} commits measured")
    raise typer.Exit(FAILED if standing else PASSED)
