"""Sensors before, during and after a timing, on CPUs and GPUs that are made up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path
from time import perf_counter, sleep
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.machine import cpu_sensors, nvml
from tritmark.harness.machine.cpu import affinity
from tritmark.harness.machine.reading import Reading
from tritmark.harness.measure import sensor_watch
from tritmark.harness.measure.sensor_watch import SensorWatch
from tritmark.harness.record import SensorRange


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensor_watch, "PAUSE_S", 0.001)
    monkeypatch.setattr(sensor_watch, "SHARE", 1.0)


def scripted(monkeypatch: pytest.MonkeyPatch, readings: Iterator[Reading], counted: Iterator[dict[str, int]]) -> None:
    monkeypatch.setattr(nvml, "sensors", lambda uuid: next(readings))
    monkeypatch.setattr(nvml, "throttled_ns", lambda uuid: next(counted))


def watched(least: int) -> Any:
    """A watch whose `with` lasts for that many readings."""
    watch = SensorWatch(("GPU-1",))
    with watch:
        until = perf_counter() + 30
        while len(watch._during[0]) < least and perf_counter() < until:
            sleep(0.001)
    (found,) = watch.summary()
    return found


def test_before_during_and_after_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Reading(clock_low_hz=345, clock_high_hz=345, temperature=30.0, throttle=("gpu_idle",))
    hot = Reading(
        clock_low_hz=1200, clock_high_hz=1200, temperature=88.0, power=690.0, throttle=("hw_thermal_slowdown",)
    )
    fast = Reading(clock_low_hz=1980, clock_high_hz=1980, temperature=61.0, power=500.0, throttle=())
    counted = iter([{"hw_thermal_slowdown": 5, "sw_power_cap": 9}, {"hw_thermal_slowdown": 12, "sw_power_cap": 3}])
    scripted(monkeypatch, chain([before, fast, hot], repeat(fast)), counted)
    found = watched(3)
    assert (found.unit, found.before, found.after) == ("GPU-1", before, fast)
    assert found.during.readings >= 3
    assert found.during == SensorRange(
        readings=found.during.readings,
        clock_low_hz=1200,
        clock_high_hz=1980,
        temperature_low=61.0,
        temperature_high=88.0,
        power_high=690.0,
        throttle={"hw_thermal_slowdown": 1},
    )
    assert found.throttled_ns == {"hw_thermal_slowdown": 7, "sw_power_cap": 0}, "a driver was loaded anew"
    assert found.capped_clock_hz is None


def test_what_grows_faster_than_time_is_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = iter([{"hw_thermal_slowdown": 0, "sw_thermal_slowdown": 0}, {"hw_thermal_slowdown": 10**12}])
    scripted(monkeypatch, repeat(Reading()), counted)
    assert watched(1).throttled_ns == {}


def test_the_lowest_clock_under_a_power_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    capped = [Reading(clock_low_hz=hz, clock_high_hz=hz, throttle=("sw_power_cap",)) for hz in (1500, 1400)]
    idle = Reading(clock_low_hz=200, clock_high_hz=200, throttle=("gpu_idle", "sw_power_cap"))
    fast = Reading(clock_low_hz=1980, clock_high_hz=1980, throttle=())
    scripted(monkeypatch, chain([fast, *capped, idle], repeat(fast)), repeat({}))
    assert watched(4).capped_clock_hz == 1400


def test_a_gpu_without_nvml_says_why_and_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, repeat(Reading(note="NVML: Driver Not Loaded")), repeat({}))
    threads = threading.active_count()
    with SensorWatch(("GPU-1",)) as watch:
        assert threading.active_count() == threads
    (found,) = watch.summary()
    assert (found.before.note, found.during.readings) == ("NVML: Driver Not Loaded", 0)


def test_the_thread_ends_with_the_block_also_by_an_exception() -> None:
    threads = threading.active_count()
    watch = SensorWatch()

    def fail() -> None:
        with watch:
            assert threading.active_count() == threads + 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert threading.active_count() == threads
    assert watch.summary()[0].unit == "cpu"


def test_costly_readings_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reading of 20 ms may take SHARE of the time, so the next one is 200 ms later."""
    monkeypatch.setattr(sensor_watch, "SHARE", 0.1)

    def slow() -> Reading:
        sleep(0.02)
        return Reading()

    monkeypatch.setattr(cpu_sensors, "sensors", slow)
    with SensorWatch() as watch:
        sleep(0.15)
    assert watch.summary()[0].during.readings <= 1


def test_throttling_as_linux_counts_it(tmp_path: Path) -> None:
    assert cpu_sensors.throttled_ns(tmp_path) == {}
    core = min(affinity())
    folder = tmp_path / f"devices/system/cpu/cpu{core}/thermal_throttle"
    folder.mkdir(parents=True)
    (folder / "core_throttle_total_time_ms").write_text("12\n")
    assert cpu_sensors.throttled_ns(tmp_path) == {"core_thermal_throttle": 12_000_000}
    (folder / "package_throttle_total_time_ms").write_text("7\n")
    assert cpu_sensors.throttled_ns(tmp_path)["package_thermal_throttle"] == 7_000_000


class NVMLError(Exception):
    pass


@given(st.dictionaries(st.sampled_from(sorted(nvml._COUNTED)), st.integers(0, 2**63), min_size=1))
def test_fields_that_nvml_refuses_are_left_out(values: dict[str, int]) -> None:
    numbers = {name: index for index, name in enumerate(nvml._COUNTED.values())}

    def ask(device: str, wanted: list[int]) -> list[Any]:
        by_number = {numbers[nvml._COUNTED[key]]: value for key, value in values.items()}
        return [
            SimpleNamespace(
                nvmlReturn=0 if each in by_number else 3,
                valueType=3,
                value=SimpleNamespace(ullVal=by_number.get(each, 99)),
            )
            for each in wanted
        ]

    library = SimpleNamespace(NVMLError=NVMLError, nvmlDeviceGetFieldValues=ask, **numbers)
    assert nvml.fields(library, "device", nvml._COUNTED) == values
    old = SimpleNamespace(NVMLError=NVMLError)  # a package that has no such fields
    assert nvml.fields(old, "device", nvml._COUNTED) == {}
