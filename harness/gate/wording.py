"""The texts that all output formats of a gate's result share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tritmark.harness.gate.result import Benchmark, Build, GateResult, Outcome
from tritmark.harness.record import Status
from tritmark.harness.text.units import counted
from tritmark.harness.text.visible import visible

if TYPE_CHECKING:
    from tritmark.harness.record import Ratio

ORDER = (
    Outcome.ERROR,
    Outcome.DIFFERS,
    Outcome.SLOWER,
    Outcome.AMBIGUOUS,
    Outcome.FASTER,
    Outcome.SAME,
    Outcome.ADDED,
    Outcome.REMOVED,
    Outcome.NOT_RUN,
)
"""The worst outcome first."""

_SHORT_HASH = 12


def sorted_benchmarks(result: GateResult) -> list[Benchmark]:
    """Worst outcome first, and the largest change first within each."""
    return sorted(
        result.benchmarks,
        key=lambda each: (ORDER.index(each.outcome), -abs((each.ratio.median if each.ratio else 1.0) - 1), each.id),
    )


def percent(fraction: float | None, *, sign: bool = False) -> str:
    """A fraction in percent: 0.0213 is 2.13 %. None is a dash."""
    return "–" if fraction is None else f"{100 * fraction:{'+' if sign else ''}.2f} %"


def change(ratio: Ratio | None) -> str:
    """The change of HEAD's time from BASE's with its 95 % interval: +5.10 % (+4.81 to +5.32)."""
    if ratio is None:
        return "–"
    return f"{percent(ratio.median - 1, sign=True)} ({100 * (ratio.low - 1):+.2f} to {100 * (ratio.high - 1):+.2f})"


def name(text: str) -> str:
    """A name on one line, with non-printing characters escaped, so that it cannot imitate lines of the report."""
    return visible(text).replace("\n", "\\n")


def place(benchmark: Benchmark) -> str:
    """The shape, its title, and the thread count if it is more than one."""
    shape = " ".join(f"{axis}={size}" for axis, size in benchmark.axes.items())
    return ", ".join(
        filter(
            None, (name(shape), name(benchmark.title), f"{benchmark.threads} threads" if benchmark.threads > 1 else "")
        )
    )


def kernel(benchmark: Benchmark) -> str:
    """The variant's id: device/op/format/dtype/variant."""
    return name("/".join((benchmark.device, benchmark.op, benchmark.format, benchmark.dtype, benchmark.variant)))


def build(side: Build) -> str:
    """The argument on the command line, with its commit and subject."""
    commit = side.commit[:_SHORT_HASH]
    behind = f"{'' if side.given.startswith(commit) else commit} {side.subject}".strip()
    return name(f"{side.given} ({behind})" if behind else side.given)


def counts(result: GateResult) -> str:
    """The number of benchmarks for each outcome: 2 SLOWER, 1 AMBIGUOUS, 30 SAME."""
    return (
        ", ".join(f"{result.count(outcome)} {outcome.value}" for outcome in ORDER if result.count(outcome))
        or "no benchmarks"
    )


def conclusion(result: GateResult) -> str:
    """The result in a sentence."""
    failed = sum(each.failed for each in result.benchmarks)
    unsure = result.count(Outcome.AMBIGUOUS)
    if result.status is Status.FAIL:
        said = f"fails: {failed} of {counted(len(result.benchmarks), 'benchmark')} slower or incorrect"
    elif result.status is Status.AMBIGUOUS:
        said = (
            f"is ambiguous: {unsure} of {counted(len(result.benchmarks), 'benchmark')} AMBIGUOUS, which --strict does "
            "not pass"
        )
    elif unsure:
        said = f"passes, with {unsure} of {counted(len(result.benchmarks), 'benchmark')} AMBIGUOUS"
    elif result.benchmarks and result.count(Outcome.NOT_RUN) == len(result.benchmarks):
        said = "compared nothing"
    else:
        said = "passes"
    return f"The gate {said}{'' if result.complete else '; it was interrupted'}."


def compared(result: GateResult) -> list[str]:
    """A line with the number of drawn cases on which outputs were compared; none if all machine code is the same."""
    cases = {kernel(each): each.cases for each in result.benchmarks if each.cases}
    if not cases:
        return []
    counts = sorted({min(cases.values()), max(cases.values())})
    on = f"{' to '.join(map(str, counts))} drawn cases of {len(cases)} kernel{'s' * (len(cases) > 1)}"
    return [f"outputs of both builds compared on {on}; repeat with --seed {result.environment.seed}"]


def took(result: GateResult) -> str:
    """The duration in a sentence."""
    building = round(result.building_seconds)
    return f"It took {result.seconds:.0f} s{f', including {building} s to build both' if building else ''}."
