"""The success criteria: planted faults fail, honest kernels pass, and what cannot be judged is NOT RUN."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import log2
from typing import TYPE_CHECKING, Any

import made_up_device
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted_criteria import (
    Work,
    call,
    dropped_tail,
    honest,
    hungry,
    installed,
    judge,
    leaky,
    linear,
    on_device,
    one_in,
    past_the_end,
    peer,
    plan,
    proof,
    variant,
    zeros,
)
from pydantic import ValidationError

from tritmark.harness.criteria import random_calls, speedup, tasks
from tritmark.harness.criteria.bench import CriteriaBench
from tritmark.harness.criteria.cross import migration
from tritmark.harness.criteria.judge import judged
from tritmark.harness.criteria.model import CriterionResult, MeasuredFigure, SizePoint, Unit
from tritmark.harness.criteria.plan import installed_plan
from tritmark.harness.criteria.scaling import decided
from tritmark.harness.errors import Failure, WorkerError
from tritmark.harness.measure.buffers import Rotation
from tritmark.harness.providers import Installed
from tritmark.harness.record import Ratio, Status
from tritmark.harness.spec import Arrays, Axes, Numbering
from tritmark.harness.worker import Workers
from tritmark.kernels import PROVIDER

if TYPE_CHECKING:
    from tritmark.kernels.cuda.context import CudaContext

MADE_UP = made_up_device.NAME
CALLS: dict[str, Any] = {"kind": "calls", "threshold": 0.999, "calls": 2000, "largest": 64, "seconds": 60}
EXACT: dict[str, Any] = {"kind": "exact", "sizes": [1, 16, 17, 100]}
SCALING: dict[str, Any] = {"kind": "scaling", "threshold": 2, "powers": [10, 16]}
RESIDENT: dict[str, Any] = {"kind": "speedup", "threshold": 10, "data": "resident", "powers": [6, 14]}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rotations as of a machine with a small cache."""
    monkeypatch.setattr(tasks, "rotation", lambda memory: Rotation(nbytes=1 << 16, wanted=1 << 16))
    monkeypatch.setattr("tritmark.harness.criteria.scaling.SECONDS", 0.01)
    monkeypatch.setattr(speedup, "SECONDS", 0.01)


def figure(result: CriterionResult, name: str) -> float:
    return next(each.value for each in result.figures if each.name == name)


# Random calls


@pytest.mark.parametrize(("work", "wrong"), [(honest, 0), (one_in(1500), 1), (one_in(1000), 2)])
def test_calls_that_are_right_often_enough_pass(work: Work, wrong: int) -> None:
    result = judge(installed(variant(work)), **CALLS)
    assert result.status is Status.PASS
    assert figure(result, "calls") == 2000
    assert figure(result, "incorrect calls") == wrong == len(result.failures)


@pytest.mark.parametrize("work", [one_in(500), zeros, dropped_tail, past_the_end])
def test_calls_that_are_wrong_too_often_fail(work: Work) -> None:
    """The first three in 500, and then no other can help."""
    result = judge(installed(variant(work)), **CALLS)
    assert result.status is Status.FAIL
    assert figure(result, "incorrect calls") >= 3
    assert result.failures
    assert "call " in result.reason


def test_calls_that_the_time_does_not_suffice_for_are_no_pass() -> None:
    result = judge(installed(variant()), **{**CALLS, "calls": 1_000_000, "seconds": 0.05})
    assert result.status is Status.NOT_RUN
    assert 0 < figure(result, "calls") < 1_000_000


def test_a_seed_repeats_the_calls() -> None:
    def drawn(seed: int) -> list[Any]:
        found = installed(variant())
        with Workers(found, isolated=False) as workers:
            its = plan(**CALLS)
            bench = CriteriaBench(found, its, its.first, workers, found.registry.devices["cpu"], seed)
            calls = [random_calls.drawn_call(bench, number, 64) for number in range(40)]
        return [(str(each), each.logical["x"].tobytes()) for each in calls]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)
    assert len({size for size, _ in drawn(3)}) > 30


