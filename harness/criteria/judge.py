"""The loop over the criteria of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from time import monotonic
from typing import TYPE_CHECKING, Any

from tritmark.harness.criteria.bench import CriteriaBench, CriterionFinding
from tritmark.harness.criteria.cross import judge_cross, judge_migration
from tritmark.harness.criteria.exact import judge_exact
from tritmark.harness.criteria.latency import judge_latency
from tritmark.harness.criteria.memory import judge_leaks, judge_memory
from tritmark.harness.criteria.model import CriterionResult
from tritmark.harness.criteria.random_calls import judge_calls
from tritmark.harness.criteria.scaling import judge_scaling
from tritmark.harness.criteria.speedup import judge_speedup
from tritmark.harness.criteria.units_used import judge_units
from tritmark.harness.errors import CandidateError, DeviceError, NoCompatibleKernelError, WorkerError
from tritmark.harness.record import Status

if TYPE_CHECKING:
    from tritmark.harness.criteria.plan import CriteriaPlan
    from tritmark.harness.providers import Installed
    from tritmark.harness.spec import Device
    from tritmark.harness.worker import Workers

JUDGES: Mapping[str, Callable[[CriteriaBench, Any], CriterionFinding]] = {
    "speedup": judge_speedup,
    "exact": judge_exact,
    "memory": judge_memory,
    "leaks": judge_leaks,
    "calls": judge_calls,
    "scaling": judge_scaling,
    "latency": judge_latency,
    "cross": judge_cross,
    "migration": judge_migration,
    "units": judge_units,
}
"""By kind of criterion."""


def judged(
    installed: Installed,
    plan: CriteriaPlan,
    workers: Workers,
    device: Device,
    seed: int,
    report: Callable[[str, int], None] = lambda name, total: None,
) -> Iterator[CriterionResult]:
    """Judge each criterion of the plan on one device. `report` gets the id before each, and their number.

    A kernel that crashes, hangs or raises FAILs the criterion. Faults of the machine are raised.
    """
    benches: dict[str, CriteriaBench] = {}
    for criterion in plan.criteria:
        report(criterion.id, len(plan.criteria))
        begun = monotonic()
        kernel = plan.kernel_of(criterion)
        bench = benches.setdefault(criterion.kernel, CriteriaBench(installed, plan, kernel, workers, device, seed))
        try:
            found = JUDGES[criterion.kind](bench, criterion)
        except NoCompatibleKernelError as error:
            found = CriterionFinding(Status.NOT_RUN, f"no kernel: {error}")
        except (WorkerError, CandidateError, DeviceError) as error:
            found = CriterionFinding(Status.FAIL, f"the kernel broke: {error}")
            for variant in installed.registry.variants:
                if variant.key == bench.key:
                    workers.renew(variant)
        yield CriterionResult(
            id=criterion.id,
            kind=criterion.kind,
            source=criterion.source,
            words=criterion.words,
            threshold=criterion.threshold,
            simulated=device.simulated(),
            seconds=round(monotonic() - begun, 2),
            **{each.name: getattr(found, each.name) for each in fields(found)},
        )


def device_of(installed: Installed, plan: CriteriaPlan) -> Device:
    """The device to judge: the first accelerator that is present and not simulated, otherwise the baseline."""
    for name in judgeable(installed, plan):
        device = installed.registry.devices[name]
        if name != plan.baseline.device and device.missing() is None and not device.simulated():
            return device
    return installed.registry.devices[plan.baseline.device]


def judgeable(installed: Installed, plan: CriteriaPlan) -> list[str]:
    """The types of devices that have kernels for the plan, present or not."""
    return list(dict.fromkeys(key.device for key in installed.keys(plan.first.op) if key == plan.first.key(key.device)))
