"""`tritmark machine`."""

from __future__ import annotations

from typing import Annotated

import typer

from tritmark.harness.cli.console import console


def machine(
    as_json: Annotated[bool, typer.Option("--json", help="Print only the facts, as JSON.")] = False,
) -> None:
    """Print facts of this machine and its ceilings, measured now."""
    from tritmark.harness.measure.ceilings import measure_ceilings
    from tritmark.harness.measure.nodes import measure_nodes
    from tritmark.harness.providers import load
    from tritmark.harness.record.facts import machine_facts

    devices = load().registry.every()
    ceilings = tuple(each for device in devices if device.missing() is None for each in measure_ceilings(device))
    rates = tuple(each for device in devices if device.missing() is None for each in measure_nodes(device))
    found = machine_facts().model_copy(update={"ceilings": ceilings, "node_bandwidths": rates})
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
        return
    from tritmark.harness.cli import tables

    screen = console()
    screen.print(tables.facts(found), end="\n\n")
    screen.print(tables.ceilings(found))
