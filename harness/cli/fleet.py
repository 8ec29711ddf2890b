"""`tritmark fleet`, with a module for each of its commands."""

from __future__ import annotations

import typer

from tritmark.harness.cli.examples import epilog
from tritmark.harness.cli.fleet_compare import compare
from tritmark.harness.cli.fleet_run import run
from tritmark.harness.cli.once import Once

fleet = typer.Typer(
    name="fleet",
    help="Runs on many machines, spread over a Dask cluster, and their comparison.",
    epilog=epilog("fleet"),
    no_args_is_help=True,
)
for _command in (run, compare):
    fleet.command(_command.__name__, cls=Once, epilog=epilog(f"fleet {_command.__name__}"))(_command)
