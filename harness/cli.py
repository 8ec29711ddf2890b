"""The command line. Every command imports what it needs, so that the quick ones are quick.

The exit statuses are in status.py.
"""

from __future__ import annotations

import secrets
import shlex
import signal
import sys
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import partial as _with
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tritmark.harness import completion, options
from tritmark.harness.advise.command import advise
from tritmark.harness.candidate.command import check, new
from tritmark.harness.console import console
from tritmark.harness.doctor.command import doctor
from tritmark.harness.errors import TritmarkError, UsageError
from tritmark.harness.examples import epilog
from tritmark.harness.frame.command import frame
from tritmark.harness.gate.command import gate
from tritmark.harness.history.command import history
from tritmark.harness.machine.cpu import bind_threads
from tritmark.harness.report.command import report
from tritmark.harness.selftest.command import selftest
from tritmark.harness.soak.command import soak
from tritmark.harness.status import FAILED, INTERRUPTED, MEANINGS, PASSED, UNAVAILABLE, USAGE

if TYPE_CHECKING:
    from rich.console import Console

    from tritmark.harness.providers import Installed
    from tritmark.harness.record import Record
    from tritmark.harness.runner import Request
    from tritmark.harness.store import Partial, Store

app = typer.Typer(
    name="tritmark",
    help="Validates and measures BitNet (1.58-bit, ternary) kernels on this machine.",
    # Typer makes a line of what stands between empty lines.
    epilog="\n\n".join(["Exit status:", *(f"{status}: {meaning}" for status, meaning in MEANINGS.items())]),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Listing(StrEnum):
    """What can be listed."""

    OPS = "ops"
    VARIANTS = "variants"
    FORMATS = "formats"
    WORKLOADS = "workloads"


def main() -> None:
    """Run the command line; a TritmarkError is one message on the error stream and the status of bad usage."""
    bind_threads()
    try:
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
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    """Validates and measures BitNet (1.58-bit, ternary) kernels on this machine."""


@app.command()
def run(
    partial: Annotated[
        str,
        typer.Argument(metavar="RUN", autocompletion=completion.interrupted, help="With --resume: the interrupted run, by id or folder."),
    ] = "",
    suite: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE.toml",
            help="Which workloads; 'quick' unless told, none beside --weights.",
            show_default=False,
            autocompletion=completion.suites,
        ),
    ] = "",
    op: options.Op = "*",
    variant: options.Variant = "*",
    device: options.Device = "*",
    weights: Annotated[
        str, typer.Option(metavar="PATH", help="Study real weights: .safetensors, a folder of them, .gguf, or hf:OWNER/NAME.")
    ] = "",
    threads: options.Threads = None,
    seed: options.Seed = None,
    strict: options.Strict = False,
    table: Annotated[bool, typer.Option("--table", help="Print every variant at every shape, however narrow the terminal is.")] = False,
    as_json: options.Json = False,
    out: options.Out = Path("results"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run, the newest unless RUN names one.")] = False,
    timeout: options.Timeout = 120.0,
    addresses: Annotated[
        str, typer.Option(metavar="RULE", help="The rule whose proposal you followed; the ledger gets what came of it.")
    ] = "",
    cpp_lib: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIB.so[=FILE.toml]",
            help="Cross-validate with this library's functions, as the TOML describes them.",
            show_default=False,
        ),
    ] = None,
    in_process: options.InProcess = False,
) -> None:
    """Validate and measure every kernel, write a Record and a report."""
    began = monotonic()
    if partial and not resume:
        raise UsageError(f"unexpected argument {partial!r}; to go on with that run, add --resume")
    from tritmark.harness.cross import CppLibrary
    from tritmark.harness.providers import load
    from tritmark.harness.runner import Request
    from tritmark.harness.store import Store
    from tritmark.harness.worker.process import prepare

    if addresses:
        from tritmark.harness.advise.rules import named

        addresses = named(addresses, "--addresses").name
    if not in_process:
        prepare()  # imports while this process does
    installed = load()
    # Weights alone keep memory small; whoever names a suite, ops or variants wants those too.
    if not suite and (not weights or (op, variant) != ("*", "*")):
        suite = "quick"
    store = Store(out)
    request = Request(
        suite=installed.suite(suite) if suite else None,
        op=op,
        variant=variant,
        device=device,
        weights=weights,
        threads=threads,
        seed=_seed(seed, store, partial if resume else None),
        command=("tritmark", *sys.argv[1:]),
        isolated=not in_process,
        timeout_s=timeout,
        addresses=addresses,
        libraries=tuple(CppLibrary(path, toml) for path, _, toml in (each.partition("=") for each in cpp_lib or ())),
    )
    record = _execute(installed, request, store, partial if resume else None)
    _show(record, store, as_json, every=table, seconds=monotonic() - began)
    if addresses:
        from tritmark.harness.advise.outcome import settle

        for each in settle(store, record):
            told = "kept" if each.hit else "not kept"
            promised, found = f"{each.predicted.low:.2f} to {each.predicted.high:.2f}", f"{each.measured.median:.2f}"
            console(stderr=True).print(f"{each.kernel} {each.workload}: promised {promised}x, found {found}x: {told}", soft_wrap=True)
    raise typer.Exit(_status(record, installed, request, strict=strict))


