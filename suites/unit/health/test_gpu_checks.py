"""What the checks of a GPU find in what NVML reports: faults that are planted, and healthy GPUs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import made_up_nvml
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_nvml import LOST, NVMLError, gpu, install

from tritmark.harness.health.finding import HealthFinding, Severity, by_unit, overall
from tritmark.harness.health.gpu import checks
from tritmark.harness.machine import nvml, nvml_state
from tritmark.harness.machine.nvml_state import GpuState, states


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    nvml._nvml.cache_clear()


def ecc(**counts: int) -> dict[tuple[int, int], int]:
    """Counts by NVML's kinds of errors and of spans."""
    names = {"corrected": (0, 0), "uncorrected": (1, 0), "corrected_total": (0, 1), "uncorrected_total": (1, 1)}
    return {place: counts.get(name, 0) for name, place in names.items()}


PLANTED: dict[str, tuple[dict[str, Any], str, Severity, str]] = {
    "uncorrected errors": ({"TotalEccErrors": ecc(uncorrected=2)}, "memory errors", Severity.CRITICAL, "uncorrected 2"),
    "a failed row": ({"RemappedRows": (0, 1, 0, 1)}, "memory rows", Severity.CRITICAL, "could not be replaced"),
    "a row that waits": ({"RemappedRows": (0, 1, 1, 0)}, "memory rows", Severity.WARNING, "waits for a reset"),
    "retired pages that wait": (
        {"RetiredPages": {0: [1], 1: [2]}, "RetiredPagesPendingStatus": 1, "RemappedRows": NVMLError(3)},
        "memory rows",
        Severity.WARNING,
        "retired pages: 2",
    ),
    "heat": ({"Temperature": 88}, "temperature", Severity.WARNING, "88 °C"),
    "more heat": ({"Temperature": 89}, "temperature", Severity.CRITICAL, "the hardware lowers the clocks"),
    "a margin that is used up": (
        {"TemperatureThreshold": NVMLError(3), "MarginTemperature": -2, "fields": {193: -8, 194: -2, 196: 0}},
        "temperature",
        Severity.CRITICAL,
        "the hardware lowers the clocks",
    ),
    "errors that cannot be read": (
        {"TotalEccErrors": NVMLError(4)},
        "memory errors",
        Severity.UNKNOWN,
        "ECC is on, and its errors cannot be read",
    ),
    "no temperature": ({"Temperature": NVMLError(3)}, "temperature", Severity.UNKNOWN, "not reported"),
    "slowed by heat": (
        {"CurrentClocksThrottleReasons": 0x48},
        "throttling",
        Severity.WARNING,
        "hw_slowdown, hw_thermal_slowdown",
    ),
    "slowed by the power supply": (
        {"CurrentClocksThrottleReasons": 0x80},
        "throttling",
        Severity.WARNING,
        "hw_power_brake_slowdown",
    ),
    "no reasons": ({"CurrentClocksThrottleReasons": NVMLError(3)}, "throttling", Severity.UNKNOWN, "not reported"),
    "half of the lanes": ({"CurrPcieLinkWidth": 8}, "PCIe link", Severity.WARNING, "8 of 16 lanes"),
    "a slow link under load": (
        {
            "CurrPcieLinkGeneration": 1,
            "UtilizationRates": SimpleNamespace(gpu=90),
            "CurrentClocksThrottleReasons": 0,
        },
        "PCIe link",
        Severity.WARNING,
        "generation 1 of 5",
    ),
    "a reset that the driver wants": ({"fields": {230: 1}}, "driver", Severity.CRITICAL, "asks to reset the GPU"),
    "a lost GPU": ({"handle": NVMLError(LOST, "GPU is lost")}, "driver", Severity.CRITICAL, "the GPU is lost"),
    "a GPU that no longer answers": (
        {"Temperature": NVMLError(LOST, "GPU is lost")},
        "driver",
        Severity.CRITICAL,
        "the GPU is lost",
    ),
    "a GPU that may not be read": (
        {"handle": NVMLError(4, "Insufficient Permissions")},
        "driver",
        Severity.UNKNOWN,
        "Insufficient Permissions",
    ),
}

HEALTHY: dict[str, dict[str, Any]] = {
    "idle": {},
    "busy, at its power limit": {
        "CurrentClocksThrottleReasons": 0x4,
        "UtilizationRates": SimpleNamespace(gpu=100),
        "Temperature": 70,
        "PowerUsage": 700_000,
    },
    "old errors that were corrected or replaced": {
        "TotalEccErrors": ecc(corrected=5, corrected_total=9, uncorrected_total=1),
        "RemappedRows": (0, 1, 0, 0),
    },
    "a link that sleeps": {"CurrPcieLinkGeneration": 1},
    "a card without ECC": {"EccMode": NVMLError(3), "TotalEccErrors": NVMLError(3), "RemappedRows": NVMLError(3)},
    "a margin that is left": {
        "TemperatureThreshold": NVMLError(3),
        "MarginTemperature": 45,
        "fields": {193: -8, 194: -2, 196: 0},
    },
    "thresholds that are not reported": {"TemperatureThreshold": NVMLError(3)},
}


