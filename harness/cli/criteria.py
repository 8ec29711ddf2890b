"""`tritmark criteria`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.cli import completion, options
from tritmark.harness.cli.console import console
from tritmark.harness.cli.exit_status import FAILED, PASSED, UNAVAILABLE, UNTRIED
from tritmark.harness.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from tritmark.harness.criteria.model import CriteriaReport
    from tritmark.harness.criteria.plan import CriteriaPlan
    from tritmark.harness.providers import Installed
    from tritmark.harness.spec import Device

_STYLES = {"pass": "green", "fail": "bold red", "not run": "yellow"}


def criteria(
    device: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            autocompletion=completion.devices,
            help="The device to judge; by default the first accelerator that is present, otherwise the CPU.",
            show_default=False,
        ),
    ] = "",
    seed: options.Seed = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print only the report, as JSON, on standard output.")
    ] = False,
    out: options.Out = Path("results"),
) -> None:
    """Judge the success criteria of the specification on this machine: each is PASS, FAIL or NOT RUN, with its figure.

    Compares a GPU with the CPU, with the data on the device and end to end. Run it on an idle machine; takes about two
    minutes. Writes JSON to DIR/criteria. The exit status is 1 if a criterion fails, and 7 if none was judged."""
    from tritmark.harness.cli.execute import seed_of
    from tritmark.harness.criteria.file import text_of
    from tritmark.harness.criteria.judge import device_of
    from tritmark.harness.criteria.plan import installed_plan
    from tritmark.harness.providers import load
    from tritmark.harness.report.page import put
    from tritmark.harness.store import Store
    from tritmark.harness.worker.process import prepare

    prepare()
    installed = load()
    plan = installed_plan(installed)
    chosen = _chosen(installed, plan, device) if device else device_of(installed, plan)
    made = _judged(installed, plan, chosen, seed_of(seed, Store(out), None))
    try:
        path = put(out / "criteria", f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json", text_of(made))
    except OSError as problem:
        raise UsageError(f"{out / 'criteria'}: the report cannot be written: {problem}") from problem
    if as_json:
        typer.echo(text_of(made), nl=False)
    else:
        _show(made)
    shown = console(stderr=as_json)
    shown.print(made.headline, style="red" if _status(made) else None, soft_wrap=True)
    shown.print(f"Criteria: {path}", soft_wrap=True)
    raise typer.Exit(_status(made))


def _status(made: CriteriaReport) -> int:
    from tritmark.harness.record import Status

    if made.count(Status.FAIL):
        return FAILED
    return PASSED if made.count(Status.PASS) else UNTRIED


def _chosen(installed: Installed, plan: CriteriaPlan, name: str) -> Device:
    """The device of that name. If it is missing, ends the command with UNAVAILABLE."""
    from tritmark.harness.criteria.judge import judgeable
    from tritmark.harness.nearest import nearest

    legal = judgeable(installed, plan)
    if name not in legal:
        raise UsageError(f"--device {name!r}; {nearest(name, legal)}")
    device = installed.registry.devices[name]
    why = device.missing()
    if why is not None:
        console(stderr=True).print(f"tritmark: {name} is missing: {why}", style="red", soft_wrap=True)
        raise typer.Exit(UNAVAILABLE)
    return device


def _judged(installed: Installed, plan: CriteriaPlan, device: Device, seed: int) -> CriteriaReport:
    from tritmark.harness.cli.problems import tell_problems
    from tritmark.harness.cli.progress import ProgressCallback, ProgressLine
    from tritmark.harness.criteria.judge import judged
    from tritmark.harness.criteria.model import CriteriaReport
    from tritmark.harness.measure.surroundings import MachineWatch
    from tritmark.harness.record.facts import machine_facts
    from tritmark.harness.record.versions import environment
    from tritmark.harness.worker import Workers

    tell_problems(installed, traceback=False)
    begun, created = monotonic(), datetime.now(UTC)
    machine = machine_facts()
    units = tuple(device.units())
    if device.memory is not None and not device.simulated():
        units = units or tuple(gpu.uuid for gpu in machine.gpus)
    with ProgressLine(console(stderr=True)) as line, Workers(installed) as workers, MachineWatch(*units) as watch:
        results = tuple(judged(installed, plan, workers, device, seed, ProgressCallback(line)))
        load = watch.load()
    numbering = device.numbering
    title = numbering.title(0) if numbering is not None and numbering.count() else ""
    return CriteriaReport(
        created=created.isoformat(timespec="seconds"),
        device=device.type,
        title=title or (machine.cpu if device.memory is None else device.summary),
        simulated=device.simulated(),
        seed=seed,
        seconds=round(monotonic() - begun, 1),
        environment=environment(("tritmark", *sys.argv[1:]), seed, compiler=device.compiler()),
        machine=machine,
        load=load,
        criteria=results,
    )


def _show(made: CriteriaReport) -> None:
    from rich.text import Text

    from tritmark.harness.criteria.shown import details
    from tritmark.harness.text.visible import visible

    screen = console()
    screen.print(_table(made))
    for each in made.criteria:
        lines = details(each)
        if lines:
            screen.print(Text(f"\n{visible(each.id)}", style="bold"))
            for line in lines:
                screen.print(Text(f"  {visible(line)}"), soft_wrap=True)
    screen.print()


def _table(made: CriteriaReport) -> Table:
    from rich.text import Text

    from tritmark.harness.criteria.shown import measured, required
    from tritmark.harness.record import Status
    from tritmark.harness.text.table import plain_table
    from tritmark.harness.text.visible import visible

    shown = plain_table(visible(made.title), "criterion", "verdict", "required", "measured", "stated in")
    for each in made.criteria:
        simulated = ", simulated" if each.simulated and each.status is not Status.NOT_RUN else ""
        verdict = Text(each.status.value.upper() + simulated, style=_STYLES[each.status.value])
        shown.add_row(visible(each.id), verdict, required(each), visible(measured(each)), each.source)
    return shown