def test_only_the_calls_that_break_the_kernel_count(monkeypatch: pytest.MonkeyPatch) -> None:
    real, renewed = tasks.run_calls, []

    def dies(site: Any, calls: Any) -> Any:
        if any(each.axes["n"] == 7 for each in calls):
            raise WorkerError(Failure.CRASH, "SIGSEGV in random calls")
        return real(site, calls)

    monkeypatch.setattr(tasks, "run_calls", dies)
    monkeypatch.setattr(Workers, "renew", lambda self, variant: renewed.append(variant.id))
    result = judge(installed(variant()), **{**CALLS, "calls": 200, "threshold": 0.5})
    assert result.status is Status.PASS
    assert result.failures
    assert all(": 7 elements" in each and "SIGSEGV" in each for each in result.failures)
    assert len(renewed) >= len(result.failures)


# Bit-exactness


@pytest.mark.parametrize("work", [zeros, dropped_tail, past_the_end, one_in(3)])
def test_bits_that_differ_fail(work: Work) -> None:
    result = judge(installed(variant(work)), **EXACT)
    assert result.status is Status.FAIL
    assert result.failures
    assert figure(result, "incorrect elements") > 0


def test_equal_bits_pass_and_every_kernel_is_judged() -> None:
    result = judge(installed(variant()), **EXACT)
    assert result.status is Status.PASS
    assert {"cpu/double/none/int32/best", "cpu/double/none/int32/plain"} == set(result.kernel.split(", "))
    assert figure(result, "elements") == 2 * (1 + 16 + 17 + 100)


def test_an_accelerator_is_compared_with_the_baseline_too() -> None:
    right = judge(installed(variant(), on_device()), MADE_UP, **EXACT)
    assert right.status is Status.PASS
    assert {MADE_UP, "cpu"} == {each.partition("/")[0] for each in right.kernel.split(", ")}
    assert judge(installed(variant(), on_device(zeros)), MADE_UP, **EXACT).status is Status.FAIL
    assert judge(installed(variant(zeros), on_device()), MADE_UP, **EXACT).status is Status.FAIL


# Memory and leaks


@pytest.mark.nightly
def test_three_times_the_inputs_fail() -> None:
    hungry_one = judge(installed(variant(hungry)), kind="memory", threshold=2, size=1 << 20)
    assert hungry_one.status is Status.FAIL
    assert hungry_one.figures[0].value == pytest.approx(3, abs=0.3)
    modest = judge(installed(variant()), kind="memory", threshold=2, size=1 << 20)
    assert modest.status is Status.PASS
    assert modest.figures[0].value < 1


@pytest.mark.nightly
def test_a_leak_fails() -> None:
    leaking = judge(installed(variant(leaky)), kind="leaks", size=1024)
    assert leaking.status is Status.FAIL
    assert "leaks" in leaking.reason
    tight = judge(installed(variant()), kind="leaks", size=1024)
    assert tight.status is Status.PASS
    assert figure(tight, "calls") >= 10


# Scaling


@pytest.mark.parametrize("cost", [linear, lambda n: 10_000 + 0.1 * n, lambda n: 5000.0, lambda n: 40 + n**0.9])
def test_linear_time_and_less_passes(cost: Callable[[int], float]) -> None:
    result = judge(installed(variant(cost=cost)), **SCALING)
    assert result.status is Status.PASS, result.reason
    assert len(result.points) == 6


@pytest.mark.parametrize(
    "cost",
    [
        lambda n: 0.01 * n**2,
        lambda n: n**1.2,
        lambda n: 0.1 * n * log2(n),  # 5 to 10 % in each doubling
        lambda n: n * (1.5 if n >= 1 << 13 else 1),  # a step
        lambda n: n * 1.02 ** log2(n),  # 2 % in each doubling
    ],
)
def test_more_than_linear_time_fails(cost: Callable[[int], float]) -> None:
    result = judge(installed(variant(cost=cost)), **SCALING)
    assert result.status is Status.FAIL
    assert "linear" in result.reason


def test_noise_does_not_make_a_pass_of_quadratic_time() -> None:
    result = judge(installed(variant(cost=lambda n: 0.01 * n**2), noise=0.3), **SCALING)
    assert result.status in {Status.FAIL, Status.NOT_RUN}
    assert judge(installed(variant(), noise=0.3), **SCALING).status is not Status.FAIL


def test_a_time_of_work_that_was_not_done_fails() -> None:
    assert judge(installed(variant(zeros)), **SCALING).status is Status.FAIL


