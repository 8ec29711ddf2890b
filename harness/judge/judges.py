"""Judges: processes that judge kernels in parallel on all cores, while nothing is timed: on drawn cases and on the
suite's workloads.

A judge holds the expected values. Candidates run in the judge's own workers, so they cannot reach these values.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import inf
from multiprocessing import forkserver
from typing import TYPE_CHECKING

from tritmark.harness.errors import BadEnvironmentError, Failure, ServerEndedError, TritmarkError
from tritmark.harness.interruption import end_pool, uninterrupted
from tritmark.harness.judge.judging import NOT_RIGHT, Judgement, Judging, ListedWorkload
from tritmark.harness.judge.paths import OtherPath, decided, paths
from tritmark.harness.machine.cpu import BINDING, affinity
from tritmark.harness.machine.session import cause, killed_for_memory
from tritmark.harness.providers import Installed, load
from tritmark.harness.record import Accuracy, MemoryUse, Status
from tritmark.harness.spec import Variant
from tritmark.harness.validate.accuracy import Judged
from tritmark.harness.validate.compare import BrokenReferenceError
from tritmark.harness.validate.drawn import Draw, Part, judge_parts, merged
from tritmark.harness.worker import Workers
from tritmark.harness.worker.process import CONTEXT, await_ended_server, importing, prepare, starting
from tritmark.harness.worker.serve import settle

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess as ParentProcess

    from tritmark.harness.providers import Candidate

MOST = 16
"""The most judges on any number of cores: each has further processes of its own."""

_TRIES = 3
"""Attempts for work whose judge died: a user or the out-of-memory killer may have ended it."""

AT_WORK: list[ProcessPoolExecutor] = []
"""The pools of judges of this process."""

ON_DEVICE, ON_HOST = 1, 6
"""Variants that one judge runs at a time. On a device, each holds a context of several hundred MB."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of candidates; see Workers."""

    candidates: tuple[Candidate, ...]
    isolated: bool
    timeout_s: float
    memory_bytes: int
    judges: int = MOST
    """The most judges at a time; each has its own data."""


@dataclass(frozen=True, slots=True)
class Task:
    """Ids of variants of one key, and the cases or workload to judge them on. Can be pickled."""

    variants: tuple[str, ...]
    on: Draw | ListedWorkload


_Found = list[tuple[str, Part | Accuracy | Judgement]]


def judged(
    installed: Installed, tasks: Sequence[Task], limits: Limits
) -> Iterator[tuple[Task, Variant, Judged | Judgement]]:
    """Judge every variant of every task. Yields each verdict as soon as it is complete.

    Without isolation, everything runs sequentially in this process.
    """
    variants = {variant.id: variant for variant in installed.registry.variants}
    jobs = min(limits.judges, len(affinity()))
    if not limits.isolated:
        for task in tasks:
            each = (
                [replace(task, variants=(id,)) for id in task.variants]
                if isinstance(task.on, ListedWorkload)
                else [task]
            )
            for part in each:  # yield each verdict as soon as it is complete
                with _workers(installed, limits) as workers:
                    yield from _verdicts(part, variants, [_judged(workers, part)])
        return
    split = _split(installed, tasks, jobs)
    together = _together(installed, split)
    if not together:
        return
    done: dict[int, list[_Found]] = {}
    killed_before = killed_for_memory()
    without_server: ServerEndedError | None = None
    for _ in range(_TRIES):
        lost: list[tuple[list[int], list[Task]]] = []
        without_server = None
        for numbers, parts, reported in _side_by_side(together, limits, jobs):
            if isinstance(reported, ServerEndedError):
                without_server = reported
            if reported is None or isinstance(reported, ServerEndedError):
                lost.append((numbers, parts))
                continue
            for number, found in zip(numbers, reported, strict=True):
                done.setdefault(number, []).append(found)
                if len(done[number]) == len(split[number]):
                    yield from _verdicts(split[number][0], variants, done.pop(number))
        together = lost
        if not lost:
            return
        if without_server is not None:
            await_ended_server()
    if without_server is not None:
        raise without_server
    of_session = cause(Failure.ERROR, signal.SIGKILL, wanted=0, killed_before=killed_before)
    if of_session is not None:
        raise of_session
    for number in dict.fromkeys(number for numbers, _ in together for number in numbers):
        reason = f"its judge died {_TRIES} times: a user or the out-of-memory killer ended that process"
        died = Accuracy(status=Status.ERROR, reason=reason)
        for id in split[number][0].variants:
            yield from _verdicts(split[number][0], variants, [[(id, _without_judge(split[number][0], died))]])


