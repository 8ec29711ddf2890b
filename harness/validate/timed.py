"""One measurement: taken in the candidate's process, and judged in the process that holds the expected values."""

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
"""Limit in seconds for a measurement. The stopping rules end it long before."""

_MOST_ASKED = 1 << 12
"""Most requests to a worker for outputs of calls. An honest worker needs far fewer."""


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
    """Measure the worker's variant on `cases`, which are encoded as `encoded`. `changes` are exchanged before samples.

    `roofs`: the known ceilings of the device. Raises what the candidate raises, CandidateError and WorkerError.
    """
    watch = _watched(worker, cases, encoded, axes, changes, layout=layout, threads=threads)
    worker.begin()  # separates the load of other processes from its own
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
    worker.call("releasing its buffers", finish)
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
    """Watch the worker's process. The watch begins after a first call, which may open and map what later calls may
    not."""
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
    worker.call("releasing its first call", tasks.drop_row)
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
    """Faults in the outputs of calls. Outputs are large, so only a few are here at a time."""
    faults: list[Complaint] = []
    for _ in range(_MOST_ASKED):
        audited, parts = worker.call("reading the outputs of its calls", seen)
        faults += [*audit_faults(cases, audited, changes), *part_faults(cases, parts, changes)]
        if not audited and not parts:
            return faults
    raise WorkerError(Failure.PROTOCOL, "the candidate's process reports outputs of its calls without end", "")
