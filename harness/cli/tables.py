"""Tables of `tritmark run` and `tritmark machine`: verdicts, figures, layers and facts."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from tritmark.harness.record import (
    DIMENSIONS,
    Layer,
    Machine,
    Measurement,
    Record,
    Run,
    Status,
    contradicted,
    contradictions,
)
from tritmark.harness.report import answer
from tritmark.harness.report import gpu as gpu_section
from tritmark.harness.report import machine as machine_section
from tritmark.harness.text import groups, linear, units, unseen
from tritmark.harness.text.outcome import FAILED, deciding, outcome
from tritmark.harness.text.table import filled_table, plain_table
from tritmark.harness.text.visible import sentence, visible

STYLES = {
    Status.PASS: "green",
    Status.FAIL: "bold red",
    Status.ERROR: "bold red",
    Status.AMBIGUOUS: "yellow",
    Status.NOT_RUN: "dim",
}


_TOLD = frozenset({Status.FAIL, Status.ERROR, Status.AMBIGUOUS})
_FIGURES = ("cases", "cold", "ceil.", "hot", "ceil. ")
_ROOM_FOR_HOT = 75
"""Terminal columns for the name of an op, two times with intervals and two shares."""
_MOST_CAUSES = 5
_MOST_LAYERS = 5


def _status(status: Status) -> Text:
    return Text(status.value, style=STYLES[status])


def verdict(record: Record, *, of: Record | None = None) -> Text:
    """One paragraph: the status, the number of correct kernels, their share of the ceilings, and what is not believed.
    If `record` has some Runs `of` a Record that failed, the status is that of the whole Record, as the exit status.
    With `of`, the first incorrect kernel's first difference comes first; otherwise lines below the verdict have it."""
    found = outcome(record if of is None else deciding(record, of)).status
    text = Text(f"{found.value.upper()}: ", style=STYLES[found])
    failed = next((run for run in record.own if run.accuracy.failed), None)
    if failed is not None and of is not None:
        text.append(f"{visible(f'{failed.variant}: {sentence(failed.accuracy.reason)}')}. ", style=STYLES[found])
    for each in answer.answers(record):
        text.append(
            f"{visible(' '.join(answer.in_words(each.statements).split()))} ",
            style=STYLES[each.status] if each.status in _TOLD else "",
        )
    beside = [] if of is None else [run for run in of.own if run not in record.runs and groups.verdict(run) in FAILED]
    if beside:
        kernels = len({run.kernel for run in beside})
        words = f"{units.counted(kernels, 'built-in kernel')} beside {'fails' if kernels == 1 else 'fail'}. "
        text.append(words, style=STYLES[Status.FAIL])
    text.rstrip()
    return text


def not_judged(record: Record) -> Iterator[Text]:
    """A line for each item that no verdict covers."""
    for each in record.not_judged:
        text = " ".join(unseen.line(each).split())
        yield Text(f"not judged: {visible(text)}", style="yellow")


def best(record: Record, width: int) -> Iterator[Table]:
    """A table for each device with a row for each op and format: the best variant on the workload that moves the most
    bytes, and verdicts that are not PASS.

    A table fits `width` columns without breaking words. Below 75 columns it has only the cold figures.
    """
    keys = groups.by_key(record.runs)
    sound = groups.by_key(groups.right(record))
    hot = width >= _ROOM_FOR_HOT
    for device in groups.devices(record):
        simulated = any(lane.device == device and lane.simulated for lane in record.lanes)
        title = f"Kernels on {visible(device)}" + (" (simulated)" if simulated else "")
        of_device = {key: runs for key, runs in keys.items() if key[0] == device}
        measured = any(key in sound for key in of_device)
        heads = ["op, format, best variant" if measured else "op, format", "correct"]
        heads += (["cold", "ceil.", "hot", "ceil. "] if hot else ["cold", "ceil."]) if measured else []
        rows = []
        for key, runs in of_device.items():
            several = sum(each[:3] == key[:3] for each in of_device) > 1
            if not measured or key in sound or _not_passed(runs):
                rows.append(_line(key, runs, sound.get(key, []), several=several, measured=measured, hot=hot))
        table = filled_table(title, (*heads, "Runs not PASS"), rows, right=heads[1:])
        table.padding = (0, 1, 0, 0)
        if measured:
            table.caption = (
                "On the workload with the most bytes; ±: half of the 95 % interval; ceil.: percent of the ceiling."
            )
            if len(rows) < len(of_device):
                untimed = units.counted(len(of_device) - len(rows), "other op and format", "other ops and formats")
                table.caption += f" Not timed: {untimed}."
            table.caption_justify = "left"
        yield table