@given(st.floats(0.5, 4), st.floats(0, 0.5))
def test_the_rule_of_scaling(median: float, width: float) -> None:
    ratio = Ratio(median=median, low=median * (1 - width), high=median * (1 + width), pairs=30)
    status, reason = decided([SizePoint(size=4, ratio=ratio, kernel_ns=1, other_ns=2)], None, 1, 2)
    limit = 2 * 1.05
    assert (status is Status.FAIL) == (ratio.low > limit)
    assert (status is Status.PASS) == (ratio.high <= limit)
    assert bool(reason) == (status is not Status.PASS)


# Speed-ups


def test_a_speed_up_and_the_size_from_which_on_each_wins() -> None:
    """5000 + n/100 beside 100 + n/2 ns: equal at about 10,000 elements."""
    found = installed(variant(), on_device(cost=lambda n: 5000 + 0.01 * n))
    result = judge(found, MADE_UP, **{**RESIDENT, "powers": [6, 20]})
    assert result.status is Status.PASS
    assert result.figures[0].value == pytest.approx((100 + 0.5 * 2**20) / (5000 + 0.01 * 2**20), rel=0.01)
    assert figure(result, "over the plain kernel") == pytest.approx(10 * 2**20 / (5000 + 0.01 * 2**20), rel=0.01)
    assert result.crossover is not None
    assert (result.crossover.baseline_to, result.crossover.kernel_from) == (1 << 13, 1 << 14)
    assert result.baseline == "cpu/double/none/int32/best, 2 threads"
    assert [each.size for each in result.points] == [1 << power for power in range(6, 21)]


@pytest.mark.nightly
def test_a_speed_up_that_is_too_small_fails() -> None:
    found = installed(variant(), on_device(cost=lambda n: 100 + 0.1 * n))
    result = judge(found, MADE_UP, **RESIDENT)
    assert result.status is Status.FAIL
    assert "at least 10x" in result.reason
    assert result.crossover is not None
    assert result.crossover.baseline_to is None
    assert result.crossover.kernel_from == 1 << 6


def test_a_fast_kernel_that_is_wrong_has_no_speed_up() -> None:
    result = judge(installed(variant(), on_device(zeros, cost=lambda n: 1000.0)), MADE_UP, **RESIDENT)
    assert result.status is Status.FAIL
    assert "incorrect" in result.reason


def test_end_to_end_is_the_time_of_whole_calls() -> None:
    def taking(seconds: float) -> Callable[[Arrays, Axes, int], Callable[[], Any]]:
        def prepare(inputs: Arrays, axes: Axes, threads: int) -> Callable[[], Any]:
            def run() -> Any:
                time.sleep(seconds)
                return inputs["x"] * 2

            return run

        return prepare

    calls = (call("cpu", taking(0.0002)), call(MADE_UP, taking(0.004)))
    found = installed(variant(), on_device(), calls=calls)
    result = judge(found, MADE_UP, **{**RESIDENT, "data": "end to end", "powers": [6, 7]})
    assert result.status is Status.FAIL
    assert result.figures[0].value < 1
    assert result.crossover is not None
    assert result.crossover.kernel_from is None
    assert result.kernel == f"double, out= on {MADE_UP}"


def test_without_an_accelerator_no_speed_up_is_judged() -> None:
    for data in ("resident", "end to end"):
        result = judge(installed(variant()), **{**RESIDENT, "data": data})
        assert result.status is Status.NOT_RUN
        assert not result.figures


def test_a_simulator_has_no_speed_and_its_other_figures_are_marked() -> None:
    def there(**criterion: Any) -> CriterionResult:
        simulated = replace(made_up_device.DEVICE, simulated=lambda: True, proof=proof)
        return judge(installed(variant(), on_device(), device=simulated), MADE_UP, **criterion)

    latency = {"kind": "latency", "threshold": 100, "size": 1000}
    migrating = {"kind": "migration", "threshold": -0.1, "size": 1000}
    for criterion in (RESIDENT, {**RESIDENT, "data": "end to end"}, SCALING, latency, migrating):
        result = there(**criterion)
        assert result.status is Status.NOT_RUN
        assert "simulator" in result.reason
    assert there(**EXACT).status is Status.PASS
    assert there(**EXACT).simulated