def found_in(monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], before: dict[str, int] | None = None) -> Any:
    install(monkeypatch, [gpu(**changed)])
    (state,) = states()
    return {each.name: each for each in checks(state, before)}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changed, check, severity, text = PLANTED[name]
    found: dict[str, HealthFinding] = found_in(monkeypatch, changed)
    assert found[check].severity is severity
    assert text in found[check].found
    assert found[check].next_step
    assert "{" not in found[check].next_step
    others = [each for each in found.values() if each.name not in {check, "temperature"}]
    assert overall(others) is Severity.OK, "nothing else is accused"


@pytest.mark.parametrize("name", HEALTHY)
def test_what_is_healthy_is_not_accused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = found_in(monkeypatch, HEALTHY[name])
    assert overall(found.values()) is Severity.OK, found
    assert not any(each.next_step for each in found.values())


CHANGES = {
    "corrected": (Severity.WARNING, "memory errors", "3 new corrected errors"),
    "uncorrected_total": (Severity.CRITICAL, "memory errors", "3 new uncorrected errors"),
    "remapped_corrected": (Severity.WARNING, "memory rows", "3 replaced since the last probe"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_counters_that_grew_are_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    severity, check, text = CHANGES[name]
    install(monkeypatch, [gpu(TotalEccErrors=ecc(corrected=4, uncorrected_total=4), RemappedRows=(4, 0, 0, 0))])
    (state,) = states()
    before = state.counters | {name: state.counters[name] - 3}
    found = {each.name: each for each in checks(state, before)}
    assert (found[check].severity, text in found[check].found) == (severity, True)
    assert overall(checks(state, state.counters)) is Severity.OK, "nothing grew"
    assert overall(checks(state, None)) is Severity.OK, "the first probe knows no growth"


def test_throttling_between_two_probes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {270: 7_000_000_000, 74: 99_000_000_000}
    before = {"throttled_ns.hw_thermal_slowdown": 4_000_000_000, "throttled_ns.sw_power_cap": 0}
    found = found_in(monkeypatch, {"fields": fields}, before)
    assert found["throttling"].severity is Severity.WARNING
    assert "since the last probe: hw_thermal_slowdown for 3.00 s" in found["throttling"].found
    assert "sw_power_cap" not in found["throttling"].found


@pytest.mark.parametrize(
    ("seconds", "severity"), [(2, Severity.WARNING), (1, Severity.OK), (0, Severity.WARNING), (-9, Severity.WARNING)]
)
def test_what_grows_faster_than_time_is_no_time(
    seconds: int, severity: Severity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the clock was set back, which tells nothing."""
    install(monkeypatch, [gpu(fields={270: 5_000_000_000})])
    (state,) = states()
    found = {
        each.name: each for each in checks(state, {"throttled_ns.hw_thermal_slowdown": 0, "at_s": 100}, 100 + seconds)
    }
    assert found["throttling"].severity is severity


@given(st.dictionaries(st.sampled_from(["corrected", "replays", "retired_pages"]), st.integers(0, 9)))
def test_a_driver_that_was_loaded_anew_starts_again(before: dict[str, int]) -> None:
    """A counter that fell has grown by what it shows since."""
    from tritmark.harness.health.gpu import _growth

    state = GpuState(index=0, corrected=4, replays=0)
    grown = _growth(state, before)
    assert grown is not None
    expected = {"corrected": 4, "replays": 0}
    for name, value in expected.items():
        if name in before:
            assert grown[name] == (value - before[name] if value >= before[name] else value)
    assert "retired_pages" not in grown


def test_each_gpu_and_the_overall_state(monkeypatch: pytest.MonkeyPatch) -> None:
    unread = gpu(2, handle=NVMLError(999, "Unknown Error"))
    install(monkeypatch, [gpu(0), gpu(1, Temperature=88), unread])
    found = [each for state in states() for each in checks(state, None)]
    assert by_unit(found) == {"GPU 0": Severity.OK, "GPU 1": Severity.WARNING, "GPU 2": Severity.UNKNOWN}
    assert overall(found) is Severity.UNKNOWN
    install(monkeypatch, [gpu(0), gpu(1, RemappedRows=(0, 1, 0, 1)), unread])
    assert overall([each for state in states() for each in checks(state, None)]) is Severity.CRITICAL


def test_an_old_package_reports_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all functions only those that nvidia-ml-py had from the beginning."""
    whole = install(monkeypatch, [gpu()])
    old = ModuleType("pynvml")
    kept = (
        "NVMLError",
        "nvmlInit",
        "DeviceGetCount",
        "HandleBy",
        "GetUUID",
        "PciInfo",
        "GetTemperature",
        "TEMPERATURE_GPU",
    )
    vars(old).update({name: each for name, each in vars(whole).items() if any(part in name for part in kept)})
    del old.nvmlDeviceGetTemperatureThreshold
    monkeypatch.setitem(sys.modules, "pynvml", old)
    nvml._nvml.cache_clear()
    (state,) = states()
    assert (state.uuid, state.reading.temperature, state.counters) == ("GPU-0", 41.0, {})
    assert overall(checks(state, None)) is Severity.UNKNOWN, "throttling is not known"


def test_without_nvml_the_reason_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    nvml._nvml.cache_clear()
    with pytest.raises(LookupError, match="nvidia-ml-py is not installed"):
        states()


def test_the_made_up_fields_are_those_that_are_read() -> None:
    assert set(made_up_nvml.FIELDS) == {*nvml_state._FIELDS.values(), *nvml._COUNTED.values()}
