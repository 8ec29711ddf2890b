"""Judges that die: their work is begun again, and said to be lost where that does not help."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import forkserver
from threading import Event, Thread
from typing import Any, NoReturn

import pytest

from tritmark.harness.errors import BadEnvironmentError, DeviceUnavailableError, ServerEndedError
from tritmark.harness.judge import judges
from tritmark.harness.judge.judges import Limits, Task, judged, pids
from tritmark.harness.judge.judging import Judgement, Judging, ListedWorkload
from tritmark.harness.providers import load
from tritmark.harness.record import Status
from tritmark.harness.spec import Arrays, Axes, Workload
from tritmark.harness.validate.accuracy import Judged
from tritmark.harness.validate.drawn import Draw
from tritmark.harness.worker import Workers
from tritmark.harness.worker.process import starting

VARIANT = "cpu/i2s_quantize/none/int8/scalar"


@contextmanager
def _hunted(pools: int) -> Iterator[list[int]]:
    """Every judge of the first `pools` pools of them is killed, one a pool; yields the numbers of those that were."""
    killed: list[int] = []
    ended = Event()

    def hunt() -> None:
        seen: frozenset[int] = frozenset()
        while not ended.wait(0.02) and len(killed) < pools:
            fresh = pids() - seen
            if fresh and not pids() & set(killed):
                seen |= pids()
                with suppress(ProcessLookupError):
                    os.kill(min(fresh), signal.SIGKILL)
                    killed.append(min(fresh))

    hunter = Thread(target=hunt)
    hunter.start()
    try:
        yield killed
    finally:
        ended.set()
        hunter.join()


def _judged(cases: int) -> Judged | Judgement:
    installed = load()
    variant = next(each for each in installed.registry.variants if each.id == VARIANT)
    task = Task((VARIANT,), Draw(variant.key, cases, (), seed=1, cores=1))
    ((_, _, found),) = judged(installed, [task], Limits((), True, 60.0, 1 << 30))
    return found


def test_work_of_a_judge_that_died_is_begun_again() -> None:
    with _hunted(pools=1) as killed:
        found = _judged(40)
    assert len(killed) == 1
    assert isinstance(found, Judged)
    assert found.accuracy.status is Status.PASS
    assert found.accuracy.cases == _judged(40).accuracy.cases


def test_a_peer_whose_package_is_broken_is_an_error_of_its_run_alone() -> None:
    """Its error bound is computed in the judge, where an import that failed ended the whole command."""

    def broken(inputs: Arrays, axes: Axes) -> NoReturn:
        raise DeviceUnavailableError("any: cannot be imported: No module named 'google'", next_step="install it")

    installed = load()
    real = next(each for each in installed.registry.variants if each.id == VARIANT)
    listed = ListedWorkload(
        real.key, Workload(op=real.key.op, axes={"n": 7}, family="uniform"), 1, 1, frozenset({"accuracy"})
    )
    with Workers(installed) as workers:
        found = Judging(workers, listed).judge(replace(real, error_bound=broken))
    assert found.accuracy.status is Status.ERROR
    assert "No module named 'google'" in found.accuracy.reason


def test_a_judge_that_dies_while_another_is_begun_is_no_fault_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    spawn = vars(ProcessPoolExecutor)["_spawn_process"]
    killed: list[int] = []

    def _spawned(pool: ProcessPoolExecutor) -> None:
        if pool._processes and not killed:
            killed.append(next(iter(pool._processes)))
            os.kill(killed[0], signal.SIGKILL)
            ended = time.monotonic() + 1  # later Pythons close the pipes when this has returned
            while not vars(pool)["_call_queue"]._writer.closed and time.monotonic() < ended:
                time.sleep(0.01)
        spawn(pool)

    monkeypatch.setattr(ProcessPoolExecutor, "_spawn_process", _spawned)
    found = _judged(40)
    assert killed
    assert found.accuracy.status is Status.PASS


def test_work_whose_judge_dies_each_time_is_an_error() -> None:
    with _hunted(pools=3) as killed:
        found = _judged(4000)
    assert len(killed) == 3
    assert found.accuracy.status is Status.ERROR
    assert "its judge died 3 times" in found.accuracy.reason
    assert not pids()


@pytest.mark.parametrize(("times", "passes"), [(1, True), (2, True), (3, False)])
def test_work_of_a_judge_without_a_server_is_begun_again(
    monkeypatch: pytest.MonkeyPatch, times: int, passes: bool
) -> None:
    """A judge that is killed while it starts a worker ends the server of all judges."""
    real = judges._side_by_side
    failed: list[int] = []

    def without(together: Any, limits: Limits, jobs: int) -> Iterator[Any]:
        if len(failed) == times:
            yield from real(together, limits, jobs)
            return
        failed.append(1)
        yield from ((*each, ServerEndedError("no server", next_step="look")) for each in together)

    monkeypatch.setattr(judges, "_side_by_side", without)
    if passes:
        assert _judged(40).accuracy.status is Status.PASS
    else:
        with pytest.raises(ServerEndedError, match="no server; next: look"):
            _judged(40)
    assert len(failed) == times


def test_a_server_that_is_killed_beside_its_judges_is_started_again() -> None:
    ended = Event()

    def shoot() -> None:
        while not ended.wait(0.005):
            if pids():
                os.kill(vars(forkserver._forkserver)["_forkserver_pid"], signal.SIGKILL)
                return

    hunter = Thread(target=shoot)
    hunter.start()
    try:
        found = _judged(40)
    finally:
        ended.set()
        hunter.join()
    assert found.accuracy.status is Status.PASS


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (EOFError("unexpected EOF"), ServerEndedError),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), ServerEndedError),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), ServerEndedError),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), BadEnvironmentError),
        (OSError(errno.EMFILE, "Too many open files"), BadEnvironmentError),
    ],
)
def test_only_a_server_that_ended_is_started_again(error: Exception, kind: type[Exception]) -> None:
    with pytest.raises(BadEnvironmentError) as caught, starting():
        raise error
    assert type(caught.value) is kind