@given(st.lists(st.tuples(st.floats(0.01, 100), st.floats(0, 0.3)), min_size=1, max_size=12))
def test_who_wins_is_what_every_size_on_that_side_shows(drawn: list[tuple[float, float]]) -> None:
    points = [
        SizePoint(
            size=1 << power,
            ratio=Ratio(median=middle, low=middle * (1 - width), high=middle * (1 + width), pairs=30),
            kernel_ns=1,
            other_ns=1,
        )
        for power, (middle, width) in enumerate(drawn)
    ]
    found = speedup.crossover(points[::-1])
    if found.kernel_from is not None:
        assert all(each.ratio.low > 1 for each in points if each.size >= found.kernel_from)
    else:
        assert points[-1].ratio.low <= 1
    if found.baseline_to is not None:
        assert all(each.ratio.high < 1 for each in points if each.size <= found.baseline_to)
    else:
        assert points[0].ratio.high >= 1


def test_noise_around_the_threshold_decides_nothing() -> None:
    for low, high, status in ((10.0, 12.0, Status.PASS), (8.0, 9.9, Status.FAIL), (9.0, 11.0, Status.NOT_RUN)):
        assert speedup.decided(Ratio(median=(low + high) / 2, low=low, high=high, pairs=30), 10)[0] is status
    for low, high, status in ((1.0, 1.1, Status.PASS), (0.92, 2.0, Status.PASS), (0.5, 0.8, Status.FAIL)):
        assert migration(Ratio(median=low, low=low, high=high, pairs=30), -0.1)[0] is status
    assert migration(Ratio(median=0.9, low=0.85, high=0.95, pairs=30), -0.1)[0] is Status.NOT_RUN


@pytest.mark.nightly
def test_sizes_that_do_not_fit_are_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    real = CriteriaBench.fits
    monkeypatch.setattr(CriteriaBench, "fits", lambda self, size: "no room" if size > 1 << 12 else real(self, size))
    result = judge(installed(variant()), **SCALING)
    assert result.status is Status.NOT_RUN
    assert "no room" in result.reason
    assert len(result.points) == 2
    fast = installed(variant(), on_device(cost=lambda n: 50 + 0.01 * n))
    result = judge(fast, MADE_UP, **RESIDENT)
    assert result.status is Status.NOT_RUN
    assert result.points[-1].size == 1 << 12
    assert "16,384 elements were not measured" in result.reason
    quadratic = installed(variant(cost=lambda n: 0.01 * n**2))
    assert judge(quadratic, **SCALING).status is Status.FAIL


# Latency


@pytest.mark.parametrize(("seconds", "status"), [(0.0, Status.PASS), (0.03, Status.FAIL)])
def test_a_call_over_the_limit_fails(monkeypatch: pytest.MonkeyPatch, seconds: float, status: Status) -> None:
    monkeypatch.setattr("tritmark.harness.criteria.latency.SECONDS", 0.05)

    def prepare(inputs: Arrays, axes: Axes, threads: int) -> Callable[[], Any]:
        def run() -> Any:
            time.sleep(seconds)
            return inputs["x"] * 2

        return run

    result = judge(installed(variant(), calls=[call("cpu", prepare)]), kind="latency", threshold=20, size=1000)
    assert result.status is status, result.reason
    assert figure(result, "slowest call") >= result.figures[0].value >= 1e9 * seconds


def test_a_quick_call_with_a_wrong_result_fails() -> None:
    wrong = call("cpu", lambda inputs, axes, threads: lambda: inputs["x"] * 3)
    result = judge(installed(variant(), calls=[wrong]), kind="latency", threshold=100, size=1000)
    assert result.status is Status.FAIL
    assert "incorrect" in result.reason


# Cross-validation and migration

CROSS: dict[str, Any] = {"kind": "cross", "sizes": [1, 33]}


def test_another_implementation_that_agrees_passes() -> None:
    result = judge(installed(variant(), peers=(peer(),)), **CROSS)
    assert result.status is Status.PASS
    assert result.baseline == "other 1.0"
    assert figure(result, "elements compared") == 34


def test_a_kernel_that_disagrees_and_is_wrong_fails() -> None:
    result = judge(installed(variant(zeros), peers=(peer(),)), **CROSS)
    assert result.status is Status.FAIL
    assert "the kernel is incorrect" in result.reason


def test_a_peer_that_is_wrong_does_not_count_against_the_kernel() -> None:
    result = judge(installed(variant(), peers=(peer(lambda x: x * 3),)), **CROSS)
    assert result.status is Status.PASS
    assert any("the peer is incorrect" in each for each in result.notes)


