"""Cross-validation with the C++ reference and other implementations, and whether to migrate from one of them."""

from __future__ import annotations

from tritmark.harness.criteria.bench import SIMULATED, CriteriaBench, CriterionFinding, named
from tritmark.harness.criteria.model import MeasuredFigure, Unit
from tritmark.harness.criteria.plan import CrossCriterion, MigrationCriterion
from tritmark.harness.record import Cross, PeerComparison, Ratio, Status
from tritmark.harness.spec import Peer
from tritmark.harness.text.units import count, counted
from tritmark.harness.validate.collect import Collected, collect_task, known
from tritmark.harness.validate.cross import CrossTask


def crossed(bench: CriteriaBench, size: int, *, timed: bool) -> Cross:
    """The best kernel at that size beside every peer."""
    variant = bench.best(size)
    case, axes = bench.case(size), bench.kernel.at(size)
    threads = bench.threads if bench.device.memory is None else 1
    task = CrossTask(bench.op, bench.key, known(bench.installed), case.expected, case.logical, axes, 1)

    def collected(peer: Peer) -> Collected:
        try:
            found: Collected = bench.workers.of(variant).call(
                f"cross-validating with {peer.name}",
                collect_task,
                peer.name,
                (),
                case.logical,
                case.inputs,
                axes,
                threads,
                bench.seed,
                timed,
            )
        except Exception:
            bench.workers.renew(variant)
            raise
        return found

    return task.judge(collected)


def judge_cross(bench: CriteriaBench, criterion: CrossCriterion) -> CriterionFinding:
    """Compare at each size. A disagreement counts if the exact value shows that the kernel is incorrect."""
    elements = wrong = 0
    peers: dict[str, None] = {}
    failures: list[str] = []
    missing: dict[str, None] = {}
    remarks: dict[str, None] = {}
    for size in criterion.sizes:
        for each in crossed(bench, size, timed=False).peers:
            if each.status is Status.NOT_RUN:
                missing[f"{each.peer}: {each.reason}"] = None
                continue
            if each.status is Status.PASS:
                peers[f"{each.peer} {each.version}".strip()] = None
                elements += each.elements
                if each.reason:
                    remarks[f"{each.peer}: {each.reason}"] = None
                continue
            wrong += max(1, each.mismatches)
            failures.append(f"{count(size)} elements, {each.peer}: {each.reason}")
    figures = (
        MeasuredFigure(name="elements that differ", value=wrong, unit=Unit.COUNT),
        MeasuredFigure(name="elements compared", value=elements, unit=Unit.COUNT),
    )
    kernel = named(bench.best(criterion.sizes[-1]), bench.threads, bench.device)
    if wrong > criterion.threshold:
        return CriterionFinding(
            Status.FAIL, failures[0], figures, kernel, ", ".join(peers), failures=tuple(failures), notes=tuple(missing)
        )
    if not peers:
        return CriterionFinding(
            Status.NOT_RUN, "; ".join(missing) or "no other implementation has this op", kernel=kernel
        )
    return CriterionFinding(Status.PASS, "", figures, kernel, ", ".join(peers), notes=(*missing, *remarks))


def judge_migration(bench: CriteriaBench, criterion: MigrationCriterion) -> CriterionFinding:
    """The time that the kernel saves over each timed peer; the least of them decides."""
    if bench.simulated:
        return CriterionFinding(Status.NOT_RUN, SIMULATED)
    comparisons = crossed(bench, criterion.size, timed=True).peers
    kernel = named(bench.best(criterion.size), bench.threads, bench.device)
    timed = [each for each in comparisons if each.speedup is not None]
    if not timed:
        return CriterionFinding(Status.NOT_RUN, _untimed(comparisons), kernel=kernel)
    least = min(timed, key=_saved)
    assert least.speedup is not None
    figure = MeasuredFigure(
        name=f"time saved over {least.peer}",
        value=saved(least.speedup.median),
        unit=Unit.SHARE,
        low=saved(least.speedup.low),
        high=saved(least.speedup.high),
    )
    names = ", ".join(f"{each.peer} {each.version}".strip() for each in timed)
    status, reason = migration(least.speedup, criterion.threshold)
    different = [each for each in timed if each.status is not Status.PASS]
    if different:
        status, reason = Status.FAIL, f"{different[0].peer}: {different[0].reason}"
    return CriterionFinding(status, reason, (figure,), kernel, names)


def saved(speedup: float) -> float:
    """The time saved as a share of the other's time."""
    return 1 - 1 / speedup


def migration(speedup: Ratio, threshold: float) -> tuple[Status, str]:
    """Whether the time saved is at least the threshold; the whole interval must show it."""
    low, high = saved(speedup.low), saved(speedup.high)
    if low >= threshold:
        return Status.PASS, ""
    shown = f"{100 * low:.1f} to {100 * high:.1f} % of the time is saved"
    if high < threshold:
        return Status.FAIL, f"{shown}; at least {100 * threshold:g} % is required"
    return Status.NOT_RUN, f"not decided: {shown}, which contains {100 * threshold:g} %"


def _saved(each: PeerComparison) -> float:
    assert each.speedup is not None
    return each.speedup.low


def _untimed(comparisons: tuple[PeerComparison, ...]) -> str:
    references = [each.peer for each in comparisons if each.reference]
    others = [f"{each.peer}: {each.reason or 'not timed'}" for each in comparisons if not each.reference]
    if references and not others:
        return f"{' and '.join(references)} is written for reading, not for speed; no other implementation has this op"
    return "; ".join(others) or f"{counted(len(comparisons), 'implementation')} to compare with"
