"""The command line: a module for each command, and what several commands share. Nothing else of the harness imports
from here.

Every command imports what it needs when it is called, so that the quick ones are quick.
"""

from __future__ import annotations

from tritmark.harness import search_path  # noqa: F401  # isort: skip (before what the current folder could shadow)

import errno
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tritmark.harness.cli.advise import advise
from tritmark.harness.cli.check import check
from tritmark.harness.cli.compare import compare
from tritmark.harness.cli.console import console
from tritmark.harness.cli.convert import convert
from tritmark.harness.cli.deprecated import alias
from tritmark.harness.cli.doctor import doctor
from tritmark.harness.cli.examples import epilog
from tritmark.harness.cli.exit_status import ENVIRONMENT, MEANINGS, USAGE
from tritmark.harness.cli.formats import formats
from tritmark.harness.cli.frame import frame
from tritmark.harness.cli.gate import gate
from tritmark.harness.cli.history import history
from tritmark.harness.cli.league import league
from tritmark.harness.cli.list import list_
from tritmark.harness.cli.machine import machine
from tritmark.harness.cli.new import new
from tritmark.harness.cli.once import Once
from tritmark.harness.cli.precision import precision
from tritmark.harness.cli.report import report
from tritmark.harness.cli.run import run
from tritmark.harness.cli.schema import schema
from tritmark.harness.cli.selftest import selftest
from tritmark.harness.cli.soak import soak
from tritmark.harness.cli.streams import OutputRefusedError, give_up_output, standing
from tritmark.harness.cli.tune import tune
from tritmark.harness.cli.tune_instances import instances
from tritmark.harness.cli.tune_variants import variants
from tritmark.harness.cli.verify import verify
from tritmark.harness.errors import BadEnvironmentError, TritmarkError
from tritmark.harness.interruption import interrupted_once
from tritmark.harness.machine.cpu import bind_threads
from tritmark.harness.machine.session import lift

_listed: list[str] = []
"""The commands in the order of the help."""


class _Root(TyperGroup):
    """Lists the commands in our order, where Typer puts groups first."""

    def list_commands(self, ctx: Any) -> list[str]:
        """See click.Group."""
        return sorted(super().list_commands(ctx), key=_listed.index)


app = typer.Typer(
    name="tritmark",
    cls=_Root,
    help="Validates and measures BitNet (1.58-bit, ternary) kernels on this machine.",
    # Typer makes a line of what stands between empty lines.
    epilog="\n\n".join(["Exit status:", *(f"{status}: {meaning}" for status, meaning in MEANINGS.items())]),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_REFUSALS = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EMFILE,
        errno.ENFILE,
        errno.EAGAIN,
        errno.ENOMEM,
        errno.EFBIG,
        errno.EIO,
    }
)
"""Numbers of errors that say something of the system, whatever was asked of it."""


def main() -> None:
    """Run the command line; a TritmarkError is one message on the error stream and the status of bad usage, or that of
    the environment."""
    lift()
    bind_threads()
    with standing():
        try:
            try:
                with interrupted_once(), _in_time():
                    _must_be_somewhere()
                    app(prog_name="tritmark")
            finally:
                sys.stdout.flush()
        except OutputRefusedError as error:
            give_up_output()
            _end(ENVIRONMENT, "" if error.quiet else str(error))
        except (BadEnvironmentError, _OutOfTimeError) as error:
            _end(ENVIRONMENT, str(error))
        except TritmarkError as error:
            _end(USAGE, str(error))
        except MemoryError as error:
            _end(ENVIRONMENT, f"this process gets no more memory ({error}); next: give it more, or free some")
        except OSError as error:
            if error.errno not in _REFUSALS:
                raise
            _end(ENVIRONMENT, f"the system refuses: {error}; next: see `ulimit -a`, `df`, and what else runs here")


class _OutOfTimeError(BaseException):
    """Not an Exception: it comes at any place, and is no fault of the one that it comes at."""


@contextmanager
def _in_time() -> Iterator[None]:
    """Where CPU time is limited: its end is met as an error, while there is time left to say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGXCPU, _out_of_time)
    try:
        yield
    finally:
        limited = resource.getrlimit(resource.RLIMIT_CPU)[0] != resource.RLIM_INFINITY
        # What is left is to report an error and to end; the limit that cannot be met comes later.
        signal.signal(signal.SIGXCPU, signal.SIG_IGN if limited else before)


def _end(status: int, text: str) -> None:
    if text:
        console(stderr=True).print(f"tritmark: {text}", style="red", soft_wrap=True)
    sys.exit(status)


def _must_be_somewhere() -> None:
    try:
        os.getcwd()
    except OSError as error:
        raise BadEnvironmentError(
            f"the current folder cannot be found ({error.strerror}), as where it was deleted",
            next_step="go to a folder that is there: cd",
        ) from None


def _out_of_time(number: int, frame: object) -> None:
    raise _OutOfTimeError("the limit of CPU time is reached; what was finished is kept; next: raise it: ulimit -t")


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


_commands: tuple[Callable[..., None] | typer.Typer, ...] = (
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
)
for _command in _commands:
    if isinstance(_command, typer.Typer):
        app.add_typer(_command)
        _listed.append(str(_command.info.name))
        continue
    _name = _command.__name__.rstrip("_")
    app.command(_name, cls=Once, epilog=epilog(_name))(_command)
    _listed.append(_name)
for _old, _new, _command in (("select", "tune variants", variants), ("autotune", "tune instances", instances)):
    alias(app, _old, _new, _command)
    _listed.append(_old)
