"""The Runs of a Record, of all tiers, and its comparisons with peers, side by side for the same work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from tritmark.harness.league.model import Basis, Contender, ContenderTiming, LeagueTable, WholeCall
from tritmark.harness.record import Accuracy, Measurement, PeerComparison, Ratio, Record, Run, Status
from tritmark.harness.spec import ToleranceKind
from tritmark.harness.text import groups
from tritmark.harness.validate.ceiling import TELLING

Temperature = Literal["cold", "hot"]
TEMPERATURES: tuple[Temperature, ...] = ("cold", "hot")
Work = tuple[str, str, str, str, int, str]
"""Device, op, dtype, workload, threads, scales of the weights: equal for Runs that do the same work."""
ScalesOf = Callable[[str], str]
"""The scales of a format's weights in words, "" for an unknown one: weights with a scale for each group do not hold
those with one for the tensor, nor the reverse."""
Interleaving = Mapping[tuple[str, Temperature], Ratio]
"""By Run id: its time over the time of the best Run for the same work, interleaved."""
Best = Mapping[tuple[Work, Temperature], str]
"""The id of the best Run, as interleaving found it."""
_ROUNDED_ONCE = 0.5
"""Largest difference from the exact value in ulp after one rounding."""


BitsOf = Callable[[str, Mapping[str, int]], float | None]
"""The stored bits of a weight in a format, at these axes."""


def _unknown(format: str) -> str:
    return ""


def _unknown_bits(format: str, axes: Mapping[str, int]) -> float | None:
    return None


def work_of(run: Run, scales: ScalesOf = _unknown) -> Work:
    """The work of a Run."""
    return run.device, run.op, run.dtype, run.workload.id, run.threads, scales(run.format)


def by_work(record: Record, scales: ScalesOf = _unknown) -> dict[Work, list[Run]]:
    """The measured Runs by work."""
    found: dict[Work, list[Run]] = {}
    for run in record.runs:
        if run.performance.cold is not None or run.performance.hot is not None:
            found.setdefault(work_of(run, scales), []).append(run)
    return found


def admitted(runs: Sequence[Run], right: Sequence[Run]) -> list[Run]:
    """The Runs that may be the best and are timed against it: those of correct kernels, and of peers that passed."""
    return [run for run in runs if run in right or (run.peer and run.accuracy.status is Status.PASS)]


def best_of(runs: Sequence[Run], temperature: Temperature) -> Run | None:
    """The fastest Run with a figure that is neither doubted nor too noisy. The figures were not interleaved."""
    timed = [
        run
        for run in runs
        if (footing := _footing(run, temperature)) is not None
        and not footing.timing.too_noisy
        and not groups.doubted(run)
    ]
    return min(timed, key=lambda run: _ns(run, temperature), default=None)


def tables(
    record: Record,
    turns: Interleaving | None = None,
    calls: Mapping[Work, Sequence[WholeCall]] | None = None,
    found_best: Best | None = None,
    scales: ScalesOf = _unknown,
    bits: BitsOf = _unknown_bits,
) -> tuple[LeagueTable, ...]:
    """The league tables of a Record, one for each work: formats with other scales have a table of their own.

    `turns` and `found_best`: interleaved ratios and the best Runs that they refer to. Without them, the ratios follow
    from the Record. `bits`: for kernels whose memory was not judged.
    """
    right = groups.selectable(record)
    made = []
    for work, runs in by_work(record, scales).items():
        ids = {run.id: run for run in runs}
        best = {
            temperature: ids.get((found_best or {}).get((work, temperature), ""))
            or best_of(admitted(runs, right), temperature)
            for temperature in TEMPERATURES
        }
        first = runs[0]
        made.append(
            LeagueTable(
                device=first.device,
                op=first.op,
                dtype=first.dtype,
                axes=first.workload.axes,
                title=first.workload.title,
                threads=first.threads,
                scales=work[-1],
                contenders=tuple(sorted(_contenders(runs, best, turns or {}, bits), key=_order)),
                calls=tuple((calls or {}).get(work, ())),
            )
        )
    return tuple(made)


def _order(contender: Contender) -> tuple[bool, bool, bool, float]:
    pace = contender.cold or contender.hot
    return (
        contender.verdict in {Status.FAIL, Status.ERROR},
        pace is not None and pace.too_noisy,
        contender.cold is None,
        pace.ns if pace is not None else float("inf"),
    )


def _contenders(
    runs: Sequence[Run], best: Mapping[Temperature, Run | None], turns: Interleaving, bits: BitsOf
) -> list[Contender]:
    own = {run.id: _contender(run, best, turns, bits) for run in runs}
    return [*own.values(), *_peers(runs, own, best["hot"])]


def _contender(run: Run, best: Mapping[Temperature, Run | None], turns: Interleaving, bits: BitsOf) -> Contender:
    cold, hot = (_pace(run, best[temperature], temperature, turns) for temperature in TEMPERATURES)
    accuracy = run.accuracy
    reason = next((each.reason for each in (accuracy, run.performance, run.memory, run.cross) if each.failed), "")
    return Contender(
        kernel=run.kernel,
        variant=run.variant + (f" (calls {' and '.join(accuracy.borrowed)})" if accuracy.borrowed else ""),
        format=run.format,
        version=run.peer_version,
        verdict=groups.verdict(run),
        reason=reason,
        exact=_exact(accuracy) if accuracy.elements else None,
        largest_error=accuracy.largest_error,
        bits_per_weight=run.memory.bits_per_weight or (None if run.peer else bits(run.format, run.workload.axes)),
        cold=cold,
        hot=hot,
    )


def _exact(accuracy: Accuracy) -> bool:
    rounded = accuracy.largest_ulp is not None and accuracy.largest_ulp <= _ROUNDED_ONCE
    return not accuracy.mismatches and (accuracy.family == ToleranceKind.EXACT or rounded)


def _pace(run: Run, best: Run | None, temperature: Temperature, turns: Interleaving) -> ContenderTiming | None:
    footing = _footing(run, temperature)
    if footing is None or groups.doubted(run):
        return None
    timing, against = footing.timing, footing.against
    behind, basis = _behind(run, best, temperature, turns)
    return ContenderTiming(
        ns=timing.median_ns,
        low_ns=timing.low_ns,
        high_ns=timing.high_ns,
        ceiling=against.ceiling,
        share=None if against.lost else against.fraction,
        behind=behind,
        basis=basis,
        contradicts=behind is not None and best is not None and contradicts(behind, run, best, temperature),
    )


def contradicts(behind: Ratio, run: Run, best: Run, temperature: Temperature) -> bool:
    """Whether an interleaved ratio to the best and the quotient of the two times contradict each other.

    The two times are from different moments, and the speed of a machine changes by a few percent. So the intervals must
    differ by more than TELLING.
    """
    own, theirs = _footing(run, temperature), _footing(best, temperature)
    if own is None or theirs is None or theirs.timing.low_ns <= 0:
        return False
    low, high = own.timing.low_ns / theirs.timing.high_ns, own.timing.high_ns / theirs.timing.low_ns
    return behind.low > (1 + TELLING) * high or (1 + TELLING) * behind.high < low


def _behind(run: Run, best: Run | None, temperature: Temperature, turns: Interleaving) -> tuple[Ratio | None, Basis]:
    if best is None:
        return None, Basis.NONE
    if run.id == best.id:
        return None, Basis.BEST
    taken = turns.get((run.id, temperature))
    if taken is not None:
        return taken, Basis.TURNS
    own, theirs = _footing(run, temperature), _footing(best, temperature)
    assert own is not None
    assert theirs is not None
    a, b = own.against, theirs.against
    if a.ceiling != b.ceiling or a.lost or b.lost or min(a.fraction.low, b.fraction.low) <= 0:
        return None, Basis.NONE
    # time = work / (rate of the ceiling * fraction), and both have the same rate.
    work = a.work / b.work
    return (
        Ratio(
            median=work * b.fraction.median / a.fraction.median,
            low=work * b.fraction.low / a.fraction.high,
            high=work * b.fraction.high / a.fraction.low,
            pairs=min(a.fraction.pairs, b.fraction.pairs),
        ),
        Basis.CEILING,
    )


def _peers(runs: Sequence[Run], own: Mapping[str, Contender], best: Run | None) -> list[Contender]:
    """One contender for each timed peer, from its comparison with the best kernel, or with the fastest one if the best
    was not compared. Projects with a correct variant are skipped: the variant is timed without the Python call."""
    theirs = [run.variant for run in runs if run.peer and own[run.id].verdict not in {Status.FAIL, Status.ERROR}]
    found: dict[str, list[tuple[Run, PeerComparison]]] = {}
    for run in runs:
        for comparison in run.cross.peers:
            known = any(name == comparison.peer or name.startswith(f"{comparison.peer}-") for name in theirs)
            if comparison.speedup is not None and not known and not groups.doubted(run):
                found.setdefault(comparison.peer, []).append((run, comparison))
    made = []
    for name, pairs in found.items():
        run, comparison = min(pairs, key=lambda pair: (best is None or pair[0].id != best.id, _ns(pair[0], "hot")))
        made.append(_peer(name, comparison, run, own[run.id], best))
    return made


def _peer(name: str, comparison: PeerComparison, run: Run, kernel: Contender, best: Run | None) -> Contender:
    assert comparison.speedup is not None
    assert comparison.peer_ns is not None
    verdict = comparison.status
    if comparison.peer_wrong:
        verdict = Status.FAIL
    elif comparison.match:
        verdict = Status.PASS
    behind: Ratio | None = comparison.speedup
    basis = Basis.TURNS
    if best is None or run.id != best.id:
        through = kernel.hot.behind if kernel.hot is not None else None
        if through is None:
            behind, basis = None, Basis.NONE
        else:
            behind, basis = _product(comparison.speedup, through), Basis.KERNEL
    return Contender(
        kernel=name,
        variant=name,
        format=run.format,
        version=comparison.version,
        peer=True,
        verdict=verdict,
        reason=comparison.reason,
        exact=None if comparison.match is None else comparison.largest_error == 0,
        largest_error=comparison.largest_error,
        hot=ContenderTiming(ns=comparison.peer_ns, behind=behind, basis=basis),
    )


def _product(a: Ratio, b: Ratio) -> Ratio:
    return Ratio(median=a.median * b.median, low=a.low * b.low, high=a.high * b.high, pairs=min(a.pairs, b.pairs))


def _footing(run: Run, temperature: Temperature) -> Measurement | None:
    footing: Measurement | None = getattr(run.performance, temperature)
    return footing


def _ns(run: Run, temperature: Temperature) -> float:
    footing = _footing(run, temperature)
    return float("inf") if footing is None else footing.timing.median_ns
