"""At most ten lines below the verdict of `tritmark run`: failures, then noise and contradictions, then the fastest
kernel of each op."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from tritmark.harness.cli.tables import STYLES
from tritmark.harness.record import DIMENSIONS, Layer, Measurement, Record, Run, Status, contradictions, half_width
from tritmark.harness.text import groups, units
from tritmark.harness.text.table import plain_table
from tritmark.harness.text.visible import sentence, visible

MOST_LINES = 10
_MOST_FAILURES = 5
_ROOM_FOR_SHAPES = 75


def failures(record: Record) -> list[Text]:
    """A line for each failed kernel and layer with its first reason; after the fifth, a line that counts the others."""
    own = {run.kernel for run in record.own}
    kernels = [kernel for kernel in groups.kernels(record) if kernel.status in {Status.FAIL, Status.ERROR}]
    kernels.sort(key=lambda kernel: kernel.id not in own)
    layers = [layer for layer in record.layers if layer.status in {Status.FAIL, Status.ERROR}]
    failed = [_failure(kernel, kernel.id in own) for kernel in kernels[:_MOST_FAILURES]]
    lines = [*failed, *map(_failed_layer, layers[:_MOST_FAILURES])][:_MOST_FAILURES]
    more = len(kernels) + len(layers) - len(lines)
    return [*lines, Text(f"and {more:,} more, in the report")] if more else lines


def _failed_layer(layer: Layer) -> Text:
    text = f"{layer.name}: {layer.status.value.upper()}: {sentence(layer.reason)}"
    return Text(visible(text), style=STYLES[layer.status])


def _failure(kernel: groups.KernelRuns, own: bool) -> Text:
    run = kernel.first
    dimension = next(name for name in DIMENSIONS if run.verdict(name).failed)
    verdict = run.verdict(dimension)
    text = f"{kernel.id}: {dimension} {verdict.status.value.upper()}: {sentence(verdict.reason)}"
    if run.accuracy.failed_case:
        text += f" ({run.accuracy.failed_case})"
    if not own:
        text += " (a peer: does not change the exit status)"
    return Text(visible(text), style=STYLES[kernel.status])


def suspicions(record: Record) -> list[Text]:
    """A line for figures that are too noisy, and one for ceilings that contradict each other."""
    return [Text(each, style="yellow") for each in (_noise(record), _ceilings(record)) if each]


def noisy(record: Record) -> bool:
    """Whether `suspicions` has a line."""
    return bool(suspicions(record))


def _noise(record: Record) -> str:
    """The figure with the widest interval. The verdict states how many are too noisy, and the rule."""
    wide = [figure for figure in groups.figures(record.runs) if figure.footing.too_noisy]
    if not wide:
        return ""
    worst = max(wide, key=_width)
    what = units.timed(worst.footing.timing) if worst.footing.timing.too_noisy else "as a share of its ceiling"
    return f"Noisiest: {visible(worst.run.kernel)} {worst.data}, {what}. Next: repeat on a quiet machine."


def _width(figure: groups.Figure) -> float:
    time, share = figure.footing.timing, figure.footing.against.fraction
    part = 0.0 if figure.footing.against.lost else half_width(share.median, share.low, share.high)
    return max(half_width(time.median_ns, time.low_ns, time.high_ns), part)


def _ceilings(record: Record) -> str:
    found = contradictions(record.machine.ceilings)
    if not found:
        return ""
    more = f" and {len(found) - 1:,} more" if len(found) > 1 else ""
    return (
        f"Suspicious: {visible(found[0].description)}{more}: percentages of these ceilings are too low or too high, "
        "and rooflines leave them out."
    )


def fastest(record: Record, width: int, most: int = MOST_LINES) -> Table | None:
    """A row for each op and device: the fastest kernel on the workload that compares the most kernels, cold if there is
    a cold figure. At most `most` rows, for the ops with the most kernels. None if nothing was timed.

    The table fits `width` columns without breaking words.
    """
    found = _fastest(record)
    if not found:
        return None
    kernels = Counter((device, op) for device, op, _ in {(run.device, run.op, run.kernel) for run in record.runs})
    first = sorted(found, key=lambda run: -kernels[run.device, run.op])[:most]
    shown = [run for run in found if run in first]
    several = len(groups.devices(record)) > 1
    shapes = width >= _ROOM_FOR_SHAPES
    heads = [*(["device"] if several else []), "op", "fastest kernel", *(["shape"] if shapes else []), "time", "ceil."]
    table = plain_table("", *heads, right=("time", "ceil."))
    table.title = None
    table.padding = (0, 1, 0, 0)
    for run in shown:
        footing = _best(run)
        assert footing is not None
        part = groups.part(footing)
        cells = [*([visible(run.device)] if several else []), visible(run.op), visible(_name(record, run))]
        cells += [visible(groups.shape(run.workload)) + (", hot" if run.performance.cold is None else "")] * shapes
        table.add_row(*cells, units.timed(footing.timing, "%"), "" if part is None else f"{100 * part:.0f}%")
    more = len(found) - len(shown)
    table.caption = (
        "Cold unless marked hot; ±: half of the 95 % interval; ceil.: percent of the ceiling of this machine."
    )
    if more:
        table.caption += f" {units.counted(more, 'op')} more, in the report."
    table.caption_justify = "left"
    return table


def right(record: Record, most: int = MOST_LINES) -> Table | None:
    """A row for each op and device with the number of correct kernels, for Records without times. At most `most` rows;
    None if there are no Runs."""
    of_op: dict[tuple[str, str], list[Run]] = {}
    for run in record.runs:
        of_op.setdefault((run.device, run.op), []).append(run)
    if not of_op:
        return None
    table = plain_table("", "device", "op", "correct", right=("correct",))
    table.title = None
    for (device, op), runs in list(of_op.items())[:most]:
        table.add_row(visible(device), visible(op), groups.of_which_right(runs))
    if len(of_op) > most:
        table.caption = f"{units.counted(len(of_op) - most, 'op')} more, in the report."
        table.caption_justify = "left"
    return table


def layers(record: Record, most: int = MOST_LINES) -> Table | None:
    """A row for each float matrix that quantization changes most; None if there are none."""
    schemes = [(layer, layer.schemes[0]) for layer in record.layers if not layer.format and layer.schemes]
    known = [(layer, scheme) for layer, scheme in schemes if scheme.snr_db is not None]
    if not known:
        return None
    heads = ("SNR", "cosine", "packed", "faster")
    table = plain_table("Weights that quantization changes most", "layer", *heads, right=heads)
    for layer, scheme in sorted(known, key=lambda pair: pair[1].snr_db or 0.0)[:most]:
        faster = units.faster(layer.speedup)
        figures = units.decibel(scheme.snr_db), units.cosine(scheme.output_cosine), units.size(scheme.packed_bytes)
        table.add_row(visible(layer.name), *figures, faster)
    table.caption = f"{min(most, len(known)):,} of {units.counted(len(schemes), 'layer')}; --table shows all."
    table.caption_justify = "left"
    return table


def _fastest(record: Record) -> list[Run]:
    of_op: dict[tuple[str, str], list[Run]] = {}
    for run in groups.right(record):
        of_op.setdefault((run.device, run.op), []).append(run)
    return [min(_most_compared(runs), key=_time) for runs in of_op.values()]


def _most_compared(runs: Sequence[Run]) -> list[Run]:
    by_place: dict[str, list[Run]] = {}
    for run in runs:
        by_place.setdefault(run.workload.id, []).append(run)
    return max(by_place.values(), key=_compared)


def _compared(runs: Sequence[Run]) -> tuple[int, int]:
    """The number of kernels that a workload compares, and the bytes that it moves."""
    return len({run.kernel for run in runs}), max(run.performance.read + run.performance.written for run in runs)


def _best(run: Run) -> Measurement | None:
    return run.performance.cold or run.performance.hot


def _time(run: Run) -> float:
    footing = _best(run)
    return float("inf") if footing is None else footing.timing.median_ns


def _name(record: Record, run: Run) -> str:
    """Format, dtype and variant; the dtype only if the op has several in that format."""
    key = run.device, run.op, run.format
    several = len({each.dtype for each in record.runs if (each.device, each.op, each.format) == key}) > 1
    words = (run.format, run.dtype if several else "none", run.variant)
    return " ".join(word for word in words if word != "none")