def test_what_is_not_installed_is_not_run() -> None:
    for found in (installed(variant()), installed(variant(), peers=(peer(missing=lambda: "not installed"),))):
        assert judge(found, **CROSS).status is Status.NOT_RUN
    reference = installed(variant(), peers=(peer(reference=True),))
    result = judge(reference, kind="migration", threshold=-0.1, size=1000)
    assert result.status is Status.NOT_RUN
    assert "not for speed" in result.reason


# Devices used


def numbered_devices(count: int) -> tuple[Numbering, Callable[[], str]]:
    """Devices that report their own UUID, and the UUID of the current one."""
    current = [0]

    @contextmanager
    def at(index: int) -> Iterator[None]:
        current.append(index)
        yield
        current.pop()

    numbering = Numbering(count=lambda: count, title=str, at=at, alone=lambda index: {})
    return numbering, lambda: f"UUID-{current[-1]}"


@pytest.mark.parametrize("there", [1, 2, 3])
def test_every_device_does_its_share(there: int) -> None:
    numbering, uuid = numbered_devices(there)
    device = replace(made_up_device.DEVICE, numbering=numbering, proof=proof)
    result = judge(
        installed(variant(), on_device(uuid=uuid), device=device), MADE_UP, kind="units", threshold=1, size=100
    )
    assert result.status is Status.PASS, result.reason
    assert figure(result, "devices") == there


def test_two_devices_that_are_one_are_not_two() -> None:
    numbering, uuid = numbered_devices(2)
    device = replace(made_up_device.DEVICE, numbering=numbering, proof=proof)
    alike = installed(variant(), on_device(uuid=lambda: "UUID-0"), device=device)
    result = judge(alike, MADE_UP, kind="units", threshold=1, size=100)
    assert result.status is Status.FAIL
    assert result.figures[0].value == 0.5
    wrong = installed(variant(), on_device(one_in(20), uuid=uuid), device=device)
    assert judge(wrong, MADE_UP, kind="units", threshold=1, size=100).status is Status.FAIL


@pytest.mark.parametrize(("threads", "status"), [(2, Status.PASS), (1, Status.FAIL)])
def test_a_core_that_does_nothing_is_counted(threads: int, status: Status) -> None:
    result = judge(installed(variant(threads=threads)), kind="units", threshold=1, size=100)
    assert result.status is status
    assert result.figures[0].value == threads / 2


# All


@pytest.mark.nightly
@pytest.mark.cuda
def test_kernels_of_the_gpu(cuda: CudaContext) -> None:
    """The installed plan in small: all that needs no clock, in the simulator too."""
    found = Installed({"builtin": PROVIDER})
    whole = installed_plan(found)
    small: dict[str, dict[str, Any]] = {
        "exact": {"sizes": (1, 17, 1025)},
        "calls": {"calls": 50, "largest": 2000},
        "cross": {"sizes": (1, 3)},
        "units": {"size": 2000},
    }
    chosen = tuple(each.model_copy(update=small[each.kind]) for each in whole.criteria if each.kind in small)
    with Workers(found, isolated=False) as workers:
        its = whole.model_copy(update={"criteria": chosen})
        results = list(judged(found, its, workers, found.registry.devices["cuda"], 1))
    assert [each.reason for each in results if each.status is not Status.PASS and each.kind != "cross"] == []
    assert [each.reason for each in results if each.status is Status.FAIL] == []
    assert all(each.kernel.startswith(("cuda/", "cpu/")) for each in results)


def test_a_kernel_that_breaks_fails_and_is_no_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: Any) -> Any:
        raise WorkerError(Failure.HANG, "did not return")

    monkeypatch.setattr(tasks, "add_kernel", dies)
    result = judge(installed(variant()), **SCALING)
    assert result.status is Status.FAIL
    assert "did not return" in result.reason


def test_no_result_contradicts_itself() -> None:
    one = MeasuredFigure(name="speed-up", value=20, unit=Unit.TIMES)

    def made(**more: Any) -> CriterionResult:
        given = {"id": "it", "kind": "speedup", "source": "", "words": "", "threshold": 10, "figures": (one,), **more}
        return CriterionResult.model_validate(given)

    assert made(status=Status.PASS)
    for wrong in (
        {"status": Status.FAIL},
        {"status": Status.NOT_RUN},
        {"status": Status.PASS, "figures": ()},
        {"status": Status.PASS, "simulated": True},
        {"status": Status.AMBIGUOUS, "reason": "x"},
        {"status": Status.PASS, "threshold": np.nan},
    ):
        with pytest.raises(ValidationError):
            made(**wrong)