def _tell_problems(installed: Installed, *, traceback: bool) -> None:
    """What other packages bring and could not be taken; with where it failed, or the command that says that."""
    from tritmark.harness.report.text import visible

    errors = console(stderr=True)
    for problem in installed.problems:
        errors.print(f"tritmark: {visible(str(problem))}", style="red", soft_wrap=True)
        for line in problem.traceback.splitlines() if traceback else ("`tritmark doctor` says where it failed",):
            errors.print(f"    {visible(line)}", soft_wrap=True)


def _seed(given: int | None, store: Store, resume: str | None) -> int:
    """What was given, or that of the run that is resumed; else another each time, so that no kernel can know the data."""
    if given is not None:
        return given
    if resume is None:
        return secrets.randbits(32)
    with store.resume(resume) as partial:
        return partial.header.options.seed


def _execute(installed: Installed, request: Request, store: Store, resume: str | None) -> Record:
    from tritmark.harness.progress import Terminal
    from tritmark.harness.runner import execute

    _tell_problems(installed, traceback=False)
    terminal = Terminal(console(stderr=True))
    try:
        with terminal:
            record, _ = execute(installed, request, store, terminal, resume)
    except KeyboardInterrupt:
        # A second Ctrl-C must not turn this message into a traceback.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _interrupted(request, terminal.partial)
        raise typer.Exit(INTERRUPTED) from None
    return record


def _interrupted(request: Request, partial: Partial | None) -> None:
    errors = console(stderr=True)
    if partial is None:
        errors.print("Interrupted before anything was finished.")
        return
    arguments = [word for word in request.command if word not in {"--resume", partial.header.id}]
    command = shlex.join([*arguments, "--resume", partial.header.id])
    done = len(partial.finished_runs()) + len(partial.finished_layers())
    errors.print(f"Interrupted; {done} finished and kept. Go on with:\n  {command}", soft_wrap=True)


def _show(
    record: Record,
    store: Store,
    as_json: bool,
    *,
    every: bool = False,
    told: Callable[[], None] | None = None,
    seconds: float | None = None,
) -> None:
    """`told` tells the Record in place of what `tritmark run` says."""
    errors = console(stderr=True)
    page: Path | None = None
    try:
        page = _report(record, store)
    except OSError as error:
        errors.print(f"tritmark: the report cannot be written: {error}", style="red", soft_wrap=True)
    if as_json:
        from tritmark.harness.record import sealed

        typer.echo(sealed(record), nl=False)
    else:
        (told or _with(_tell, record, every=every))()
    if not record.passed:
        errors.print(f"Repeat with --seed {record.environment.seed}")
    # The Record must be alone on standard output, paths then go elsewhere.
    paths = errors if as_json else console()
    path = store.path(record.id)
    paths.print(f"Record: {path} ({_size(path)})", soft_wrap=True)
    if page is not None:
        paths.print(f"Report: {page} ({_size(page)})", soft_wrap=True)
    if seconds is not None:
        paths.print(f"Time: {seconds:.1f} s", soft_wrap=True)


def _size(path: Path) -> str:
    nbytes = path.stat().st_size
    return f"{nbytes / 1e6:.2f} MB" if nbytes >= 1e5 else f"{nbytes / 1e3:.0f} kB"


def _tell(record: Record, *, every: bool) -> None:
    """The verdict first, then a line for each op and format; what every variant did at every shape where there is room, or `every`."""
    from tritmark.harness import tables

    out = console()
    _paragraphs(out, [tables.verdict(record)], list(tables.failures(record)), tables.best(record, out.width))
    if record.layers:
        _paragraphs(out, [tables.layers(record)])
    if every or out.width >= tables.ROOM_FOR_DETAILS:
        _paragraphs(out, tables.details(record))
    elif record.runs:
        _paragraphs(out, ["Every variant at every shape: --table, a wider terminal, or the report."])
    left_out = tables.not_run(record)
    _paragraphs(out, [left_out] if left_out is not None else [], list(tables.lanes(record)))


