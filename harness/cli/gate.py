"""`tritmark gate`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.cli import completion, options
from tritmark.harness.cli.console import console
from tritmark.harness.cli.exit_status import AMBIGUOUS, FAILED, INTERRUPTED, PASSED, UNAVAILABLE, UNTRIED
from tritmark.harness.gate.form import OutputFormat, tell

if TYPE_CHECKING:
    from tritmark.harness.gate.result import GateResult


def gate(
    base: Annotated[
        str, typer.Argument(metavar="BASE", help="The baseline: a revision, a .whl, or a folder of packages.")
    ],
    head: Annotated[str, typer.Argument(metavar="HEAD", help="The build to test; the same kinds.")],
    suite: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE.toml",
            autocompletion=completion.suites,
            help="The suite whose measured workloads are used.",
        ),
    ] = "quick",
    op: options.Op = "*",
    variant: options.Variant = "*",
    device: options.Device = "*",
    threads: Annotated[
        int, typer.Option(min=1, callback=options.checked_threads, help="Number of threads of CPU kernels.")
    ] = 1,
    budget: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time for one benchmark; five times that for calls over 1 ms.")
    ] = 1.0,
    seed: options.Seed = None,
    strict: Annotated[bool, typer.Option("--strict", help=f"Exit with {AMBIGUOUS} if a result is AMBIGUOUS.")] = False,
    apart: Annotated[
        bool, typer.Option("--apart", help="Run each build in its own process, interleaved, as with several threads.")
    ] = False,
    form: Annotated[OutputFormat, typer.Option("--format", help="Format of the result.")] = OutputFormat.TEXT,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="Write the result to FILE, and text to standard output.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Report whether HEAD's kernels are slower than BASE's or compute something else.

    Both are built, compared on drawn cases, and timed interleaved in one process."""
    from secrets import randbits

    from tritmark.harness.cli.gate_progress import GateTerminal
    from tritmark.harness.errors import NothingToCompareError, UsageError
    from tritmark.harness.gate.benchmarks import BenchmarkFilter
    from tritmark.harness.gate.run import GateRequest, run
    from tritmark.harness.gate.verdict import GateLimits
    from tritmark.harness.text.visible import visible

    # Drawn for each call, so that no change can know the cases.
    drawn = randbits(32) if seed is None else seed
    request = GateRequest(
        base=base,
        head=head,
        wanted=BenchmarkFilter(suite=_where(suite), op=op, variant=variant, device=device, threads=threads, seed=drawn),
        limits=GateLimits(seconds=budget),
        strict=strict,
        apart=apart,
        command=("tritmark", *sys.argv[1:]),
    )
    errors = console(stderr=True)
    try:
        with GateTerminal(errors) as terminal:
            result = run(request, terminal)
    except NothingToCompareError as nothing:
        errors.print(f"tritmark: {visible(str(nothing))}", style="yellow", soft_wrap=True)
        raise typer.Exit(UNTRIED) from None
    if out is not None:
        try:
            with out.open("w", encoding="utf-8") as file:
                tell(result, form, console(file), os.environ)
        except OSError as error:
            raise UsageError(f"{out}: cannot be written: {error}") from error
        form = OutputFormat.TEXT
    tell(result, form, console(), os.environ)
    raise typer.Exit(_status(result))


def _where(suite: str) -> str:
    """Absolute, because the builds may run in other folders."""
    return str(Path(suite).resolve()) if suite.endswith(".toml") else suite


def _status(result: GateResult) -> int:
    """The status of the result; INTERRUPTED, UNAVAILABLE or UsageError if there is none."""
    from tritmark.harness.errors import UsageError
    from tritmark.harness.gate.result import Outcome
    from tritmark.harness.record import Status

    if not result.complete:
        return INTERRUPTED
    if result.count(Outcome.NOT_RUN) and all(
        each.outcome in {Outcome.NOT_RUN, Outcome.ADDED, Outcome.REMOVED} for each in result.benchmarks
    ):
        if {each.device for each in result.benchmarks} == {result.device}:
            return UNAVAILABLE
        reasons = "; ".join(dict.fromkeys(each.reason for each in result.benchmarks if each.outcome is Outcome.NOT_RUN))
        raise UsageError(f"no kernel could be compared: {reasons}")
    return {Status.PASS: PASSED, Status.FAIL: FAILED, Status.AMBIGUOUS: AMBIGUOUS}[result.status]
