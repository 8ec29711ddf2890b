"""Batches of random Runs, through the same runner and store as `tritmark run`, with signals sent to workers.

A Run whose worker got a signal may pass, if it ended before, or be an ERROR that names the cause. All other Runs must
pass. Each Record is read back from disk and counted. Growth of the harness is reported as bytes of resident memory per
call, over the second half of the time.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from time import monotonic
from types import TracebackType

import numpy as np

from tritmark.harness.judge.judges import pids
from tritmark.harness.judge.planning import plan
from tritmark.harness.judge.request import Request
from tritmark.harness.judge.runner import execute
from tritmark.harness.machine.memory import rss_bytes
from tritmark.harness.measure.statistics import theil_sen
from tritmark.harness.providers import Installed
from tritmark.harness.record import Layer, Run, Slope, Status
from tritmark.harness.soak.commands import has_log
from tritmark.harness.spec import KernelKey, Op, Workload
from tritmark.harness.store import Partial, Store, read
from tritmark.harness.suite import SelectedWorkload, Suite
from tritmark.harness.validate.guard_names import Guard
from tritmark.harness.validate.guards import LAYOUTS

BATCH = 25
"""Workloads in a Record."""

LARGEST = 1 << 20
"""The most elements of an input: many small Runs find more than few large ones."""

TIMEOUT_S = 2.0
FAULTS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM, signal.SIGSTOP)
"""Signals for workers; SIGSTOP acts like a kernel that hangs."""

_ODDS = 0.03
_LATEST_S = 0.01
_SHOT = frozenset({Guard.CRASH, Guard.HANG})
"""The guards that detect these faults."""


@dataclass(slots=True)
class SoakResult:
    """The result of a soak. `wrong`, `crashes`, `lost`, `unexplained` and `left_over` should be empty or 0."""

    seconds: float = 0.0
    calls: int = 0
    """Kernel calls, counted by the kernels."""
    runs: int = 0
    batches: int = 0
    ops: Counter[str] = field(default_factory=Counter)
    faults: int = 0
    """Signals sent to workers."""
    attributed: int = 0
    """Runs that a signal ended, with a guard that reports it."""
    wrong: list[str] = field(default_factory=list)
    """Runs that failed."""
    unexplained: list[str] = field(default_factory=list)
    """Runs that are an ERROR without a signal."""
    crashes: list[str] = field(default_factory=list)
    """Exceptions of the harness itself."""
    lost: int = 0
    """Runs that were planned or finished but are missing in the Record."""
    left_over: int = 0
    """Worker processes that are still alive."""
    growth: Slope | None = None
    """Growth of the harness's resident memory, bytes per call; None if there are too few samples."""

    @property
    def passed(self) -> bool:
        """Whether there were faults, and nothing failed or got lost."""
        return self.tried and not self.failed

    @property
    def failed(self) -> bool:
        """Whether something failed, with or without a fault."""
        return bool(self.wrong or self.unexplained or self.crashes or self.lost or self.left_over)

    @property
    def tried(self) -> bool:
        """Whether there was a Run and a fault; otherwise the soak shows nothing."""
        return bool(self.runs and self.faults)


