"""Health of a GPU, as reported by NVML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from tritmark.harness.extras import install
from tritmark.harness.machine.reading import Reading

T = TypeVar("T")

REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""Bits of nvmlClocksEventReasons: reasons for lower clocks."""

_MHZ = 1_000_000

_COUNTED = {
    "sw_power_cap": "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP",
    "sw_thermal_slowdown": "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN",
    "hw_thermal_slowdown": "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN",
    "hw_power_brake_slowdown": "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN",
}
"""NVML's fields with the nanoseconds for which a reason lowered the clocks, since the driver was loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """State of a GPU at one moment. None: NVML does not report the value. `note`: why NVML reports nothing."""

    temperature: int | None = None
    """Degrees Celsius."""
    power: float | None = None
    """Watts drawn."""
    power_limit: float | None = None
    """Enforced limit in watts."""
    clock_hz: int | None = None
    """Clock of the multiprocessors."""
    clock_max_hz: int | None = None
    memory_clock_hz: int | None = None
    memory_clock_max_hz: int | None = None
    throttle: tuple[str, ...] | None = None
    """Names of the current REASONS; () for none."""
    ecc: bool | None = None
    """Whether memory errors are corrected."""
    ecc_uncorrected: int | None = None
    """Uncorrected memory errors since the driver was loaded."""
    utilization: int | None = None
    """Percent of the last sample period in which a kernel ran."""
    memory_used: int | None = None
    """Bytes used by all processes."""
    note: str = ""


@cache
def _nvml() -> Any:
    import pynvml

    pynvml.nvmlInit()
    return pynvml


def library() -> Any:
    """The module pynvml, started. Raises LookupError with the reason if it cannot be."""
    try:
        return _nvml()
    except ImportError:
        raise LookupError(f"nvidia-ml-py is not installed; next: {install('cuda')}") from None
    except Exception as problem:  # pynvml.NVMLError has no name here, since the import itself may fail
        raise LookupError(f"NVML: {problem}") from None


def _handle(uuid: str) -> tuple[Any, Any]:
    """The library and the device's handle. Raises LookupError with the reason if there is none."""
    nvml = library()
    try:
        return nvml, nvml.nvmlDeviceGetHandleByUUID(uuid)
    except nvml.NVMLError as problem:
        raise LookupError(f"NVML on {uuid}: {problem}") from None


def health(uuid: str) -> Health:
    """State of the GPU with this UUID. Never raises; unsupported values are None."""
    try:
        nvml, device = _handle(uuid)
    except LookupError as problem:
        return Health(note=str(problem))

    def supported(ask: Callable[[], T]) -> T | None:
        return reported(nvml, ask)

    return Health(
        temperature=supported(lambda: int(nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU))),
        power=supported(lambda: float(nvml.nvmlDeviceGetPowerUsage(device) / 1000)),
        power_limit=supported(lambda: float(nvml.nvmlDeviceGetEnforcedPowerLimit(device) / 1000)),
        clock_hz=supported(lambda: int(nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM)) * _MHZ),
        clock_max_hz=supported(lambda: int(nvml.nvmlDeviceGetMaxClockInfo(device, nvml.NVML_CLOCK_SM)) * _MHZ),
        memory_clock_hz=supported(lambda: int(nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_MEM)) * _MHZ),
        memory_clock_max_hz=supported(lambda: int(nvml.nvmlDeviceGetMaxClockInfo(device, nvml.NVML_CLOCK_MEM)) * _MHZ),
        throttle=supported(lambda: reasons(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device))),
        ecc=supported(lambda: bool(nvml.nvmlDeviceGetEccMode(device)[0])),
        ecc_uncorrected=supported(
            lambda: int(
                nvml.nvmlDeviceGetTotalEccErrors(
                    device, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
                )
            )
        ),
        utilization=supported(lambda: int(nvml.nvmlDeviceGetUtilizationRates(device).gpu)),
        memory_used=supported(lambda: int(nvml.nvmlDeviceGetMemoryInfo(device).used)),
    )