def _paragraphs(out: Console, *parts: Iterable[Any]) -> None:
    """Tables, and lists of lines, with an empty line after each."""
    for part in parts:
        for each in part:
            out.print(each)
            if not isinstance(part, list):
                out.print("")
        if isinstance(part, list) and part:
            out.print("")


def _report(record: Record, store: Store) -> Path:
    from tritmark.harness.report import build
    from tritmark.harness.report.command import given_for

    return build(record, store.html, given_for(record, store, path=str(store.path(record.id))))


def _status(record: Record, installed: Installed, request: Request, *, strict: bool) -> int:
    from tritmark.harness.outcome import exit_status
    from tritmark.harness.record import Status
    from tritmark.harness.runner import missing

    absent = missing(installed, request)
    # By name, or as the only one that had anything to run.
    if request.device in absent or (absent and not record.runs and not record.layers):
        for name, why in absent.items():
            console(stderr=True).print(f"tritmark: {name} is missing: {why}", style="red", soft_wrap=True)
        return UNAVAILABLE
    if not record.layers and all(run.accuracy.status is Status.NOT_RUN for run in record.runs):
        reasons = "; ".join(dict.fromkeys(run.accuracy.reason for run in record.runs))
        raise UsageError(f"no kernel could be run: {reasons}")
    return exit_status(record, strict=strict)


@app.command("list")
def list_(what: Annotated[Listing, typer.Argument(help="ops, variants, formats or workloads.")]) -> None:
    """List what is installed."""
    from tritmark.harness import listings
    from tritmark.harness.providers import load

    installed = load()
    console().print(getattr(listings, what.value)(installed))
    _tell_problems(installed, traceback=True)


@app.command()
def machine(as_json: Annotated[bool, typer.Option("--json", help="Print the facts as JSON and nothing else.")] = False) -> None:
    """Print what this machine is, and what it can do at most, as measured now."""
    from tritmark.harness.machine import machine_facts, measure_ceilings
    from tritmark.harness.providers import load

    devices = load().registry.devices.values()
    ceilings = tuple(each for device in devices if device.missing() is None for each in measure_ceilings(device))
    found = machine_facts().model_copy(update={"ceilings": ceilings})
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
        return
    from tritmark.harness import tables

    screen = console()
    screen.print(tables.facts(found), end="\n\n")
    screen.print(tables.ceilings(found))


@app.command()
def schema() -> None:
    """Print the JSON Schema of a Record."""
    import json

    from tritmark.harness.record import Record

    typer.echo(json.dumps(Record.model_json_schema(mode="serialization"), indent=1))


@app.command()
def verify(
    record: Annotated[str, typer.Argument(metavar="RECORD", autocompletion=completion.records, help="Path or id.")],
    allow_simulated: Annotated[
        bool, typer.Option("--allow-simulated", help="Accept a device that was simulated: it proves correctness and claims no speed.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON and nothing else.")] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", file_okay=False, help="Where Records are.")] = Path("results"),
) -> None:
    """Check that a Record was not changed, that its figures follow from its samples, and that what it claims of a GPU was proven."""
    from tritmark.harness import verify as verification
    from tritmark.harness.store import Store

    found = verification.verify(Store(out).find(record), allow_simulated=allow_simulated)
    if as_json:
        import json

        checks = [{"name": each.name, "status": each.status.lower(), "told": each.told, "faults": each.faults} for each in found.checks]
        typer.echo(json.dumps({"record": found.id, "passed": found.passed, "checks": checks}, indent=1))
    else:
        from tritmark.harness.report.text import visible

        screen = console()
        for each in found.checks:
            for line in each.lines:
                screen.print(visible(line), style="bold red" if each.faults else None, soft_wrap=True)
    raise typer.Exit(PASSED if found.passed else FAILED)


app.command()(check)
app.command()(new)
app.command()(selftest)
app.command()(soak)
app.command()(gate)
app.command()(history)
app.command()(advise)
app.command()(report)
app.command()(frame)
app.command()(doctor)

for _each in app.registered_commands:
    assert _each.callback is not None
    _each.epilog = epilog(_each.name or _each.callback.__name__)


if __name__ == "__main__":
    main()