def soak(
    installed: Installed,
    *,
    minutes: float,
    seed: int,
    device: str = "*",
    report: Callable[[SoakResult], None] = lambda state: None,
) -> SoakResult:
    """Run for `minutes`, at least one batch. Calls `report` after every batch. Raises UsageError if nothing can run
    here."""
    rng = random.Random(seed)
    items = _items(installed, device)
    found = SoakResult()
    samples: list[tuple[int, int]] = []
    begun = monotonic()
    with tempfile.TemporaryDirectory(prefix="tritmark-soak-") as folder:
        store = Store(Path(folder))
        while not found.batches or monotonic() - begun < 60 * minutes:
            _batch(installed, [rng.choice(items) for _ in range(BATCH)], rng, store, found)
            found.seconds = monotonic() - begun
            samples.append((found.calls, rss_bytes()))
            report(found)
    found.left_over = len(_workers())
    found.growth = _slope(samples[len(samples) // 2 :])
    return found


def _items(installed: Installed, device: str) -> list[tuple[Op, KernelKey, Workload]]:
    """Every small workload of the full suite, with each of its keys that can run here at its shape."""
    full = installed.suite("full")
    single = tuple(item for item in full.selected if not item.workload.drawn)
    request = Request(suite=Suite(full.name, full.title, full.digest, single), device=device)
    return [
        (group.op, group.key, group.workload)
        for group in plan(installed, request)
        if any(refusal is None for _, refusal in installed.registry.candidates(group.key, group.workload.axes))
        and max(prod(group.workload.axes.get(axis, 1) for axis in tensor.axes) for tensor in group.op.inputs) <= LARGEST
    ]


def _batch(
    installed: Installed,
    items: list[tuple[Op, KernelKey, Workload]],
    rng: random.Random,
    store: Store,
    found: SoakResult,
) -> None:
    selected = tuple(
        SelectedWorkload(
            Workload(op=op.name, axes=workload.axes, family=rng.choice(op.input_families), layout=rng.choice(LAYOUTS)),
            (key.format,),
            (key.dtype,),
            (key.device,),
        )
        for op, key, workload in items
    )
    cores = max(each.cores() for each in installed.registry.devices.values() if each.missing() is None)
    request = Request(
        suite=Suite("soak", "random workloads", "", selected),
        threads=rng.randint(1, cores),
        seed=rng.randrange(1 << 31),
        timeout_s=TIMEOUT_S,
    )
    planned = {group.run_id(variant) for group in plan(installed, request) for variant in group.variants}
    found.batches += 1
    try:
        # The first fault comes as early as possible, so that a short soak has one too.
        with _Saboteur(random.Random(rng.random()), surely=not found.faults) as saboteur:
            _, path = execute(installed, request, store, saboteur)
        record = read(path)
    except Exception:
        found.crashes.append(traceback.format_exc())
        return
    path.unlink()
    found.lost += len((planned | saboteur.finished_ids) - {run.id for run in record.runs})
    found.faults += saboteur.sent
    for run in record.runs:
        found.runs += 1
        found.ops[run.op] += 1
        found.calls += run.receipt.runs if run.receipt is not None else 0
        if run.accuracy.status is Status.FAIL:
            found.wrong.append(f"{run.id} (seed {request.seed}, threads {request.threads}): {run.accuracy.reason}")
        elif run.accuracy.status is Status.ERROR:
            if saboteur.sent and not _SHOT.isdisjoint(run.accuracy.caught_by):
                found.attributed += 1
            else:
                found.unexplained.append(
                    f"{run.id} (seed {request.seed}, threads {request.threads}): {run.accuracy.reason}"
                )


class _Saboteur:
    """Observes a run and at random sends a worker a signal, some milliseconds after a Run began. `surely`: sends one as
    soon as there is a worker."""

    def __init__(self, rng: random.Random, *, surely: bool = False) -> None:
        self._rng, self._surely = rng, surely
        self._hunter: threading.Thread | None = None
        self._over = threading.Event()
        """Set when the hunter's Run is over."""
        self.sent = 0
        self.finished_ids: set[str] = set()

    def __enter__(self) -> _Saboteur:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def began(self, partial: Partial) -> None:
        """See Observer."""

    def planned(self, total: int, timed: int = 0) -> None:
        """See Observer."""

    def started(self, what: str) -> None:
        """See Observer."""
        self._stop()
        if self._surely or self._rng.random() < _ODDS:
            shot = self._rng.choice(FAULTS), self._rng.random(), self._rng.uniform(0, _LATEST_S)
            self._over.clear()
            self._hunter = threading.Thread(target=self._hunt, args=shot)
            self._hunter.start()

    def finished(self, found: Run | Layer) -> None:
        """See Observer."""
        if isinstance(found, Run):
            self.finished_ids.add(found.id)

    def _hunt(self, number: signal.Signals, where: float, after_s: float) -> None:
        while not self._over.wait(after_s):
            workers = [pid for pid in _workers() if has_log(pid)]
            if workers:
                with suppress(ProcessLookupError):
                    os.kill(workers[int(where * len(workers))], number)
                    self.sent += 1
                    self._surely = False
            if not self._surely:
                return

    def _stop(self) -> None:
        self._over.set()
        if self._hunter is not None:
            self._hunter.join()


def _workers() -> list[int]:
    """Process ids of live workers: grandchildren of this process, without the judges."""
    import psutil

    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            found += [each.pid for each in child.children() if each.status() != psutil.STATUS_ZOMBIE]
    return [pid for pid in found if pid not in pids()]


def _slope(samples: list[tuple[int, int]]) -> Slope | None:
    calls, rss = (
        (np.array(side, float) for side in zip(*samples, strict=True)) if samples else (np.empty(0), np.empty(0))
    )
    if len(np.unique(calls)) < 3:
        return None
    median, low, high = theil_sen(rss, calls)
    return Slope(median=median, low=low, high=high)