def _line(
    key: tuple[str, ...], runs: list[Run], sound: list[Run], *, several: bool, measured: bool, hot: bool
) -> list[Text | str]:
    _, op, format, dtype = key
    words = [op, *([format] if format != "none" else []), *([dtype] if several else [])]
    cells: list[Text | str] = []
    if measured:
        run = groups.largest(groups.best_variant(sound)) if sound else None
        words += [run.variant] if run is not None else []
        footings = [
            None if run is None else getattr(run.performance, name) for name in (("cold", "hot") if hot else ("cold",))
        ]
        for footing in footings:
            cells += ("doubted", units.NONE) if run is None and any(map(groups.doubted, runs)) else _footing(footing)
    return [visible(" ".join(words)), groups.of_which_right(runs), *cells, _not_passed(runs)]


def _not_passed(runs: list[Run]) -> Text:
    """Counts of Runs that are not PASS."""
    not_passed: dict[str, Status] = {}
    for status in (Status.FAIL, Status.ERROR, Status.AMBIGUOUS):
        bad = sum(groups.verdict(each) is status for each in runs)
        if bad:
            not_passed[f"{bad:,} {status.value.upper()}"] = status
    return Text(" ").join(Text(text, style=STYLES[status]) for text, status in not_passed.items())


def _footing(footing: Measurement | None) -> tuple[str, str]:
    if footing is None:
        return units.NONE, units.NONE
    part = groups.part(footing)
    return units.timed(footing.timing, "%"), units.NONE if part is None else f"{100 * part:.0f}%"


def details(record: Record) -> Iterator[Table]:
    """A table for each op with a row for each variant and shape. Variants that were judged and not timed are named
    below the table."""
    for op, runs in _by_op(record).items():
        rows: list[list[Text | str]] = []
        untimed: dict[str, list[str]] = {}
        for of in groups.by_kernel(runs).values():
            run = of[0]
            kind = " ".join(word for word in (run.device, run.format, run.dtype) if word not in {"none", "cpu"})
            name = f"{kind} {run.variant}"
            verdicts = {name: groups.worst(each.verdict(name).status for each in of) for name in DIMENSIONS}
            bad = [f"{name} {status.value.upper()}" for name, status in verdicts.items() if status in _TOLD]
            reported = Text(", ".join(bad), style=STYLES[groups.worst(verdicts.values())])
            measured = [each for each in of if each.performance.cold or each.performance.hot]
            if not measured and not bad:
                untimed.setdefault(kind, []).append(run.variant)
                continue
            head: list[Text | str] = [visible(name), units.short(sum(each.accuracy.cases for each in of))]
            first, *further = [_figures(each) for each in measured] or [("",) * 5]
            rows.append([*head, *first, reported])
            rows += [["", "", *row, ""] for row in further]
        table = filled_table(
            visible(op),
            ("variant", "cases", "shape", "cold", "ceil.", "hot", "ceil. ", "not PASS"),
            rows,
            right=_FIGURES,
        )
        if untimed:
            named = "; ".join(f"{kind} {', '.join(variants)}" for kind, variants in untimed.items())
            table.caption = f"Judged and not timed: {visible(named)}"
            table.caption_justify = "left"
        yield table


