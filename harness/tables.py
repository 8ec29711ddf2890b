"""What the command line prints: tables of verdicts, figures, layers, facts, and of what there is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.table import Table
from rich.text import Text

from tritmark.harness.providers import Installed
from tritmark.harness.record import Footing, Machine, Record, Run, Status
from tritmark.harness.report import groups, units
from tritmark.harness.report.text import visible

_STYLES = {Status.PASS: "green", Status.FAIL: "bold red", Status.ERROR: "bold red", Status.AMBIGUOUS: "yellow", Status.NOT_RUN: "dim"}


def _table(title: str, *columns: str, right: Iterable[str] = ()) -> Table:
    table = Table(title=title, title_justify="left", show_edge=False, pad_edge=False, box=None, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def _status(status: Status) -> Text:
    return Text(status.value, style=_STYLES[status])


def kernels(record: Record) -> Table:
    """A row for each kernel, and one more for each further shape that it was measured at."""
    figures = ("cases", "cold", "of ceiling", "hot", "of ceiling ")
    table = _table("Kernels", "op", "format", "dtype", "variant", "cases", "accuracy", "shape", *figures[1:], right=figures)
    for kernel in groups.kernels(record):
        run = kernel.first
        accuracy = groups.worst(each.accuracy.status for each in kernel.runs)
        measured = [each for each in kernel.runs if each.performance.cold or each.performance.hot]
        head = [visible(text) for text in (run.op, run.format, run.dtype, run.variant)]
        cases = units.count(sum(each.accuracy.cases for each in kernel.runs))
        first, *further = [_figures(each) for each in measured] or [("",) * 5]
        table.add_row(*head, cases, _status(accuracy), *first)
        for row in further:
            table.add_row(*[""] * 6, *row)
    return table


def _figures(run: Run) -> tuple[str, ...]:
    return groups.shape(run.workload), *_footing(run.performance.cold), *_footing(run.performance.hot)


def _footing(footing: Footing | None) -> tuple[str, str]:
    return units.time(footing and footing.timing.median_ns), units.percent(groups.part(footing))


def layers(record: Record) -> Table:
    """A row for each weight matrix."""
    figures = ("zeros", "SNR", "output cosine", "packed", "time", "float32", "faster")
    table = _table("Weights", "layer", "shape", "verdict", *figures, right=figures)
    for layer in record.layers:
        scheme = layer.schemes[0] if layer.schemes else None
        table.add_row(
            Text(visible(layer.name)),
            "x".join(map(str, layer.shape)),
            _status(layer.status),
            units.percent(scheme and scheme.zeros),
            units.decibel(scheme and scheme.snr_db),
            units.cosine(scheme and scheme.output_cosine),
            units.size(scheme and scheme.packed_bytes),
            units.time(layer.matmul_ns),
            units.time(layer.float32_ns),
            units.NONE if layer.speedup is None else f"{layer.speedup.median:.1f}x",
        )
    return table


def lanes(record: Record) -> Iterator[Text]:
    """A line for each device: whether it ran, and why not."""
    for lane in record.lanes:
        if lane.ran:
            yield Text(f"{lane.device}: ran")
        else:
            yield Text(f"{lane.device}: not run: {visible(lane.reason)}", style="yellow")


def facts(machine: Machine) -> Table:
    """What the machine is."""
    table = _table("Machine", "fact", "value")
    for name, value in machine:
        if name != "ceilings":
            table.add_row(name.replace("_", " "), Text(visible(_fact(name, value))))
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
    table = _table("Ceilings", "device", "ceiling", "level", "threads", "bytes", "rate", right=("threads", "bytes", "rate"))
    for each in machine.ceilings:
        rate = units.rate(each.rate, each.unit)
        table.add_row(each.device, each.name, each.level, str(each.threads), units.size(each.nbytes), rate)
    return table


def ops(installed: Installed) -> Table:
    """The contracts."""
    table = _table("Ops", "op", "axes", "judged", "input families", "what it does")
    for op in installed.ops.values():
        table.add_row(op.name, " ".join(op.axes), op.family.value, " ".join(op.families), op.summary)
    return table


def variants(installed: Installed) -> Table:
    """The implementations, and whether they can run here."""
    table = _table("Variants", "variant", "tier", "here", "what it is")
    refusals = {
        variant.id: refusal
        for key in dict.fromkeys(variant.key for variant in installed.registry.variants)
        for variant, refusal in installed.registry.candidates(key)
    }
    for variant in installed.registry.variants:
        table.add_row(variant.id, variant.tier.name.lower(), refusals[variant.id] or "yes", variant.summary)
    return table


def formats(installed: Installed) -> Table:
    """The bit layouts."""
    table = _table("Formats", "format", "block", "a scale for each", "what it is", right=("block",))
    for name, format in installed.formats.items():
        table.add_row(name, str(format.block), format.scale_per, format.summary)
    return table


def workloads(installed: Installed) -> Table:
    """The named suites: for each op the number of workloads, and of those that are measured too."""
    table = _table("Suites", "suite", "op", "workloads", "measured", "title", right=("workloads", "measured"))
    for name in installed.suites():
        suite = installed.suite(name)
        head, title = name, suite.title
        for op in installed.ops:
            of_op = [item.workload for item in suite.selected if item.workload.op == op]
            if of_op:
                measured = sum(workload.measure for workload in of_op)
                table.add_row(head, op, str(len(of_op)), str(measured), title)
                head = title = ""
    return table
