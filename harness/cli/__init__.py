"""The command line: a module for each command, and shared modules. No other package of the harness imports from here.

Each command imports its dependencies when it is called, so that short commands start fast.
"""

from __future__ import annotations

from tritmark.harness import search_path  # noqa: F401  # isort: skip (before modules that the current folder could shadow)

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
from tritmark.harness.cli.criteria import criteria
from tritmark.harness.cli.deprecated import alias
from tritmark.harness.cli.doctor import doctor
from tritmark.harness.cli.errors import errors
from tritmark.harness.cli.examples import epilog
from tritmark.harness.cli.exit_status import ENVIRONMENT, MEANINGS, USAGE
from tritmark.harness.cli.fleet import fleet
from tritmark.harness.cli.formats import formats
from tritmark.harness.cli.frame import frame
from tritmark.harness.cli.gate import gate
from tritmark.harness.cli.health import health
from tritmark.harness.cli.history import history
from tritmark.harness.cli.league import league
from tritmark.harness.cli.list import list_
from tritmark.harness.cli.machine import machine
from tritmark.harness.cli.mcp import mcp
from tritmark.harness.cli.model import model
from tritmark.harness.cli.monitor import monitor
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
from tritmark.harness.machine.session import lift, must_import
from tritmark.harness.monitor.hook import VARIABLE

_listed: list[str] = []
"""The commands in the order of the help."""


class _Root(TyperGroup):
    """Lists the commands in our order; Typer would list groups first."""

    def list_commands(self, ctx: Any) -> list[str]:
        """See click.Group."""
        return sorted(super().list_commands(ctx), key=_listed.index)


app = typer.Typer(
    name="tritmark",
    cls=_Root,
    help="Validate and measure BitNet (1.58-bit, ternary) kernels on this machine.",
    # Typer joins the lines of a paragraph.
    epilog="\n\n".join(["Exit status:", *(f"{status}: {meaning}" for status, meaning in MEANINGS.items())]),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_NO_MEMORY = ("failed to map segment", "annot allocate memory", "annot map zero-fill pages", "annot create cache")
"""Words of the dynamic linker for an mmap that failed."""

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
"""Error numbers whose cause is the system, not the arguments."""


def main() -> None:
    """Run the command line. A TritmarkError ends it with one message on the error stream and status USAGE or
    ENVIRONMENT."""
    # Our own commands and their processes call kernels to test them; a user's program is watched.
    os.environ.pop(VARIABLE, None)
    lift()
    bind_threads()
    with standing():
        try:
            try:
                with interrupted_once(), _in_time():
                    _must_be_somewhere()
                    must_import()
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
            _end(ENVIRONMENT, f"out of memory ({error}); next: free memory, or raise the limit of this process")
        except ImportError as error:
            if not _unmapped(error):
                raise
            _end(
                ENVIRONMENT,
                f"out of memory ({error}); next: free memory, or raise the limit of this process (ulimit -v)",
            )
        except OSError as error:
            if error.errno not in _REFUSALS:
                raise
            _end(ENVIRONMENT, f"a system call failed: {error}; next: see `ulimit -a`, `df` and other processes")


class _OutOfTimeError(BaseException):
    """Raised at any place by a signal. It is not an Exception, so that no handler mistakes it for a fault there."""


@contextmanager
def _in_time() -> Iterator[None]:
    """Raise _OutOfTimeError at the soft limit of CPU time, while there is time to report it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGXCPU, _out_of_time)
    try:
        yield
    finally:
        limited = resource.getrlimit(resource.RLIMIT_CPU)[0] != resource.RLIM_INFINITY
        # The signal repeats each second until the hard limit; reporting and exiting must not be interrupted.
        signal.signal(signal.SIGXCPU, signal.SIG_IGN if limited else before)


def _end(status: int, text: str) -> None:
    if text:
        try:
            console(stderr=True).print(f"tritmark: {text}", style="red", soft_wrap=True)
        except (MemoryError, ImportError):  # without memory, the console's modules cannot be imported either
            os.write(2, f"tritmark: {text}\n".encode("utf-8", "backslashreplace"))
    sys.exit(status)


def _unmapped(error: BaseException | None) -> bool:
    """Whether an import failed because a library got no memory: the linker reports that in words only."""
    while error is not None:
        if any(words in str(error) for words in _NO_MEMORY):
            return True
        error = error.__cause__ or error.__context__
    return False


def _must_be_somewhere() -> None:
    try:
        os.getcwd()
    except OSError as error:
        raise BadEnvironmentError(
            f"the current folder does not exist ({error.strerror})",
            next_step="change to an existing folder: cd",
        ) from None


def _out_of_time(number: int, frame: object) -> None:
    raise _OutOfTimeError("the limit of CPU time is reached; finished Runs are kept; next: raise it with ulimit -t")


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
    """Validate and measure BitNet (1.58-bit, ternary) kernels on this machine."""


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
    monitor,
    formats,
    model,
    league,
    fleet,
    precision,
    criteria,
    doctor,
    health,
    errors,
    convert,
    compare,
    mcp,
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
