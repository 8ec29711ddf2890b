"""`tritmark history`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tritmark.harness.cli.exit_status import FAILED, PASSED


def history(
    since: Annotated[
        str, typer.Option(metavar="REV|DATE", help="Only regressions after this commit or since this day.")
    ] = "",
    everything: Annotated[bool, typer.Option("--all", help="Include regressions that were reverted.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on standard output.")] = False,
    results: Annotated[Path, typer.Option(metavar="DIR", file_okay=False, help="Folder of asv's results.")] = Path(
        "results/asv"
    ),
    register_machine: Annotated[
        bool, typer.Option("--register-machine", help="Register this machine with asv, print its name, and exit.")
    ] = False,
    unmeasured: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            show_default=False,
            help="Print every N-th commit after the last one measured on this machine, for asv run HASHFILE:-",
        ),
    ] = None,
) -> None:
    """List regressions over the commits that asv measured on this machine.

    Regressions on other machines are listed separately and do not change the exit status."""
    from tritmark.harness.history.identity import machine_name, register

    if register_machine:
        typer.echo(register())
        return
    from tritmark.harness.history import regressions as found_by
    from tritmark.harness.history.results import values
    from tritmark.harness.machine.repository import must_be_whole
    from tritmark.harness.text.units import counted
    from tritmark.harness.text.visible import visible

    def warn(text: str) -> None:
        typer.echo(f"tritmark: {visible(text)}", err=True)

    commits = found_by.order(Path.cwd())
    if unmeasured is not None:
        from tritmark.harness.history.unmeasured import unmeasured as found_unmeasured

        here = {each.commit for each in values(results, warn) if each.machine == machine_name()}
        if not here <= commits.keys():  # otherwise of another branch
            must_be_whole(Path.cwd(), "a commit that was measured")
        for commit in found_unmeasured(commits, here, unmeasured):
            typer.echo(commit)
        return
    first = found_by.since(since, Path.cwd(), commits) if since else 0
    measured = list(values(results, warn))
    if any(each.commit not in commits for each in measured):
        must_be_whole(Path.cwd(), "a commit that was measured")
    found = [each for each in found_by.regressions(measured, commits, warn) if commits[each.bad] >= first]
    machine = machine_name()
    own, others = found_by.apart(found if everything else [each for each in found if each.reverted is None], machine)
    standing = [each for each in own if each.reverted is None]
    commits_here = {each.commit for each in measured if each.machine == machine}
    elsewhere = sorted({each.machine for each in measured} - {machine})
    if as_json:
        import json

        as_told = {
            "version": 2,
            "machine": machine,
            "commits": len(commits_here),
            "regressions": [each.as_json() for each in own],
            "other_machines": elsewhere,
            "regressions_elsewhere": [each.as_json() for each in others],
        }
        typer.echo(json.dumps(as_told, indent=1))
    else:
        for each in own:
            typer.echo(visible(each.line()))
        typer.echo(
            f"{counted(len(standing), 'regression')} not reverted, in {counted(len(commits_here), 'commit')} measured "
            f"on {machine}"
        )
        if not commits_here:
            typer.echo("no measurements on this machine; next: tritmark history --register-machine, then asv run")
        if elsewhere:
            typer.echo(f"\nResults of {visible(' and '.join(elsewhere))}, which do not apply to this machine:")
            for each in others:
                typer.echo(visible(each.line()))
            if not others:
                typer.echo("no regressions")
    raise typer.Exit(FAILED if standing else PASSED)
