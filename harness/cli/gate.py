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
        str, typer.Argument(metavar="BASE", help="What to compare with: a revision, a .whl, or a folder of packages.")
    ],
    head: Annotated[str, typer.Argument(metavar="HEAD", help="What may have got slower: the same kinds.")],
    suite: Annotated[
        str, typer.Option(metavar="NAME|FILE.toml", autocompletion=completion.suites, help="Whose measured workloads.")
    ] = "quick",
    op: options.Op = "*",
    variant: options.Variant = "*",
    device: options.Device = "*",
    threads: Annotated[
        int, typer.Option(min=1, callback=options.checked_threads, help="Threads of a kernel on the CPU.")
    ] = 1,
    budget: Annotated[
        float, typer.Option(metavar="SECONDS", help="For measuring one benchmark; five times that for calls over 1 ms.")
    ] = 1.0,
    seed: options.Seed = None,
    strict: Annotated[
        bool, typer.Option("--strict", help=f"Status {AMBIGUOUS} where something could not be told.")
    ] = False,
    apart: Annotated[
        bool, typer.Option("--apart", help="Each build in a process of its own, by turns, as with several threads.")
    ] = False,
    form: Annotated[OutputFormat, typer.Option("--format", help="How the result is told.")] = OutputFormat.TEXT,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", dir_okay=False, help="Write it there, and text on standard output.", show_default=False
        ),
    ] = None,
) -> None:
    """Say whether HEAD's kernels are slower than BASE's, or compute something else: both are built, compared on drawn
    cases, and timed in one process, interleaved."""
    from secrets import randbits

    from tritmark.harness.cli.gate_progress import GateTerminal
    from tritmark.harness.errors import NothingToCompareError, UsageError
    from tritmark.harness.gate.benchmarks import BenchmarkFilter
    from tritmark.harness.gate.run import GateRequest, run
    from tritmark.harness.gate.verdict import GateLimits
    from tritmark.harness.text.visible import visible

    # Another each time, so that no change can know the cases.
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
    """A file's name means the same in every process."""
    return str(Path(suite).resolve()) if suite.endswith(".toml") else suite


def _status(result: GateResult) -> int:
    """The result's own, unless there is none: interrupted, or nothing was there to compare."""
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