def threads(record: Record) -> Iterator[Table]:
    """A table with a row for each kernel and shape, at its largest timed thread count; none if all were timed on one
    thread."""
    runs = [run for run in record.runs if run.scaling and not groups.doubted(run)]
    if not runs:
        return
    heads = ("threads", "speedup over one", "balance", "utilization")
    table = plain_table("Threads, hot", "kernel", "shape", *heads, right=heads)
    for run in runs:
        most = run.scaling[-1]
        name = " ".join(word for word in (run.op, run.format, run.dtype, run.variant) if word != "none")
        shares = [most.balance, most.utilization]
        table.add_row(
            visible(name),
            visible(groups.shape(run.workload)),
            str(most.threads),
            units.times(most.speedup),
            *("unknown" if share is None else units.percent(share) for share in shares),
        )
    table.caption = (
        "Balance: mean of the threads' busy times over the largest; utilization: busy time over threads times time."
    )
    table.caption_justify = "left"
    yield table


def _by_op(record: Record) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in record.runs:
        found.setdefault(run.op, []).append(run)
    return found


def _figures(run: Run) -> tuple[str, ...]:
    shape = visible(groups.shape(run.workload))
    if groups.doubted(run):
        return shape, "doubted", "", "doubted", ""
    return shape, *_footing(run.performance.cold), *_footing(run.performance.hot)


def not_run(record: Record) -> Table | None:
    """A row for each cause of NOT RUN, with counts; None if everything was judged. A dimension that another Run of the
    kernel judged does not count."""
    judged = {
        (run.kernel, name)
        for run in record.runs
        for name in DIMENSIONS
        if run.verdict(name).status is not Status.NOT_RUN
    }
    gaps = {run.verdict(name).reason for run in record.runs for name in DIMENSIONS if (run.kernel, name) not in judged}
    causes = [each for each in groups.not_run(record.runs) if each[1] in gaps]
    if not causes:
        return None
    table = plain_table("Not run", "Runs", "kernels", "what and why", right=("Runs", "kernels"))
    for dimensions, reason, runs, kernels in causes[:_MOST_CAUSES]:
        table.add_row(units.count(runs), units.count(kernels), f"{dimensions}: {visible(sentence(reason))}")
    if len(causes) > _MOST_CAUSES:
        rest = sum(runs for _, _, runs, _ in causes[_MOST_CAUSES:])
        table.add_row(
            units.count(rest), "", f"{units.counted(len(causes) - _MOST_CAUSES, 'other cause')}, in the report"
        )
    return table


def stored(record: Record) -> Iterator[Table | Text]:
    """A row for each kind of linear layer as stored, a line for each layer without a result, and the sums."""
    kinds: dict[tuple[tuple[int, int], str], list[Layer]] = {}
    for layer in record.layers:
        if layer.format:
            kinds.setdefault((layer.shape, layer.format), []).append(layer)
    if kinds:
        table = plain_table(
            "Linear layers as stored", "shape", "format", "correct", "kernel", right=("shape", "correct")
        )
        for (shape, format), of in kinds.items():
            right = sum(layer.status is Status.PASS for layer in of)
            kernel = next((layer.kernel for layer in of if layer.kernel), units.NONE)
            each_line = "\n".join(visible(each) for each in kernel.split(", "))
            table.add_row("x".join(map(str, shape)), format, f"{right} of {len(of)}", each_line)
        yield table
    reported = {Status.PASS, Status.FAIL, Status.ERROR}
    wrong = [layer for layer in record.layers if layer.format and layer.status not in reported]
    for layer in wrong[:_MOST_LAYERS]:
        line = f"{layer.name}: {layer.status.value.upper()}: {sentence(layer.reason)}"
        yield Text(visible(line), style=STYLES[layer.status])
    if len(wrong) > _MOST_LAYERS:
        yield Text(f"and {len(wrong) - _MOST_LAYERS:,} more, in the report")
    for each in record.linear_layers:
        yield Text(visible(linear.sentence(each)), style="" if each.total_ns is not None else "yellow")


