"""Criteria as lines of text, for the terminal and the documentation."""

from __future__ import annotations

from tritmark.harness.criteria.model import CriterionResult, Crossover, MeasuredFigure, Unit
from tritmark.harness.record import Ratio
from tritmark.harness.text import units

_MS = 1e6


def value(figure: MeasuredFigure) -> str:
    """A figure with its interval."""
    shown = _value(figure.value, figure.unit)
    if figure.low is None or figure.high is None or figure.low == figure.high:
        return shown
    return f"{shown} ({_value(figure.low, figure.unit)} to {_value(figure.high, figure.unit)})"


def measured(result: CriterionResult) -> str:
    """The figure that is compared with the threshold; a dash if there is none."""
    return f"{value(result.figures[0])} {result.figures[0].name}" if result.figures else units.NONE


def required(result: CriterionResult) -> str:
    """The threshold in words."""
    limit = result.threshold
    return {
        "speedup": f"at least {limit:g}x",
        "exact": f"at most {limit:g}",
        "memory": f"below {limit:g}x",
        "leaks": "no growth",
        "calls": f"at least {100 * limit:g} %",
        "scaling": f"at most {limit:g}x",
        "latency": f"below {units.time(limit * _MS)}",
        "cross": f"at most {limit:g}",
        "migration": f"at least {100 * limit:g} %",
        "units": f"at least {100 * limit:g} %",
    }[result.kind]


def details(result: CriterionResult) -> list[str]:
    """What a reader needs besides the row: the reason, kernels, further figures, each size, failures."""
    lines = [f"reason: {result.reason}"] if result.reason else []
    if result.kernel:
        lines.append(f"kernel: {result.kernel}")
    if result.baseline:
        lines.append(f"compared with: {result.baseline}")
    lines += [f"{each.name}: {value(each)}" for each in result.figures[1:]]
    for each in result.points:
        if result.kind == "speedup":
            times = f"{units.time(each.kernel_ns)} and {units.time(each.other_ns)}"
            lines.append(f"{units.count(each.size)} elements: {units.times(each.ratio)}, {times}")
        else:
            lines.append(f"{units.count(each.size)} to {units.count(2 * each.size)} elements: {_ratio(each.ratio)}")
    if result.crossover is not None:
        lines.append(winners(result.crossover))
    lines += result.notes
    lines += [f"incorrect: {each}" for each in result.failures]
    return lines


def winners(found: Crossover) -> str:
    """From which size on each side is faster."""
    parts = []
    if found.kernel_from is not None:
        parts.append(f"the kernel is faster from {units.count(found.kernel_from)} elements on")
    if found.baseline_to is not None:
        parts.append(f"the baseline is faster up to {units.count(found.baseline_to)} elements")
    return "; ".join(parts) or "neither is faster at every size of either end"


def _ratio(ratio: Ratio) -> str:
    """A ratio with its interval, however wide."""
    return f"{ratio.median:.3g}x ({ratio.low:.3g} to {ratio.high:.3g})"


def _value(number: float, unit: Unit) -> str:
    if unit is Unit.TIMES:
        return f"{number:.3g}x"
    if unit is Unit.SHARE:
        # 99.97 % must not be shown as 100.0 %.
        return f"{100 * number:.3f}".rstrip("0").rstrip(".") + " %"
    if unit is Unit.NS:
        return units.time(number)
    if unit is Unit.BYTES:
        return units.size(number)
    if unit is Unit.BYTES_PER_CALL:
        return f"{number:.3g} bytes a call"
    return units.count(int(number))
