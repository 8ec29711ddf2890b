"""Laps whose outputs are all judged: a refuted claim fails, and so does a call that did not do its work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from worker_tasks import skips_calls

from tritmark.harness.providers import load
from tritmark.harness.record import Measurement, Performance, Status
from tritmark.harness.spec import KernelKey, Workload
from tritmark.harness.validate import proof
from tritmark.harness.validate.cases import Cases, Material
from tritmark.harness.validate.guard_names import Guard
from tritmark.harness.validate.pieces import exchangeable
from tritmark.harness.validate.proof import _Laps, prove
from tritmark.harness.validate.timed import timed
from tritmark.harness.worker import Workers, tasks
from tritmark.harness.worker.workers import Worker

KEY = KernelKey("cpu", "i2s_dequantize", "none", "float32")
AXES = {"n": 1 << 15}
INSTALLED = load(())
MATERIAL = Material(INSTALLED.ops[KEY.op], Workload(op=KEY.op, axes=AXES, family="uniform"), 7)


@pytest.fixture
def worker() -> Iterator[Worker]:
    scalar = next(each for each in INSTALLED.registry.variants if each.key == KEY and each.name == "scalar")
    with Workers(INSTALLED, memory_bytes=8 << 30) as workers:
        yield workers.of(scalar)


def arguments(cases: Cases) -> tuple[Any, ...]:
    encoded = tuple(MATERIAL.encoded("none"))
    op = INSTALLED.ops[KEY.op]
    changes = exchangeable(op, KEY, AXES, MATERIAL.logical, encoded, np.random.default_rng(0))
    return cases, encoded, AXES, changes


def claimed(found: Performance, times: float) -> Performance:
    """The same with scaled times, and without earlier findings."""

    def scaled(footing: Measurement | None) -> Measurement | None:
        if footing is None:
            return None
        timing = footing.timing
        names = ("median_ns", "q1_ns", "q3_ns", "low_ns", "high_ns")
        more = {name: getattr(timing, name) * times for name in names}
        return footing.model_copy(update={"timing": timing.model_copy(update=more)})

    sides = {"cold": scaled(found.cold), "hot": scaled(found.hot)}
    return found.model_copy(update={**sides, "status": Status.PASS, "reason": "", "caught_by": (), "doubted": False})


@pytest.mark.timing
def test_a_claim_stands_or_is_refuted(worker: Worker) -> None:
    cases = MATERIAL.cases(KEY)
    given = arguments(cases)
    found, _ = timed(worker, *given, layout="aligned", seed=7, threads=1, roofs={}, budget_s=0.05)
    assert found.looks >= 8, found.reason
    again = partial(prove, worker, layout="aligned", threads=1, seed=7)
    honest = again(claimed(found, 2.0), *given)
    assert (honest.status, honest.caught_by, honest.doubted) == (Status.PASS, (), False), honest.reason
    assert honest.proven_cold_ns is not None
    assert honest.proven_hot_ns is not None
    forged = again(claimed(found, 0.1), *given)
    assert (forged.status, forged.caught_by, forged.doubted) == (Status.FAIL, ("clock",), True)
    assert "laps whose outputs were judged prove" in forged.reason
    wide = claimed(found, 0.1)
    assert wide.cold is not None
    timing = wide.cold.timing.model_copy(update={"high_ns": 1e9})
    unsure = again(
        wide.model_copy(update={"cold": wide.cold.model_copy(update={"timing": timing}), "hot": None}), *given
    )
    assert unsure.status is Status.PASS
    assert any("cold time was not proven" in limit for limit in unsure.limits)


@pytest.mark.timing
def test_calls_that_are_left_out_are_seen(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = MATERIAL.cases(KEY)
    given = arguments(cases)
    found, _ = timed(worker, *given, layout="aligned", seed=7, threads=1, roofs={}, budget_s=0.05)
    call: Callable[..., Any] = worker.call

    def patched(what: str, task: Callable[..., Any], *args: Any, **more: Any) -> Any:
        return call(what, skips_calls if task is tasks.run_row else task, *args, **more)

    monkeypatch.setattr(worker, "call", patched)
    lazy = prove(worker, claimed(found, 2.0), *given, layout="aligned", threads=1, seed=7)
    assert lazy.status is Status.FAIL
    assert "audit" in lazy.caught_by


def laps(**given: list[float]) -> _Laps:
    found = _Laps(gains=[{"hot": 0.0}] * 2)
    for name, values in given.items():
        getattr(found, name).extend(values)
    return found


def test_one_thread_is_held_to_its_cpu_time_and_several_to_the_clock() -> None:
    found = laps(
        times=[900.0, 280.0],
        raw=[900.0, 300.0],
        work=[310.0, 330.0],
        asking=[1000.0, 3000.0],
        busy=[100.0, 300.0],
        shown=[7.0, 8.0],
    )
    assert found.least(100, "hot", alone=True) == (310 - 2 * 200 / 100, 7.0)
    assert found.least(100, "hot", alone=False) == (300 - 2 * 2000 / 100, 8.0)
    assert found.least(1, "hot", alone=False) == (0, 8.0), "less than the cost of a request is nothing"
    assert laps(times=[500.0], asking=[0.0], shown=[9.0]).least(100, "hot", alone=True) == (500, 9.0), (
        "no account of CPU time"
    )
    elsewhere = laps(times=[500.0], work=[5.0], asking=[0.0], busy=[0.0], shown=[9.0])
    assert elsewhere.least(100, "hot", alone=True) == (500, 9.0), "work that another process does takes time"


def test_memory_that_was_slow_beside_the_laps_is_not_held_against_a_claim() -> None:
    found = laps(times=[900.0, 800.0, 990.0], asking=[0.0], shown=[7.0, 8.0, 9.0])
    found.gains = [{"hot": 300.0}, {"hot": 0.0}, {"hot": 350.0}]
    assert found.least(100, "hot", alone=True) == (500, 8.0)


def test_gains_are_the_differences_of_the_fastest_samples() -> None:
    class Side:
        def __init__(self, *times: float) -> None:
            self.times = list(times)

        def sample(self) -> float:
            return self.times.pop(0)

    slow = [2000.0] * (proof._PROBES - 1)
    read: Any = (Side(900.0, *slow), Side(*slow, 300.0), Side(880.0, *slow))
    write: Any = (Side(500.0, *slow), Side(490.0, *slow), Side(540.0, *slow))
    assert proof._Probes([read, write]).gains() == {"hot": 610, "cold": 0}


@pytest.mark.parametrize(("shown", "caught"), [(310.0, False), (300.0, False), (190.0, True)])
def test_a_clock_that_shows_less_than_the_work_took(shown: float, caught: bool) -> None:
    found = laps(times=[300.0], work=[305.0], asking=[100.0], busy=[100.0], shown=[shown])
    fault = found.slow_clock(100)
    assert (fault is not None) is caught
    assert fault is None or fault.guard is Guard.CLOCK


def test_laps_have_few_calls_where_calls_are_long() -> None:
    assert proof._count(1e9, 1000) == 1
    assert proof._count(1.0, 1000) == proof._MOST_CALLS, "a claim of a nanosecond must not make a lap of hours"
    assert proof._count(1000.0, 1 << 30) == 1


@pytest.mark.parametrize(
    ("busy", "alone", "proven", "fails"),
    [
        (False, True, 150.0, True),
        (False, False, 210.0, True),
        (True, True, 199.0, False),
        (True, True, 201.0, True),
        (True, False, 900.0, False),
    ],
)
def test_beside_busy_processes_a_claim_is_refuted_only_by_twice_its_time(
    busy: bool, alone: bool, proven: float, fails: bool
) -> None:
    found = proof._judged(
        Performance(status=Status.PASS), laps(), {"cold": 100.0}, {"cold": proven}, busy=busy, alone=alone
    )
    assert found.failed is fails
    assert any("not proven" in each for each in found.limits) is not fails
