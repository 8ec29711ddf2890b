"""`tritmark check`."""

from __future__ import annotations

import sys
from enum import StrEnum
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.cli import completion, options
from tritmark.harness.cli.console import console
from tritmark.harness.cli.execute import executed, seed_of
from tritmark.harness.cli.exit_status import UNAVAILABLE
from tritmark.harness.cli.show import paragraphs, show
from tritmark.harness.errors import UsageError

if TYPE_CHECKING:
    from tritmark.harness.candidate.plan import Plan
    from tritmark.harness.record import Record
    from tritmark.harness.store import Store


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
    as_json: options.Json = False,
    out: options.Out = Path("results"),
) -> None:
    """Judge your kernel beside the best built-in one; write a Record and a report."""
    began = monotonic()
    from tritmark.harness.record.facts import ask
    from tritmark.harness.worker.process import prepare

    ask()
    if not in_process:
        prepare()  # the worker imports while this process imports and compiles the file
    from tritmark.harness.candidate.native import NativeFile
    from tritmark.harness.candidate.opening import open_candidate
    from tritmark.harness.candidate.plan import planned
    from tritmark.harness.cli.outcome import status_of
    from tritmark.harness.judge.request import Request
    from tritmark.harness.providers import load
    from tritmark.harness.record import Status
    from tritmark.harness.store import Store
    from tritmark.harness.text.outcome import deciding
    from tritmark.harness.text.visible import visible

    candidate = open_candidate(file)
    builtin = load()
    builtin.choose(device)
    known = {variant.id for variant in builtin.registry.variants}
    if isinstance(candidate, NativeFile):
        candidate = candidate.compiled(builtin)
    installed = load((candidate,))
    installed.choose(device)
    mine = [variant for variant in installed.registry.variants if variant.id not in known]
    dimensions = frozenset(each.value for each in dimension or Dimension)
    errors = console(stderr=True)
    said = candidate.warnings if isinstance(candidate, NativeFile) else ""
    if said:
        errors.print(f"tritmark: the compiler warns:\n{visible(said)}", style="yellow", soft_wrap=True)
    plan = planned(installed, mine, installed.suite(suite), op, device, dimensions)
    absent = {
        each.key.device: why for each in plan.mine if (why := installed.registry.devices[each.key.device].missing())
    }
    for name, why in absent.items():
        errors.print(f"tritmark: {name} is missing: {why}", style="red", soft_wrap=True)
    if len(absent) == len({each.key.device for each in plan.mine}):
        raise typer.Exit(UNAVAILABLE)
    devices = {each.key.device for each in plan.mine}
    store = Store(out)
    request = Request(
        suite=plan.suite,
        device=devices.pop() if len(devices) == 1 else "*",
        threads=threads,
        seed=seed_of(seed, store, resume or None),
        command=("tritmark", *sys.argv[1:]),
        candidates=(candidate,),
        only=plan.ids,
        rivals=frozenset(variant.id for variant in plan.rivals),
        isolated=not in_process,
        timeout_s=timeout,
        dimensions=dimensions,
        not_judged=plan.not_judged,
    )
    record = executed(installed, request, store, resume or None)
    show(record, store, as_json, report=partial(_tell, record, plan, store), seconds=monotonic() - began)
    ids = {variant.id for variant in plan.mine}
    own = [run for run in record.runs if run.kernel in ids]
    if all(run.accuracy.status is Status.NOT_RUN for run in own):
        reasons = "; ".join(dict.fromkeys(run.accuracy.reason for run in own))
        raise UsageError(f"{file}: no workload ran: {reasons}")
    judged = deciding(record.model_copy(update={"runs": tuple(own)}), record)
    raise typer.Exit(status_of(judged, strict=strict))


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
