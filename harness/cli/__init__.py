"""The command line: a module for each command, and what several commands share. Nothing else of the harness imports
from here.

Every command imports what it needs when it is called, so that the quick ones are quick.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tritmark.harness.cli.advise import advise
from tritmark.harness.cli.autotune import autotune
from tritmark.harness.cli.check import check
from tritmark.harness.cli.compare import compare
from tritmark.harness.cli.console import console
from tritmark.harness.cli.convert import convert
from tritmark.harness.cli.doctor import doctor
from tritmark.harness.cli.examples import epilog
from tritmark.harness.cli.exit_status import MEANINGS, USAGE
from tritmark.harness.cli.formats import formats
from tritmark.harness.cli.frame import frame
from tritmark.harness.cli.gate import gate
from tritmark.harness.cli.history import history
from tritmark.harness.cli.league import league
from tritmark.harness.cli.list import list_
from tritmark.harness.cli.machine import machine
from tritmark.harness.cli.new import new
from tritmark.harness.cli.precision import precision
from tritmark.harness.cli.report import report
from tritmark.harness.cli.run import run
from tritmark.harness.cli.schema import schema
from tritmark.harness.cli.select import select
from tritmark.harness.cli.selftest import selftest
from tritmark.harness.cli.soak import soak
from tritmark.harness.cli.tune import tune
from tritmark.harness.cli.verify import verify
from tritmark.harness.errors import TritmarkError
from tritmark.harness.interruption import interrupted_once
from tritmark.harness.machine.cpu import bind_threads

app = typer.Typer(
    name="tritmark",
    help="Validates and measures BitNet (1.58-bit, ternary) kernels on this machine.",
    # Typer makes a line of what stands between empty lines.
    epilog="\n\n".join(["Exit status:", *(f"{status}: {meaning}" for status, meaning in MEANINGS.items())]),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line; a TritmarkError is one message on the error stream and the status of bad usage."""
    bind_threads()
    try:
        with interrupted_once():
            app(prog_name="tritmark")
    except TritmarkError as error:
        console(stderr=True).print(f"tritmark: {error}", style="red", soft_wrap=True)
        sys.exit(USAGE)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"tritmark {version('tritmark')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Validates and measures BitNet (1.58-bit, ternary) kernels on this machine."""


for _command in (
    run,
    list_,
    machine,
    schema,
    verify,
    check,
    new,
    selftest,
    soak,
    gate,
    history,
    autotune,
    select,
    tune,
    advise,
    report,
    frame,
    formats,
    league,
    precision,
    doctor,
    convert,
    compare,
):
    _name = _command.__name__.rstrip("_")
    app.command(_name, epilog=epilog(_name))(_command)
