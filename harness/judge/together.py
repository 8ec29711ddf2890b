"""Times kernels that do the same work together, for the league: without the guards that timing in a process of its own
has, and without cross-validation. Nothing else may run meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter

from tritmark.harness.judge.judging import Group, Judgement, listed_run
from tritmark.harness.judge.materials import Materials
from tritmark.harness.judge.request import Request
from tritmark.harness.judge.throttled import doubted
from tritmark.harness.judge.untimed import listed
from tritmark.harness.league.contenders import Work, work_of
from tritmark.harness.league.together import TimedTogether, Together, together_task
from tritmark.harness.league.turns import Session
from tritmark.harness.measure.surroundings import MachineWatch
from tritmark.harness.measure.survey import Roofs
from tritmark.harness.providers import Installed
from tritmark.harness.record import MachineLoad, Performance, Run, Status
from tritmark.harness.spec import Variant
from tritmark.harness.validate.guard_names import in_order
from tritmark.harness.validate.performance import THROUGH_PYTHON
from tritmark.harness.worker import Workers

TOGETHER = (
    "timed in one process with all kernels of the same work, as the league does it: outputs of timed calls were not "
    "looked at, and only the clock of that process was read"
)
"""Limit of a performance verdict."""
_TIMEOUT_S = 300.0

Place = tuple[Group, Variant]


def together(
    installed: Installed,
    request: Request,
    session: Session,
    places: Sequence[Place],
    judgements: Mapping[str, Judgement],
) -> Iterator[Run]:
    """The Runs of these places, all on the host, with the figures of one round-robin for each work. Adds the ratios to
    the session.

    One process times all of them, so that its libraries and the memory of its probes are there once. Code of other
    packages, and candidates, could forge its clock: work that they do too is left out, and timed with all guards.
    """
    by_work: dict[Work, list[tuple[Place, Run]]] = {}
    for group, variant in places:
        judgement = judgements[group.run_id(variant)]
        run = listed_run(group, variant, listed(installed, group, request), judgement)
        run = run.model_copy(update={"code": judgement.code})
        by_work.setdefault(work_of(run, installed.scales_of), []).append(((group, variant), run))
    host = next((variant for _, variant in places if variant.id in installed.own), None)
    if host is None:
        return
    materials, roofs = Materials(request.seed), dict[str, Roofs]()
    with Workers(installed, request.candidates) as workers:
        for work, each in by_work.items():
            if not all(at.id in installed.own for (_, at), _ in each):
                continue
            (group, variant), run = each[0]
            encoded = {at.id: materials.of(of).encoded(of.key.format)[0] for (of, at), _ in each}
            begun = perf_counter()
            with MachineWatch() as surroundings:
                found = _timed(workers, host, group, encoded, run, roofs.get(variant.key.device, {}))
            load, seconds = surroundings.load(), (perf_counter() - begun) / len(each)
            roofs[variant.key.device] = found.roofs
            ids = {at.id: of_run.id for (_, at), of_run in each}
            session.best.update({(work, temperature): ids[id] for temperature, id in found.best.items()})
            for (_, at), of_run in each:
                figures = found.kernels[at.id]
                session.ratios.update({(of_run.id, name): ratio for name, ratio in figures.ratios.items()})
                if figures.error:
                    session.problems.append(f"{of_run.id}: {figures.error}")
                yield _complete(of_run, figures, load, seconds)


def _timed(
    workers: Workers, host: Variant, group: Group, encoded: Mapping[str, object], run: Run, roofs: Roofs
) -> Together:
    """The figures of one work, by the worker of `host`. If its process fails, every kernel has that error."""
    arguments = group.op.name, encoded, dict(group.workload.axes), run.threads, run.workload.seed, roofs
    try:
        found: Together = workers.of(host).call(
            "timing all kernels of a work", together_task, *arguments, timeout_s=_TIMEOUT_S
        )
    except Exception as error:
        workers.renew(host)
        reason = f"{type(error).__name__}: {error}"
        return Together({id: TimedTogether(error=reason) for id in encoded}, {}, roofs)
    return found


def _complete(run: Run, found: TimedTogether, load: MachineLoad, seconds: float) -> Run:
    remarks = dict.fromkeys((found.error, *map(str, found.faults), *found.remarks))
    performance = Performance(
        status=Status.ERROR if found.error else Status.FAIL if found.faults else Status.PASS,
        reason="; ".join(filter(None, remarks)),
        caught_by=in_order(fault.guard for fault in found.faults),
        limits=(TOGETHER, *((THROUGH_PYTHON,) if found.by_python else ())),
        cold=None if found.error else found.cold,
        hot=None if found.error else found.hot,
        read=found.read,
        written=found.written,
        operations=found.operations,
        doubted=bool(found.faults),
        tests=sum(each is not None for each in (found.cold, found.hot)),
    )
    return run.model_copy(
        update={
            "performance": doubted(performance, load),
            "receipt": None if run.receipt is None else found.evidence.added_to(run.receipt),
            "seconds": run.seconds + seconds,
            "load": load,
        }
    )
