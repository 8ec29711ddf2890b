"""One measurement: taken where the candidate runs, and looked through by the process that holds the expected values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tritmark.harness.measure.survey import Roofs
from tritmark.harness.record import Performance
from tritmark.harness.spec import Arrays, Axes
from tritmark.harness.validate.cases import Cases
from tritmark.harness.validate.confirm import Meanwhile, confirm
from tritmark.harness.validate.measured import BUDGET_S, Measured, finish, lap, measure
from tritmark.harness.validate.pieces import Exchangeable

if TYPE_CHECKING:
    from tritmark.harness.worker.workers import Worker

MEASURE_S = 300.0
"""Seconds that measuring may take: the stopping rules end it long before."""


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
        found.audited,
        cases,
        lambda temperature, rounds, calls: worker.call("a lap", lap, temperature, rounds, calls),
        threads=threads,
        pid=worker.pid,
        parts=found.parts,
        exchangeable=changes,
        held_up=meanwhile.crowded(threads),
    )
    worker.call("letting go of its buffers", finish)
    return performance, replace(found, audited=(), parts=())  # looked through, and large