def layers(record: Record) -> Table:
    """A row for each float matrix."""
    figures = ("zeros", "SNR", "output cosine", "packed", "time", "float32", "faster")
    table = plain_table("Weights", "layer", "shape", "verdict", *figures, right=figures)
    for layer in record.layers:
        if layer.format:
            continue
        head = Text(visible(layer.name)), "x".join(map(str, layer.shape)), _status(layer.status)
        reported = [units.NONE] * 4
        for scheme in layer.schemes[:1]:
            reported = [
                units.percent(scheme.zeros),
                units.decibel(scheme.snr_db),
                units.cosine(scheme.output_cosine),
                units.size(scheme.packed_bytes),
            ]
        faster = units.faster(layer.speedup)
        table.add_row(*head, *reported, units.time(layer.matmul_ns), units.time(layer.float32_ns), faster)
    return table


def quantized(record: Record) -> Iterator[Text]:
    """The loss from quantizing the floats of layers."""
    found = [layer.schemes[0] for layer in record.layers if not layer.format and layer.schemes]
    snr = [scheme.snr_db for scheme in found if scheme.snr_db is not None]
    ties = [scheme.near_ties for scheme in found if scheme.near_ties is not None]
    if snr:
        text = f"{units.counted(len(found), 'layer')} of floats, quantized with {found[0].scheme}"
        text += f": SNR {units.decibel(min(snr))} to {units.decibel(max(snr))}"
        text += f", at most {max(ties):.2%} of a layer's codes within rounding of a tie" if ties else ""
        yield Text(text, style="yellow")


def lanes(record: Record) -> Iterator[Text]:
    """A line for each device that did not run, was simulated, or has a remark."""
    for lane in record.lanes:
        if lane.ran and (lane.reason or lane.simulated):
            style = "yellow" if lane.simulated else ""
            yield Text(", ".join(filter(None, (f"{lane.device}: ran", visible(lane.reason)))), style=style)
        elif lane.ran:
            continue
        else:
            yield Text(f"{lane.device}: not run: {visible(lane.reason)}", style="yellow")


def facts(machine: Machine) -> Table:
    """Facts of the machine."""
    table = plain_table("Machine", "fact", "value")
    for name, value in machine:
        if name not in {"ceilings", "gpus", "nodes", "node_bandwidths"}:
            table.add_row(name.replace("_", " "), Text(visible(_fact(name, value))))
    for name, value in machine_section.nodes(machine):
        table.add_row(name, Text(visible(value)))
    for gpu in machine.gpus:
        for name, value in gpu_section.facts(gpu):
            table.add_row(f"gpu {gpu.index}: {name}", Text(visible(value)))
    return table


def _fact(name: str, value: object) -> str:
    if value is None:
        return "unknown"
    if name in {"memory", "page_size"} and isinstance(value, int):
        return units.size(value)
    if isinstance(value, dict):
        return ", ".join(f"{key} {units.size(nbytes)}" for key, nbytes in value.items())
    return " ".join(value) if isinstance(value, tuple) else str(value)


def ceilings(machine: Machine) -> Table:
    """The measured ceilings of the machine."""
    table = plain_table(
        "Ceilings", "device", "ceiling", "level", "threads", "bytes", "rate", right=("threads", "bytes", "rate")
    )
    doubted = contradicted(machine.ceilings)
    for each in machine.ceilings:
        rate = units.rate(each.rate, each.unit) + (", doubted" if each in doubted else "")
        table.add_row(each.device, each.name, each.level, str(each.threads), units.size(each.nbytes), rate)
    if doubted:
        pairs = "; ".join(visible(each.description) for each in contradictions(machine.ceilings))
        table.caption = f"Doubted, because they contradict each other: {pairs}"
        table.caption_justify = "left"
    return table