def reported(nvml: Any, ask: Callable[[], T]) -> T | None:
    """The answer, or None if the device or this nvidia-ml-py does not support the question."""
    try:
        return ask()
    except (nvml.NVMLError, AttributeError):
        return None


def fields(nvml: Any, device: Any, names: Mapping[str, str]) -> dict[str, int]:
    """Values of NVML's fields: for each key, the field that it names. Those that are not supported are left out."""
    numbers = {key: getattr(nvml, name) for key, name in names.items() if hasattr(nvml, name)}
    found = reported(nvml, lambda: nvml.nvmlDeviceGetFieldValues(device, list(numbers.values()))) if numbers else None
    return {
        key: int(getattr(each.value, _VALUES[each.valueType]))
        for key, each in zip(numbers, found or (), strict=False)
        if each.nvmlReturn == 0 and each.valueType in _VALUES
    }


_VALUES = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
"""For each nvmlValueType, its member of nvmlValue."""


def sensors(uuid: str) -> Reading:
    """Current readings of the GPU with this UUID. Never raises; unsupported values are None."""
    try:
        nvml, device = _handle(uuid)
    except LookupError as problem:
        return Reading(note=str(problem))
    clock = reported(nvml, lambda: int(nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM)) * _MHZ)
    return Reading(
        clock_low_hz=clock,
        clock_high_hz=clock,
        memory_clock_hz=reported(nvml, lambda: int(nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_MEM)) * _MHZ),
        temperature=reported(nvml, lambda: float(nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU))),
        power=reported(nvml, lambda: float(nvml.nvmlDeviceGetPowerUsage(device) / 1000)),
        throttle=reported(nvml, lambda: reasons(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device))),
    )


def throttled_ns(uuid: str) -> dict[str, int]:
    """For each reason of lower clocks that the driver counts, nanoseconds since it was loaded."""
    try:
        nvml, device = _handle(uuid)
    except LookupError:
        return {}
    return fields(nvml, device, _COUNTED)


def reasons(bits: int) -> tuple[str, ...]:
    """Names of the set bits; an unknown bit as a number."""
    return tuple(REASONS.get(1 << bit, f"{1 << bit:#x}") for bit in range(int(bits).bit_length()) if bits >> bit & 1)


def occupied(uuid: str) -> bool:
    """Whether a process computes on the GPU; False if NVML does not report it."""
    try:
        nvml, device = _handle(uuid)
        return bool(nvml.nvmlDeviceGetComputeRunningProcesses(device))
    except LookupError:
        return False
    except nvml.NVMLError:
        return False


def driver_version() -> str | None:
    """Version of the driver, such as 580.65.06; None if neither its module nor NVML reports it."""
    with suppress(OSError):  # NVML takes 0.1 s to start in every process
        return Path("/sys/module/nvidia/version").read_text(encoding="ascii").strip()
    try:
        version = _nvml().nvmlSystemGetDriverVersion()
    except Exception:  # no package, no library or no driver
        return None
    return version.decode() if isinstance(version, bytes) else str(version)


def uuids() -> tuple[str, ...]:
    """The UUID of each GPU of the machine; () if NVML reports none."""
    return tuple(_of_each("nvmlDeviceGetUUID"))


def names() -> tuple[str, ...]:
    """The name of each GPU of the machine; () if NVML reports none."""
    return tuple(_of_each("nvmlDeviceGetName"))


def _of_each(question: str) -> list[str]:
    try:
        nvml = _nvml()
        found = [getattr(nvml, question)(nvml.nvmlDeviceGetHandleByIndex(n)) for n in range(nvml.nvmlDeviceGetCount())]
    except Exception:  # no package, no library or no driver
        return []
    return [each.decode() if isinstance(each, bytes) else str(each) for each in found]
