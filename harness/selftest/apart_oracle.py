"""Judges mutants that outputs do not show, in a process of their own, with the guards for state, memory and time."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from tritmark.harness.errors import CandidateError, WorkerError
from tritmark.harness.machine.cpu import physical_cores
from tritmark.harness.measure.buffers import rotation
from tritmark.harness.record import Performance, Status
from tritmark.harness.selftest.apart import LaunchMutant
from tritmark.harness.selftest.domain import Domain
from tritmark.harness.selftest.right import right
from tritmark.harness.spec import Op, Variant, Workload
from tritmark.harness.validate.cases import Material
from tritmark.harness.validate.confirm import confirmed, statistical
from tritmark.harness.validate.drawn import judge_drawn
from tritmark.harness.validate.memory import confirmed_use, watched
from tritmark.harness.validate.pieces import NOTHING, exchangeable
from tritmark.harness.validate.timed import timed
from tritmark.harness.worker import Workers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tritmark.harness.providers import Installed

CASES = 8
"""Drawn cases before memory and time are measured: they kill a mutant that the outputs show, and make some hundred
calls."""
_DRAWS = 32
"""Drawn shapes, of which the largest is used: the time of a short call is not conclusive."""
BUDGET_S = 0.05
_MEMORY = 1 << 30
_TIMEOUT_S = 60.0


def judge(installed: Installed, mutant: LaunchMutant, reach: Mapping[str, int], seed: int) -> str:
    """Why the judgement fails a kernel with that mutant; "" if it passes."""
    (variant,) = mutant.variants(installed)
    with Workers(installed, [mutant], timeout_s=_TIMEOUT_S, memory_bytes=_MEMORY + 4 * rotation().nbytes) as workers:
        try:
            return _judge(installed, workers, variant, mutant, reach, seed)
        except (CandidateError, WorkerError) as error:
            return f"{type(error).__name__}: {error}"


def _judge(
    installed: Installed, workers: Workers, variant: Variant, mutant: LaunchMutant, reach: Mapping[str, int], seed: int
) -> str:
    op, key, worker = installed.ops[mutant.key.op], mutant.key, workers.of(variant)
    accuracy = judge_drawn(
        op, worker.variant, key, corners=(), count=CASES, seed=seed, cores=physical_cores(), device=worker.device
    ).accuracy  # fmt: skip
    if accuracy.failed or mutant.kind == "state":
        return accuracy.reason if accuracy.failed else ""
    material = Material(op, _workload(installed, op, mutant, reach, seed), seed)
    axes, cases = dict(material.workload.axes), material.cases(key)
    encoded = tuple(material.encoded(key.format))
    if mutant.kind == "memory":
        use = confirmed_use(lambda again: watched(workers, variant, again), encoded[0], axes, threads=1)
        return use.reason if use.failed else ""
    rng = np.random.default_rng([seed, mutant.number + 1])
    changes = exchangeable(op, key, axes, material.logical, encoded, rng) if cases.in_place else NOTHING

    def measured() -> Performance:
        own = workers.of(variant)
        return timed(
            own, cases, encoded, axes, changes, layout="aligned", seed=seed, threads=1, roofs={}, budget_s=BUDGET_S
        )[0]

    def again() -> Performance:
        workers.renew(variant)
        return measured()

    performance = measured()
    if statistical(performance):
        performance = confirmed(performance, again)
    return performance.reason if performance.status in {Status.FAIL, Status.ERROR} else ""


def _workload(installed: Installed, op: Op, mutant: LaunchMutant, reach: Mapping[str, int], seed: int) -> Workload:
    """The workload on which memory and time are measured."""
    domain, rng = (
        Domain(right(installed, mutant.key), reach, physical_cores()),
        np.random.default_rng([seed, mutant.number + 1]),
    )
    drawn = [domain.draw(rng).axes for _ in range(_DRAWS)]
    largest = max(drawn, key=lambda axes: sum(prod(axes.get(axis, 1) for axis in tensor.axes) for tensor in op.inputs))
    return Workload(op=op.name, axes=largest, family=op.input_families[0])
