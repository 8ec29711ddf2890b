"""Whether throttling makes a figure AMBIGUOUS: throttled GPUs and CPUs, and healthy ones, all made up."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.judge import timing
from tritmark.harness.judge.judging import Group, Judgement, ListedWorkload
from tritmark.harness.judge.throttled import SLOWING, doubted, throttling
from tritmark.harness.judge.timing import GroupTiming
from tritmark.harness.machine import cpu_sensors, nvml
from tritmark.harness.machine.reading import Reading
from tritmark.harness.providers import installed
from tritmark.harness.record import (
    DIMENSIONS,
    Accuracy,
    MachineLoad,
    MemoryUse,
    Performance,
    SensorRange,
    Status,
    UnitSensors,
)
from tritmark.harness.spec import Workload
from tritmark.harness.validate.cases import Material
from tritmark.harness.validate.evidence import LaunchEvidence
from tritmark.harness.validate.guard_names import Guard
from tritmark.harness.validate.measured import Measured
from tritmark.harness.validate.usage import Usage
from tritmark.harness.worker import Workers

WELL = Reading(clock_low_hz=1_980_000_000, temperature=40.0, throttle=())
BUSY = SensorRange(readings=8, clock_low_hz=1_900_000_000, clock_high_hz=1_980_000_000, throttle={})


def load(**sensors: Any) -> MachineLoad:
    known: dict[str, Any] = {"unit": "GPU-1", "before": WELL, "during": BUSY, "after": WELL}
    return MachineLoad(seconds=2.0, cores=4, sensors=(UnitSensors(**known | sensors),))


def during(**throttle: int) -> SensorRange:
    return BUSY.model_copy(update={"throttle": throttle})


THROTTLED = {
    "while timed": (load(during=during(hw_thermal_slowdown=3)), "hw_thermal_slowdown in 3 of 8 readings"),
    "at the end": (load(after=Reading(throttle=("hw_slowdown",))), "hw_slowdown after"),
    "by lack of power": (load(before=Reading(throttle=("hw_power_brake_slowdown",))), "hw_power_brake_slowdown before"),
    "between readings": (load(throttled_ns={"sw_thermal_slowdown": 400_000_000}), "sw_thermal_slowdown for 0.4 of 2 s"),
    "a cap that fell": (
        load(during=during(sw_power_cap=8), capped_clock_hz=1_200_000_000),
        "sw_power_cap, which lowered the clock from 1.98 GHz to 1.20 GHz",
    ),
    "a CPU": (load(unit="cpu", throttled_ns={"core_thermal_throttle": 200_000_000}), "core_thermal_throttle for 0.2"),
}
HEALTHY = {
    "quiet": load(),
    "before schema 10": MachineLoad(seconds=2.0, cores=4),
    "idle before and after": load(before=Reading(throttle=("gpu_idle",)), after=Reading(throttle=("gpu_idle",))),
    "a usual power cap": load(during=during(sw_power_cap=8), capped_clock_hz=1_700_000_000),
    "clocks that are set": load(during=during(applications_clocks_setting=8, sync_boost=1)),
    "a moment of heat": load(throttled_ns={"sw_thermal_slowdown": 50_000_000, "sw_power_cap": 2_000_000_000}),
    "nothing is reported": load(before=Reading(note="no NVML"), after=Reading(), during=SensorRange()),
}


@pytest.mark.parametrize("name", THROTTLED)
def test_throttling_is_named_and_makes_a_pass_ambiguous(name: str) -> None:
    found, text = THROTTLED[name]
    judged = doubted(Performance(status=Status.PASS, reason="no cold figure"), found)
    assert judged.status is Status.AMBIGUOUS
    assert text in judged.reason
    assert judged.reason.endswith("; no cold figure")
    assert "next: check cooling" in judged.reason


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_unit_is_not_accused(name: str) -> None:
    performance = Performance(status=Status.PASS)
    assert doubted(performance, HEALTHY[name]) is performance


@given(
    st.dictionaries(st.sampled_from(sorted(set(nvml.REASONS.values()) - set(SLOWING))), st.integers(1, 9)),
    st.sets(st.sampled_from(sorted(nvml.REASONS.values()))),
)
def test_only_heat_and_lack_of_power_count(reasons: dict[str, int], idle: set[str]) -> None:
    resting = Reading(throttle=("gpu_idle", *sorted(idle)))
    assert throttling(load(during=during(**reasons), before=resting, after=resting)) == []


def test_a_fault_that_rests_on_more_than_time_stays_a_fault() -> None:
    found = THROTTLED["while timed"][0]
    late = Performance(status=Status.FAIL, reason="too late", caught_by=(Guard.CLOCK,), doubted=True)
    assert doubted(late, found).status is Status.AMBIGUOUS
    wrong = Performance(status=Status.FAIL, reason="incorrect", caught_by=(Guard.CLOCK, Guard.AUDIT), doubted=True)
    assert doubted(wrong, found).status is Status.FAIL
    broken = Performance(status=Status.ERROR, reason="crash")
    assert doubted(broken, found).status is Status.ERROR
    assert "hw_thermal_slowdown" in doubted(broken, found).reason


@pytest.mark.parametrize(("slowed", "status"), [(0, Status.PASS), (1, Status.AMBIGUOUS)])
def test_a_run_is_judged_by_its_own_readings(slowed: int, status: Status, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heat slows the CPU all the time, or never."""
    monkeypatch.setattr(cpu_sensors, "throttled_ns", lambda: {"core_thermal_throttle": slowed * perf_counter_ns()})
    passed = Performance(status=Status.PASS)
    measured = Measured(passed, LaunchEvidence(), Usage(), {})
    monkeypatch.setattr(timing, "timed", lambda *args, **more: (passed, measured))
    run = _timed()
    assert run.performance.status is status
    assert ("core_thermal_throttle" in run.performance.reason) == (status is Status.AMBIGUOUS)
    assert run.load is not None
    (sensors,) = run.load.sensors
    assert sensors.unit == "cpu"
    assert (sensors.throttled_ns["core_thermal_throttle"] > 0) == bool(slowed)


def _timed() -> Any:
    here = installed()
    variant = next(each for each in here.registry.variants if each.id.startswith("cpu/i2s_dequantize"))
    workload = Workload(op="i2s_dequantize", axes={"n": 64}, family="uniform")
    listed = ListedWorkload(variant.key, workload, 0, 1, frozenset(DIMENSIONS) - {"cross"})
    op = here.ops[workload.op]
    group = Group(op, variant.key, workload, (variant,))
    passed = Judgement(Accuracy(status=Status.PASS), None, MemoryUse(status=Status.PASS), None, None, 0.0)
    with Workers(here) as workers:
        return GroupTiming(workers, group, Material(op, workload, 0), listed, roofs={}).run(variant, passed, None)