def _side_by_side(
    together: Sequence[tuple[list[int], list[Task]]], limits: Limits, jobs: int
) -> Iterator[tuple[list[int], list[Task], list[_Found] | ServerEndedError | None]]:
    """Each entry with the results of its judge, in order of completion; None if a judge died, which ends the whole
    pool; an error if the judge had no server. A judge that dies while it starts a worker ends the server of all."""
    prepare()
    address: str = vars(forkserver._forkserver)["_forkserver_address"]
    with starting(), uninterrupted():
        pool = ProcessPoolExecutor(
            min(jobs, len(together)), CONTEXT, _begin, (dict(os.environ), affinity(), limits.candidates, address)
        )
    broken = False
    try:
        AT_WORK.append(pool)
        of: dict[Future[list[_Found]], tuple[list[int], list[Task]]] = {}
        without_server: ServerEndedError | None = None
        for numbers, parts in together:
            try:
                with starting(), importing(), uninterrupted(), _breaking(pool):
                    of[pool.submit(_work, parts, limits)] = numbers, parts
            except ServerEndedError as error:
                without_server = error
                break
        broken = len(of) < len(together)
        yield from ((*each, without_server) for each in together if each not in of.values())
        for future in as_completed(of):
            found: list[_Found] | ServerEndedError | None = None
            try:
                found = future.result()
            except BrokenProcessPool:
                pass
            except ServerEndedError as error:
                found = error
            broken |= not isinstance(found, list)
            yield (*of[future], found)
    except BaseException:
        broken = True  # no caller waits for the remaining work; its workers end with the pool
        raise
    finally:
        AT_WORK.remove(pool)
        end_pool(pool, at_once=broken)


@contextmanager
def _breaking(pool: ProcessPoolExecutor) -> Iterator[None]:
    """Suppress all errors that follow the death of a judge. Before Python 3.12, a pool closes its pipes while it starts
    another process, which raises various errors."""
    try:
        yield
    except BrokenProcessPool:
        pass
    except Exception:
        if not pool._broken:
            raise


def pids() -> frozenset[int]:
    """Process ids of the judges."""
    return frozenset(pid for pool in AT_WORK for pid in (pool._processes or {}))


def _without_judge(task: Task, accuracy: Accuracy) -> Accuracy | Judgement:
    if isinstance(task.on, Draw):
        return accuracy
    return Judgement(accuracy, None, NOT_RIGHT.verdict(MemoryUse), None, NOT_RIGHT, 0.0)


