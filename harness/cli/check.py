"""`tritmark check`."""

from __future__ import annotations

import sys
from enum import StrEnum
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from tritmark.harness.cli import completion, options
from tritmark.harness.cli.console import console
from tritmark.harness.cli.execute import executed, seed_of
from tritmark.harness.cli.exit_status import AMBIGUOUS, FAILED, PASSED, UNAVAILABLE
from tritmark.harness.cli.once import RECORD
from tritmark.harness.cli.show import paragraphs, show

if TYPE_CHECKING:
    from tritmark.harness.candidate.plan import Plan
    from tritmark.harness.check.verdict import CheckVerdict
    from tritmark.harness.record import Record
    from tritmark.harness.store import Store


_VERDICT = "verdict"
_FORMS = ("", RECORD, _VERDICT)


class Dimension(StrEnum):
    """A dimension of the verdict."""

    ACCURACY = "accuracy"
    PERFORMANCE = "performance"
    MEMORY = "memory"
    CROSS = "cross"


def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .cu, .c, .cpp or .so with its FILE.toml, or a .py.")],
    op: options.Op = "*",
    suite: Annotated[
        str, typer.Option(metavar="NAME|FILE.toml", autocompletion=completion.suites, help="The suite of workloads.")
    ] = "quick",
    device: options.Numbered = "*",
    threads: options.Threads = None,
    dimension: Annotated[
        list[Dimension] | None,
        typer.Option(
            metavar="NAME",
            help="Judge only accuracy, performance, memory or cross; repeatable.",
            show_default=False,
        ),
    ] = None,
    seed: options.Seed = None,
    strict: options.Strict = False,
    timeout: options.Timeout = 30.0,
    in_process: options.InProcess = False,
    resume: Annotated[
        str,
        typer.Option(
            metavar="RUN",
            autocompletion=completion.interrupted,
            help="Continue an interrupted check, by id or folder.",
        ),
    ] = "",
    inputs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npz",
            help="Judge only these inputs, which a failed check wrote.",
            show_default=False,
        ),
    ] = None,
    json_form: Annotated[
        str,
        typer.Option(
            "--json",
            metavar="[=verdict]",
            help="Print only the Record, as JSON, on standard output; --json=verdict: only the verdict, with a score.",
            show_default=False,
        ),
    ] = "",
    out: options.Out = Path("results"),
) -> None:
    """Judge your kernel beside the best built-in one; write a Record and a report."""
    began = monotonic()
    from tritmark.harness.record.facts import ask
    from tritmark.harness.worker.process import prepare

    if json_form not in _FORMS:
        raise typer.BadParameter(f"--json={json_form}; legal: {', '.join(f'--json={form}' for form in _FORMS[1:])}")
    ask()
    if not in_process:
        prepare()  # the worker imports while this process imports and compiles the file
    from tritmark.harness.check.checking import CheckOptions, opened, own_record, replay, verdict_of
    from tritmark.harness.cli.outcome import status_of
    from tritmark.harness.store import Store
    from tritmark.harness.text.visible import visible

    chosen = CheckOptions(
        file=file,
        op=op,
        suite=suite,
        device=device,
        threads=threads,
        dimensions=frozenset(each.value for each in dimension or Dimension),
        timeout_s=timeout,
        isolated=not in_process,
        scored=json_form == _VERDICT and (not dimension or Dimension.PERFORMANCE in dimension),
    )
    if inputs is not None:
        _print_verdict(replay(chosen, inputs, began), json_form)
    found = opened(chosen)
    errors = console(stderr=True)
    if found.warnings:
        errors.print(f"tritmark: the compiler warns:\n{visible(found.warnings)}", style="yellow", soft_wrap=True)
    for name, why in found.absent.items():
        errors.print(f"tritmark: {name} is missing: {why}", style="red", soft_wrap=True)
    if found.impossible:
        raise typer.Exit(UNAVAILABLE)
    store = Store(out)
    request = found.request(seed_of(seed, store, resume or None), ("tritmark", *sys.argv[1:]))
    record = executed(found.installed, request, store, resume or None)
    if json_form == _VERDICT:
        own_record(record, found)
        _print_verdict(verdict_of(found, record, store, began), json_form, strict=strict)
    report = partial(_tell, record, found.plan, store)
    show(record, store, json_form == RECORD, report=report, seconds=monotonic() - began)
    raise typer.Exit(status_of(own_record(record, found), strict=strict))


def _print_verdict(verdict: CheckVerdict, form: str, *, strict: bool = False) -> NoReturn:
    """Print the verdict and end with its status."""
    from tritmark.harness.record import Status

    if form:
        typer.echo(verdict.model_dump_json(indent=1))
    else:
        console().print(verdict, soft_wrap=True)
    ambiguous = strict and verdict.passed and verdict.status is Status.AMBIGUOUS
    raise typer.Exit(AMBIGUOUS if ambiguous else PASSED if verdict.passed else FAILED)


def _tell(record: Record, plan: Plan, store: Store) -> None:
    from tritmark.harness.advise.outcome import ledger_of
    from tritmark.harness.cli import comparison, tables

    ids = {variant.id for variant in plan.mine}
    own = record.model_copy(update={"runs": tuple(run for run in record.runs if run.kernel in ids)})
    table = comparison.times(record, plan)
    left_out = tables.not_run(own)
    paragraphs(
        console(),
        [tables.verdict(own, of=record)],
        list(tables.not_judged(record)),
        list(comparison.verdicts(record, plan)),
        list(comparison.reasons(record, plan)),
        list(comparison.proposals(record, plan, ledger_of(store))),
        tuple(each for each in (table, left_out) if each is not None),
    )
