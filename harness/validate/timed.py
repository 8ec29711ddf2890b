"""One measurement: taken where the candidate runs, and looked through by the process that holds the expected values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tritmark.harness.errors import Failure, WorkerError
from tritmark.harness.measure.survey import Roofs
from tritmark.harness.record import Performance, Status
from tritmark.harness.spec import Arrays, Axes
from tritmark.harness.validate.audit import LARGE
from tritmark.harness.validate.cases import Cases
from tritmark.harness.validate.confirm import InterferenceWatch, audit_faults, confirm, part_faults
from tritmark.harness.validate.guard_names import Complaint, Guard, in_order
from tritmark.harness.validate.measured import BUDGET_S, Measured, finish, lap, measure, seen
from tritmark.harness.validate.pieces import Exchangeable
from tritmark.harness.validate.proof import prove
from tritmark.harness.validate.shared_sets import SharedSets, set_bytes
from tritmark.harness.validate.state import StateWatch, others_start_threads
from tritmark.harness.worker import tasks
from tritmark.harness.worker.remote import SharedMemory
from tritmark.harness.worker.workers import Isolated

if TYPE_CHECKING:
    from tritmark.harness.worker.workers import Worker

MEASURE_S = 300.0
"""Seconds that measuring may take: the stopping rules end it long before."""

_MOST_ASKED = 1 << 12
"""Times that a worker is asked for more of what calls left: an honest one has told all long before."""


def timed(
    worker: Worker,
    cases: Cases,
    encoded: tuple[Arrays, ...],
    axes: Axes,
    changes: Exchangeable,
    *,
    layout: str,
    seed: int,
    threads: int,
    roofs: Roofs,
    budget_s: float = BUDGET_S,
) -> tuple[Performance, Measured]:
    """Measure the worker's variant on `cases`, whose inputs `encoded` are; `changes` are exchanged before samples.

    `roofs` is what is known of the device's ceilings. Raises what the candidate raises, CandidateError and WorkerError.
    """
    watch = _watched(worker, cases, encoded, axes, changes, layout=layout, threads=threads)
    worker.begin()  # what others take from it is told from what it takes itself
    meanwhile = InterferenceWatch(worker.pid)
    found: Measured = worker.call(
        "measuring",
        measure,
        encoded[0],
        dict(axes),
        layout,
        seed,
        threads,
        roofs,
        encoded[1] if cases.in_place else None,
        budget_s,
        changes.pieces,
        timeout_s=MEASURE_S,
    )
    left = watch.end(launches=False)
    performance = confirm(
        found.performance,
        _faults(worker, cases, changes),
        lambda temperature, rounds, calls: worker.call("a lap", lap, temperature, rounds, calls),
        threads=threads,
        pid=worker.pid,
        held_up=meanwhile.crowded(threads),
    )
    worker.call("letting go of its buffers", finish)
    performance = prove(worker, performance, cases, encoded, axes, changes, layout=layout, threads=threads, seed=seed)
    return _with_state(performance, list(dict.fromkeys([*left, *watch.end()]))), found


def _watched(
    worker: Worker,
    cases: Cases,
    encoded: tuple[Arrays, ...],
    axes: Axes,
    changes: Exchangeable,
    *,
    layout: str,
    threads: int,
) -> StateWatch:
    """A watch of the worker's process. It begins after a first call, which may open and map what others may not."""
    memory = worker.device.memory() if worker.device.memory is not None else None
    large = set_bytes(cases, encoded[0], layout) > LARGE
    if not isinstance(worker, Isolated) or not isinstance(memory, SharedMemory) or large:
        return StateWatch(None)
    with others_start_threads(worker):
        worker.call("starting the threads of probes", tasks.start_threads, threads)
    watch = StateWatch(worker, threads)
    sets = SharedSets(cases, encoded, changes, layout, memory, 1)
    worker.call("binding for its first call", tasks.bind_row, (sets.given(0),), dict(axes), threads)
    worker.call("its first call", tasks.run_row, 1)
    worker.call("letting go of its first call", tasks.drop_row)
    watch.begin()
    return watch


def _with_state(performance: Performance, faults: list[str]) -> Performance:
    if not faults:
        return performance
    return performance.model_copy(
        update={
            "status": Status.FAIL,
            "reason": "; ".join([*(f"while it was timed, {each}" for each in faults), performance.reason]).rstrip("; "),
            "caught_by": in_order((*performance.caught_by, Guard.STATE)),
        }
    )


def _faults(worker: Worker, cases: Cases, changes: Exchangeable) -> list[Complaint]:
    """What is wrong with the outputs that calls left, which are large: a few of them are here at a time."""
    faults: list[Complaint] = []
    for _ in range(_MOST_ASKED):
        audited, parts = worker.call("telling what its calls left", seen)
        faults += [*audit_faults(cases, audited, changes), *part_faults(cases, parts, changes)]
        if not audited and not parts:
            return faults
    raise WorkerError(Failure.PROTOCOL, "the candidate's process does not come to an end of what its calls left", "")
