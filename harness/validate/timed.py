"""One measurement: taken where the candidate runs, and looked through by the process that holds the expected values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tritmark.harness.errors import Failure, WorkerError
from tritmark.harness.measure.survey import Roofs
from tritmark.harness.record import Performance
from tritmark.harness.spec import Arrays, Axes
from tritmark.harness.validate.cases import Cases
from tritmark.harness.validate.confirm import Meanwhile, audit_faults, confirm, part_faults
from tritmark.harness.validate.guard_names import Complaint
from tritmark.harness.validate.measured import BUDGET_S, Measured, finish, lap, measure, seen
from tritmark.harness.validate.pieces import Exchangeable

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
    worker.begin()  # what others take from it is told from what it takes itself
    meanwhile = Meanwhile(worker.pid)
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
    performance = confirm(
        found.performance,
        _faults(worker, cases, changes),
        lambda temperature, rounds, calls: worker.call("a lap", lap, temperature, rounds, calls),
        threads=threads,
        pid=worker.pid,
        held_up=meanwhile.crowded(threads),
    )
    worker.call("letting go of its buffers", finish)
    return performance, found


def _faults(worker: Worker, cases: Cases, changes: Exchangeable) -> list[Complaint]:
    """What is wrong with the outputs that calls left, which are large: a few of them are here at a time."""
    faults: list[Complaint] = []
    for _ in range(_MOST_ASKED):
        audited, parts = worker.call("telling what its calls left", seen)
        faults += [*audit_faults(cases, audited, changes), *part_faults(cases, parts, changes)]
        if not audited and not parts:
            return faults
    raise WorkerError(Failure.PROTOCOL, "the candidate's process does not come to an end of what its calls left", "")
