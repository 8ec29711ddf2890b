"""`tritmark fleet run`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.cli import completion, options
from tritmark.harness.cli.console import console
from tritmark.harness.cli.exit_status import ENVIRONMENT, FAILED, INTERRUPTED, PASSED
from tritmark.harness.errors import BadEnvironmentError, TritmarkError

if TYPE_CHECKING:
    from tritmark.harness.cli.progress import ProgressLine
    from tritmark.harness.fleet.model import FleetJob, FleetSet
    from tritmark.harness.fleet.sets import SetFolder
    from tritmark.harness.record import Record


def run(
    scheduler: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address of the Dask scheduler, such as tcp://10.0.0.5:8786.")
    ],
    suite: Annotated[
        str,
        typer.Option(metavar="NAME|FILE.toml", help="The suite of workloads.", autocompletion=completion.suites),
    ] = "quick",
    op: options.Op = "*",
    variant: options.Variant = "*",
    kind: Annotated[
        str, typer.Option(metavar="GLOB", help="Only these kinds of machines, such as 'cpu/*' or cuda/h200.")
    ] = "*",
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Number of threads; by default one per physical core.", show_default=False),
    ] = None,
    seed: options.Seed = None,
    timeout: options.Timeout = 120.0,
    wait: Annotated[
        float, typer.Option(metavar="S", min=0.0, help="Seconds to wait for a kind whose workers are all lost.")
    ] = 60.0,
    strict: options.Strict = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the set, as JSON, on standard output.")] = False,
    out: options.Out = Path("results"),
) -> None:
    """Validate and measure kernels on the machines of a Dask cluster; write a set of Records to DIR/fleet.

    A worker names the kinds of its machine as resources: dask worker ADDRESS --nthreads 1 --resources
    tritmark/cpu/zen4=1"""
    import secrets

    from tritmark.harness.fleet.code import code_facts
    from tritmark.harness.fleet.kinds import LEGAL, kinds_of, of_kinds, offers
    from tritmark.harness.fleet.model import FleetSet
    from tritmark.harness.fleet.plan import chosen, planned
    from tritmark.harness.fleet.sets import SetFolder
    from tritmark.harness.fleet.spread import FleetSpread, checked, connected, workers_of
    from tritmark.harness.judge.planning import plan_anywhere
    from tritmark.harness.judge.request import Request
    from tritmark.harness.providers import load
    from tritmark.harness.record.versions import commit
    from tritmark.harness.store import new_id

    began = monotonic()
    installed = load()
    given = installed.suite(suite)
    command = ("tritmark", *sys.argv[1:])
    request = Request(
        suite=given,
        op=op,
        variant=variant,
        threads=threads,
        seed=secrets.randbits(32) if seed is None else seed,
        timeout_s=timeout,
        command=command,
    )
    plan_anywhere(installed, request)  # an invalid request needs no cluster
    devices = installed.registry.devices
    with connected(scheduler) as client:
        workers = workers_of(client)
        offered = offers(workers, devices)
        kinds = chosen(kinds_of(offered), kind)
        if not kinds:
            raise BadEnvironmentError(
                f"none of {len(workers)} workers of {scheduler} names a kind of machine",
                next_step=f"dask worker {scheduler} --nthreads 1 --resources {LEGAL}",
            )
        plan = planned(installed, request, kinds, suite)
        code = code_facts()
        accepted = checked(client, of_kinds(offered, kinds), code)
        made = SetFolder(
            out,
            FleetSet(
                id=new_id(),
                created=_now(),
                suite=suite,
                suite_digest=given.digest,
                seed=request.seed,
                command=command,
                code=code,
                commit=commit(Path.cwd()),
                workers=tuple(accepted),
                jobs=plan.jobs,
            ),
        )
        idle = [str(each) for each in plan.idle]
        from tritmark.harness.cli.progress import ProgressLine

        with ProgressLine(console(stderr=True)) as line:
            line.planned(len(plan.jobs))
            following = _Following(line)
            spread = FleetSpread(client, plan, made, kinds, following, devices=devices, wait_s=wait)
            try:
                spread.run()
            except KeyboardInterrupt:
                _ended(made, following, idle, began, as_json, interrupted=True)
                raise typer.Exit(INTERRUPTED) from None
            except TritmarkError:
                _ended(made, following, idle, began, as_json)
                raise
    found = _ended(made, following, idle, began, as_json)
    raise typer.Exit(_status(found, following, strict=strict))


class _Following:
    """Shows the progress, and keeps what the summary needs."""

    def __init__(self, line: ProgressLine) -> None:
        self._line = line
        self.failures: list[str] = []
        self.statuses: list[int] = []
        self.strict_statuses: list[int] = []
        self.runs = 0

    def started(self, what: str) -> None:
        self._line.started(what)

    def finished(self, job: FleetJob, record: Record) -> None:
        from tritmark.harness.cli import overview
        from tritmark.harness.cli.outcome import status_of

        self._line.advance()
        self.runs += len(record.runs)
        self.statuses.append(status_of(record, strict=False))
        self.strict_statuses.append(status_of(record, strict=True))
        for text in overview.failures(record):
            self.failures.append(f"{job.kind}: {text}")
            self._line.failed(f"{job.kind}: {text}")

    def lost(self, job: FleetJob, reason: str) -> None:
        self._line.advance()
        self._line.failed(f"{job.op} on {job.kind} is not run: {reason}")


def _ended(
    made: SetFolder,
    following: _Following,
    idle: list[str],
    began: float,
    as_json: bool,
    *,
    interrupted: bool = False,
) -> FleetSet:
    """Note the end of the set, and print its summary."""
    found = made.end(_now())
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
    shown = console(stderr=as_json)
    for text in following.failures:
        shown.print(text, style="red", soft_wrap=True, markup=False)
    for line in _summary(found, following, idle, interrupted=interrupted):
        shown.print(line, soft_wrap=True, markup=False)
    shown.print(f"Set: {made.folder}", soft_wrap=True, markup=False)
    shown.print(f"Next: tritmark fleet compare {found.id}", soft_wrap=True, markup=False)
    shown.print(f"Time: {monotonic() - began:.1f} s")
    return found


def _summary(found: FleetSet, following: _Following, idle: list[str], *, interrupted: bool) -> list[str]:
    """The verdict, what was never run, and where it ran."""
    from tritmark.harness.text.units import counted

    missing = found.missing
    done = len(found.jobs) - len(missing)
    if following.failures or FAILED in following.statuses:
        verdict = "FAIL"
    else:
        verdict = "INTERRUPTED" if interrupted else "INCOMPLETE" if missing else "PASS"
    kinds = len({job.kind for job in found.jobs})
    lines = [
        f"{verdict}: {done} of {counted(len(found.jobs), 'job')} done on {counted(kinds, 'kind')} of machines, "
        f"{counted(following.runs, 'Run')}"
    ]
    by_reason: dict[str, list[str]] = {}
    for job in missing:
        by_reason.setdefault(found.why(job), []).append(f"{job.op} on {job.kind}")
    lines += [f"Not run: {', '.join(jobs)}: {reason}" for reason, jobs in by_reason.items()]
    lines += [f"Not run: {each}: no kernel of the request is for that device" for each in idle]
    for kind in dict.fromkeys(job.kind for job in found.jobs):
        of = [job for job in found.jobs if job.kind == kind]
        ran = dict.fromkeys(job.worker for job in of if job.worker)
        machine = next((each.machine for each in found.workers if kind in each.kinds), None)
        cpu = f"{machine.cpu}, machine {machine.id}" if machine else ""
        lines.append(
            f"{kind}: {sum(bool(job.record) for job in of)} of {counted(len(of), 'job')}, {cpu}, "
            f"workers {', '.join(ran) or 'none'}"
        )
    return lines


def _status(found: FleetSet, following: _Following, *, strict: bool) -> int:
    """FAILED, ENVIRONMENT if a job was never run, with `strict` that of the worst Record, else PASSED."""
    if any(status == FAILED for status in following.statuses):
        return FAILED
    if found.missing:
        return ENVIRONMENT
    statuses = following.strict_statuses if strict else following.statuses
    return next(iter(sorted(status for status in statuses if status != PASSED)), PASSED)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