def _split(installed: Installed, tasks: Sequence[Task], jobs: int) -> list[list[Task]]:
    """Split each task into groups of few variants, and drawn cases into enough parts for all judges."""
    chunks = []
    for task in tasks:
        own_memory = installed.registry.devices[task.on.key.device].memory is not None
        step = ON_DEVICE if own_memory else ON_HOST
        chunks += [
            replace(task, variants=task.variants[start : start + step]) for start in range(0, len(task.variants), step)
        ]
    # listed workloads take only a fraction of the time of drawn cases
    drawn = sum(isinstance(chunk.on, Draw) for chunk in chunks)
    parts = max(1, -(-jobs // max(1, drawn)))
    return [
        [replace(chunk, on=replace(chunk.on, part=part, parts=parts)) for part in range(parts)]
        if isinstance(chunk.on, Draw)
        else [chunk]
        for chunk in chunks
    ]


def _together(installed: Installed, split: list[list[Task]]) -> list[tuple[list[int], list[Task]]]:
    """Tasks that one judge does with the same workers, and their indices in `split`. All tasks of a device's kernel
    belong together, so that its process creates a context only once."""
    found: dict[tuple[object, ...], tuple[list[int], list[Task]]] = {}
    for number, parts in enumerate(split):
        for part, task in enumerate(parts):
            own_memory = installed.registry.devices[task.on.key.device].memory is not None
            numbers, tasks = found.setdefault((task.variants, part) if own_memory else (number, part), ([], []))
            numbers.append(number)
            tasks.append(task)
    return sorted(found.values(), key=lambda each: -max(_work_of(installed, task) for task in each[1]))


def _work_of(installed: Installed, task: Task) -> float:
    """The amount of work of a task. The largest tasks start first, so that no judge is idle at the end."""
    if isinstance(task.on, Draw):
        return inf
    key, workload = task.on.key, task.on.workload
    return installed.ops[key.op].traffic(workload.axes, key).operations * len(task.variants)


def _verdicts(
    task: Task, variants: dict[str, Variant], parts: Sequence[_Found]
) -> Iterator[tuple[Task, Variant, Judged | Judgement]]:
    for each in zip(*parts, strict=True):
        found = [part for _, part in each]
        failed = next((part for part in found if not isinstance(part, Part)), None)
        if isinstance(failed, Accuracy):
            failed = Judged(failed, None)
        yield task, variants[each[0][0]], failed or merged([part for part in found if isinstance(part, Part)])


@dataclass(slots=True)
class _Judge:
    """State of a judge's process: the loaded packages."""

    installed: Installed | None = None


_HERE = _Judge()


def _begin(environment: dict[str, str], cores: frozenset[int], candidates: tuple[Candidate, ...], address: str) -> None:
    """Make this new process a judge."""
    # Processes of a pool hold each other's pipes open, so they do not notice the end of their parent.
    threading.Thread(target=_end_with, args=(multiprocessing.parent_process(),), daemon=True).start()
    settle(cores)
    os.environ.clear()
    # Spinning threads take cores from other judges if there are more threads than cores.
    os.environ.update({"OMP_WAIT_POLICY": "passive", **environment})
    os.environ.pop(BINDING[0], None)  # each judge's worker would bind its threads to the same cores
    # A judge's workers come from the same fork server as the judge: a new server would import everything again.
    server = forkserver._forkserver
    vars(server).update(_forkserver_address=address, ensure_running=lambda: None)
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)
    _HERE.installed = load(candidates)


def _end_with(parent: ParentProcess | None) -> None:
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(tasks: Sequence[Task], limits: Limits) -> list[_Found]:
    """The work of a judge."""
    installed = _HERE.installed
    assert installed is not None
    with _workers(installed, limits) as workers:
        return [_judged(workers, task) for task in tasks]


def _workers(installed: Installed, limits: Limits) -> Workers:
    return Workers(
        installed,
        limits.candidates,
        isolated=limits.isolated,
        timeout_s=limits.timeout_s,
        memory_bytes=limits.memory_bytes,
    )


def _parts(workers: Workers, variants: Sequence[Variant], draw: Draw) -> list[Part]:
    """Judge each variant on this part of the drawn cases, on all its reachable paths, on the same data."""
    with ExitStack() as stack:
        others = [stack.enter_context(paths(workers, variant)) for variant in variants]
        at_work = [(worker.variant, worker.device) for worker in map(workers.of, variants)]
        elsewhere = [(path.worker.variant, path.worker.device) for found, _ in others for path in found]
        parts = iter(judge_parts(workers.installed.ops[draw.key.op], at_work, draw, elsewhere))
        here = [next(parts) for _ in variants]
        return [
            _of_all(part, [(path, next(parts)) for path in found], kept)
            for part, (found, kept) in zip(here, others, strict=True)
        ]


def _of_all(here: Part, others: Sequence[tuple[OtherPath, Part]], kept: tuple[str, ...]) -> Part:
    judged = [(path, part.judged.accuracy) for path, part in others]
    accuracy, place = decided(here.judged.accuracy, judged, kept)
    chosen = here if place is None else others[place][1]
    seconds = sum(part.judged.seconds for part in (here, *(part for _, part in others)))
    return replace(chosen, judged=replace(chosen.judged, accuracy=accuracy, seconds=seconds))


def _judged(workers: Workers, task: Task) -> _Found:
    installed = workers.installed
    installed.registry.number(task.on.key.device)
    variants = {variant.id: variant for variant in installed.registry.variants}
    chosen = [variants[each] for each in task.variants]
    if isinstance(task.on, ListedWorkload):
        judging = Judging(workers, task.on)
        return [(variant.id, judging.judge(variant)) for variant in chosen]
    try:
        return list(zip(task.variants, _parts(workers, chosen, task.on), strict=True))
    except BrokenReferenceError as error:
        reason = str(error)
    except BadEnvironmentError:
        raise
    except TritmarkError as error:
        reason = f"{type(error).__name__}: {error}"
    return [(each, Accuracy(status=Status.ERROR, reason=reason)) for each in task.variants]
