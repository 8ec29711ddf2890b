"""What `tritmark run` and `tritmark machine` print: tables of verdicts, figures, layers and facts."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from tritmark.harness.listings import plain_table
from tritmark.harness.record import Footing, Machine, Record, Run, Status
from tritmark.harness.report import gpu as gpu_section
from tritmark.harness.report import groups, units
from tritmark.harness.report.text import visible

_STYLES = {Status.PASS: "green", Status.FAIL: "bold red", Status.ERROR: "bold red", Status.AMBIGUOUS: "yellow", Status.NOT_RUN: "dim"}


def _status(status: Status) -> Text:
    return Text(status.value, style=_STYLES[status])


def kernels(record: Record) -> Table:
    """A row for each kernel, and one more for each further shape that it was measured at."""
    dimensions = ("accuracy", "memory", "cross")
    figures = ("cases", "cold", "of ceiling", "hot", "of ceiling ")
    table = plain_table("Kernels", "device", "op", "format", "dtype", "variant", "cases", *dimensions, "shape", *figures[1:], right=figures)
    devices = {lane.device: f"{lane.device} (simulated)" for lane in record.lanes if lane.simulated}
    for kernel in groups.kernels(record):
        run = kernel.first
        verdicts = [groups.worst(getattr(each, name).status for each in kernel.runs) for name in dimensions]
        measured = [each for each in kernel.runs if each.performance.cold or each.performance.hot]
        head = [visible(text) for text in (devices.get(run.device, run.device), run.op, run.format, run.dtype, run.variant)]
        cases = units.count(sum(each.accuracy.cases for each in kernel.runs))
        first, *further = [_figures(each) for each in measured] or [("",) * 5]
        table.add_row(*head, cases, *map(_status, verdicts), *first)
        for row in further:
            table.add_row(*[""] * (6 + len(dimensions)), *row)
    return table


def _figures(run: Run) -> tuple[str, ...]:
    return groups.shape(run.workload), *_footing(run.performance.cold), *_footing(run.performance.hot)


def _footing(footing: Footing | None) -> tuple[str, str]:
    return units.time(None if footing is None else footing.timing.median_ns), units.percent(groups.part(footing))


def layers(record: Record) -> Table:
    """A row for each weight matrix."""
    figures = ("zeros", "SNR", "output cosine", "packed", "time", "float32", "faster")
    table = plain_table("Weights", "layer", "shape", "verdict", *figures, right=figures)
    for layer in record.layers:
        head = Text(visible(layer.name)), "x".join(map(str, layer.shape)), _status(layer.status)
        told = [units.NONE] * 4
        for scheme in layer.schemes[:1]:
            told = [
                units.percent(scheme.zeros),
                units.decibel(scheme.snr_db),
                units.cosine(scheme.output_cosine),
                units.size(scheme.packed_bytes),
            ]
        faster = units.NONE if layer.speedup is None else f"{layer.speedup.median:.1f}x"
        table.add_row(*head, *told, units.time(layer.matmul_ns), units.time(layer.float32_ns), faster)
    return table


def lanes(record: Record) -> Iterator[Text]:
    """A line for each device: whether it ran, and why not."""
    for lane in record.lanes:
        if lane.ran:
            style = "yellow" if lane.simulated else ""
            yield Text(f"{lane.device}: ran" + (f", {visible(lane.reason)}" if lane.reason else ""), style=style)
        else:
            yield Text(f"{lane.device}: not run: {visible(lane.reason)}", style="yellow")


def facts(machine: Machine) -> Table:
    """What the machine is."""
    table = plain_table("Machine", "fact", "value")
    for name, value in machine:
        if name not in {"ceilings", "gpus"}:
            table.add_row(name.replace("_", " "), Text(visible(_fact(name, value))))
    for gpu in machine.gpus:
        for name, value in gpu_section.facts(gpu):
            table.add_row(f"gpu {gpu.index}: {name}", Text(visible(value)))
    return table


def _fact(name: str, value: object) -> str:
    if value is None:
        return "not told"
    if name in {"memory", "page_size"} and isinstance(value, int):
        return units.size(value)
    if isinstance(value, dict):
        return ", ".join(f"{key} {units.size(nbytes)}" for key, nbytes in value.items())
    return " ".join(value) if isinstance(value, tuple) else str(value)


def ceilings(machine: Machine) -> Table:
    """What the machine can do, as measured."""
    table = plain_table("Ceilings", "device", "ceiling", "level", "threads", "bytes", "rate", right=("threads", "bytes", "rate"))
    for each in machine.ceilings:
        rate = units.rate(each.rate, each.unit)
        table.add_row(each.device, each.name, each.level, str(each.threads), units.size(each.nbytes), rate)
    return table
