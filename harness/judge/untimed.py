"""Everything that is judged without a clock, in parallel; and which kernels are then measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.judge.judges import Limits, Task, judged
from tritmark.harness.judge.judging import (
    NOT_RIGHT,
    RIVAL_OF_NONE,
    Group,
    Judgement,
    LeftOut,
    ListedWorkload,
    drawn_run,
    listed_run,
    refused,
    run_id,
    threads_of,
)
from tritmark.harness.judge.not_judged import SIMULATED_SHARE
from tritmark.harness.judge.request import Observer, Request
from tritmark.harness.measure.buffers import rotation
from tritmark.harness.providers import Installed
from tritmark.harness.record import Accuracy, Run
from tritmark.harness.spec import Variant
from tritmark.harness.validate.accuracy import Judged
from tritmark.harness.validate.drawn import Draw

_FEW_DRAWN = 120
"""A suite with at most this many drawn cases is quick: only the user's kernels get far cases, which take as long as all
others. `full` has them for built-in kernels."""

_MEMORY = 2 << 30
_TIMES = 8


def untimed(
    installed: Installed,
    groups: Sequence[Group],
    request: Request,
    limits: Limits,
    done: Mapping[str, Run],
    judgements: dict[str, Judgement],
    observer: Observer,
) -> Iterator[Run]:
    """Judge everything that needs no clock, in parallel. Yields Runs that are already done, and Runs that are not
    timed, in order of completion. Judgements of the other Runs go to `judgements`, by Run id."""
    drawn = {variant.id: group for group in groups if group.workload.drawn for variant in group.variants}
    others = {
        group.run_id(variant): group for group in groups if not group.workload.drawn for variant in group.variants
    }
    tasks = []
    for group in groups:
        device = installed.registry.devices[group.key.device]
        refusals = {
            variant.id: why for variant, why in installed.registry.candidates(group.key, group.workload.axes or None)
        }
        on = listed(installed, group, request)
        chosen = []
        for variant in group.variants:
            known, refusal = done.get(group.run_id(variant)), refused(device, variant, refusals)
            if known is not None:
                yield known
            elif refusal is not None and group.workload.drawn:
                yield drawn_run(group, variant, Judged(refusal.verdict(Accuracy), None), device, request, ())
            elif refusal is not None:
                yield listed_run(group, variant, on, Judgement.refusing(refusal))
            else:
                chosen.append(variant.id)
        if chosen and group.workload.drawn:
            count = -(-group.workload.drawn // SIMULATED_SHARE) if device.simulated() else group.workload.drawn
            tasks.append(
                Task(
                    tuple(chosen),
                    Draw(
                        group.key,
                        count,
                        group.corners,
                        request.seed,
                        request.threads or device.cores(),
                        far=not device.simulated()
                        and (group.workload.drawn > _FEW_DRAWN or not installed.added.isdisjoint(chosen)),
                    ),
                )
            )
        elif chosen:
            tasks.append(Task(tuple(chosen), on))
    observer.started("accuracy and memory, in parallel")
    for task, variant, found in judged(installed, tasks, limits):
        if isinstance(found, Judged):
            device = installed.registry.devices[variant.key.device]
            yield drawn_run(drawn[variant.id], variant, found, device, request, installed.registry.variants)
            continue
        assert isinstance(task.on, ListedWorkload)
        id = run_id(variant, task.on.workload)
        if found.whole:
            yield listed_run(others[id], variant, task.on, found)
        else:
            judgements[id] = found


def why_unmeasured(variant: Variant, request: Request, installed: Installed, wrong: set[str]) -> LeftOut | None:
    """Why a variant is not measured: it is incorrect, or every kernel that it would be compared with is incorrect."""
    if variant.id in wrong:
        return NOT_RIGHT
    if variant.id not in request.rivals or request.only is None:
        return None
    key = variant.key
    of_file = [
        each
        for each in installed.registry.variants
        if each.id in request.only - request.rivals
        and (each.key.device, each.key.op, each.key.dtype) == (key.device, key.op, key.dtype)
    ]
    return RIVAL_OF_NONE if of_file and all(each.id in wrong for each in of_file) else None


def listed(installed: Installed, group: Group, request: Request) -> ListedWorkload:
    """The group's workload with what the request says of it."""
    threads = threads_of(installed.registry.devices[group.key.device], request.threads)
    return ListedWorkload(group.key, group.workload, request.seed, threads, request.dimensions)


def most_memory(groups: Sequence[Group]) -> int:
    """The memory limit of a candidate in bytes: a constant, several times the largest workload, and the buffers that
    timing cycles through."""
    most = 0
    for group in groups:
        if group.workload.drawn:
            continue
        with suppress(InvalidArgumentError):  # the format does not admit this workload
            traffic = group.op.traffic(group.workload.axes, group.key)
            most = max(most, traffic.read + traffic.written)
    return _MEMORY + _TIMES * most + 4 * rotation().nbytes
