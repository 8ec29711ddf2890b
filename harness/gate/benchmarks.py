"""The benchmarks of a gate: every kernel of either build on the measured workloads of a suite."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from tritmark.harness.gate.task import GateTask
from tritmark.harness.record import Model
from tritmark.harness.suite import read_suite

if TYPE_CHECKING:
    from tritmark.harness.gate.opened import OpenedBuild


class BenchmarkFilter(Model):
    """The requested suite, globs, thread count and seed."""

    suite: str = "quick"
    op: str = "*"
    variant: str = "*"
    device: str = "*"
    threads: int = 1
    seed: int = 0


def tasks(build: OpenedBuild, wanted: BenchmarkFilter) -> list[GateTask]:
    """Every kernel of a build on the measured workloads of the build's own suite, or of a suite file.

    Raises UsageError if the build does not have the suite, or lacks something that the suite names.
    """
    with build.inside():
        path = build.installed.suite_file(wanted.suite)
        # Not suite_parts, which imports what reads them: here that would come from the build.
        parts = [] if wanted.suite.endswith(".toml") else build.installed.op_workloads()
    # Outside of the build: its harness may be older and read suites differently.
    suite = read_suite(path, wanted.suite, build.installed.known, parts)
    with build.inside():
        found: dict[str, GateTask] = {}
        for item in suite.selected:
            if not item.workload.measure or not fnmatchcase(item.workload.op, wanted.op):
                continue
            for variant in build.installed.registry.variants:
                if variant.tier.name == "PEER":  # by name: the build has an enumeration of its own
                    continue
                key, work = variant.key, item.workload
                named = fnmatchcase(variant.name, wanted.variant) or fnmatchcase(variant.id, wanted.variant)
                if key.op != work.op or not named or not fnmatchcase(key.device, wanted.device):
                    continue
                if not item.admits(key.format, key.dtype, key.device):
                    continue
                own = build.installed.registry.devices[key.device].memory is not None
                task = GateTask(
                    device=key.device,
                    op=key.op,
                    format=key.format,
                    dtype=key.dtype,
                    variant=variant.name,
                    axes=dict(work.axes),
                    family=work.family,
                    layout=work.layout,
                    threads=1 if own else wanted.threads,
                    seed=wanted.seed,
                    title=work.title,
                )
                found.setdefault(task.id, task)
        return list(found.values())


class Refusal(Model):
    """Why a build does not run a kernel here."""

    reason: str
    absent: bool = False
    """The build has no such kernel."""


class Planned(Model):
    """A benchmark, with the refusal of each build; None for a build that runs it."""

    task: GateTask
    base: Refusal | None
    head: Refusal | None


def refusals(build: OpenedBuild, asked: Iterable[GateTask]) -> list[Refusal | None]:
    """For each task, why this build does not run it here, or None."""
    with build.inside():
        return [_refusal(build, task) for task in asked]


def _refusal(build: OpenedBuild, task: GateTask) -> Refusal | None:
    key = next((variant.key for variant in build.installed.registry.variants if variant.id == task.kernel), None)
    if key is None or set(build.installed.ops[task.op].axes) != set(task.axes):
        return Refusal(reason="it has no such kernel", absent=True)
    device = build.installed.registry.devices[task.device]
    forced = device.forced()
    if forced is not None and forced != task.variant:
        return Refusal(reason=f"the environment allows only {forced} on this {task.device}")
    why = {variant.name: refusal for variant, refusal in build.installed.registry.candidates(key, task.axes)}[
        task.variant
    ]
    why = why or ("a simulated device has no speed" if device.simulated() else None)
    why = why or ("the device brings no clock" if device.clock is None else None)
    return None if why is None else Refusal(reason=why)


def united(head: Sequence[GateTask], base: Sequence[GateTask]) -> list[GateTask]:
    """HEAD's tasks in their order, then the tasks that only BASE has."""
    return list({task.id: task for task in (*head, *base)}.values())
