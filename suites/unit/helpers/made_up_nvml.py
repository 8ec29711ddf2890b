"""A module in place of pynvml, with GPUs whose values a test chooses. What it does not name is not supported."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tritmark.harness.machine import nvml

FIELDS = {
    "NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT": 193,
    "NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT": 194,
    "NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT": 196,
    "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION": 230,
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP": 74,
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN": 269,
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN": 270,
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN": 271,
}
"""As in nvml.h."""

WELL: dict[str, Any] = {
    "UUID": "GPU-0",
    "Name": "Made-up GPU",
    "PciInfo": SimpleNamespace(busId="00000000:3B:00.0"),
    "Temperature": 41,
    "TemperatureThreshold": {0: 92, 1: 89, 3: 87},
    "PowerUsage": 76_000,
    "EnforcedPowerLimit": 700_000,
    "ClockInfo": 345,
    "MaxClockInfo": 1980,
    "CurrentClocksThrottleReasons": 0x1,
    "EccMode": (1, 1),
    "TotalEccErrors": {(0, 0): 0, (1, 0): 0, (0, 1): 0, (1, 1): 0},
    "RemappedRows": (0, 0, 0, 0),
    "CurrPcieLinkWidth": 16,
    "MaxPcieLinkWidth": 16,
    "CurrPcieLinkGeneration": 5,
    "MaxPcieLinkGeneration": 5,
    "PcieReplayCounter": 0,
    "UtilizationRates": SimpleNamespace(gpu=0),
    "MemoryInfo": SimpleNamespace(used=1 << 30, total=140 << 30),
    "fields": {270: 0, 269: 0, 271: 0, 74: 0},
}
"""Answers of a healthy GPU. An NVMLError is raised; a dictionary is looked up by the further arguments."""


class NVMLError(Exception):
    """An error of NVML with its number."""

    def __init__(self, value: int, text: str = "") -> None:
        super().__init__(text or f"error {value}")
        self.value = value


NOT_SUPPORTED, LOST = 3, 15


def gpu(index: int = 0, **changed: Any) -> dict[str, Any]:
    """Answers of a healthy GPU with some changed."""
    bus = SimpleNamespace(busId=f"00000000:{0x3B + index:02X}:00.0")
    return WELL | {"UUID": f"GPU-{index}", "PciInfo": bus} | changed


def install(
    monkeypatch: pytest.MonkeyPatch, gpus: Sequence[dict[str, Any]], events: Sequence[tuple[int, int]] = ()
) -> ModuleType:
    """Let `import pynvml` find these GPUs. `events`: the number of a GPU and an XID that its event set reports."""
    module = ModuleType("pynvml")
    pending = list(events)

    def by_uuid(uuid: str) -> int:
        found = [index for index, each in enumerate(gpus) if each["UUID"] == uuid]
        if not found:
            raise NVMLError(6, "Not Found")
        return found[0]

    def by_index(index: int) -> int:
        if isinstance(gpus[index].get("handle"), NVMLError):
            raise gpus[index]["handle"]
        return index

    def asked(name: str) -> Any:
        def answer(device: int, *further: Any) -> Any:
            found = gpus[device].get(name, NVMLError(NOT_SUPPORTED, "Not Supported"))
            if isinstance(found, dict):
                found = found.get(
                    further if len(further) > 1 else further[0], NVMLError(NOT_SUPPORTED, "Not Supported")
                )
            if isinstance(found, NVMLError):
                raise found
            return found

        return answer

    def field_values(device: int, wanted: Sequence[int]) -> list[Any]:
        known = gpus[device].get("fields", {})
        return [
            SimpleNamespace(
                nvmlReturn=0 if each in known else NOT_SUPPORTED,
                valueType=4,
                value=SimpleNamespace(sllVal=known.get(each, 12345)),
            )
            for each in wanted
        ]

    def wait(handles: Any, timeout_ms: int) -> Any:
        if not pending:
            raise NVMLError(10, "Timeout")
        device, xid = pending.pop(0)
        return SimpleNamespace(device=device, eventData=xid)

    names = [name for name in WELL if name != "fields"] + [
        "MarginTemperature",
        "RetiredPages",
        "RetiredPagesPendingStatus",
    ]
    content: dict[str, Any] = {f"nvmlDeviceGet{name}": asked(name) for name in names}
    content |= {
        "NVMLError": NVMLError,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: len(gpus),
        "nvmlDeviceGetHandleByUUID": by_uuid,
        "nvmlDeviceGetHandleByIndex": by_index,
        "nvmlDeviceGetFieldValues": field_values,
        "nvmlEventSetCreate": lambda: "set",
        "nvmlEventSetFree": lambda handles: None,
        "nvmlDeviceRegisterEvents": lambda device, kinds, handles: None,
        "nvmlEventSetWait_v2": wait,
        "nvmlEventTypeXidCriticalError": 8,
        "NVML_TEMPERATURE_GPU": 0,
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
        "NVML_TEMPERATURE_THRESHOLD_SHUTDOWN": 0,
        "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN": 1,
        "NVML_TEMPERATURE_THRESHOLD_GPU_MAX": 3,
        "NVML_MEMORY_ERROR_TYPE_CORRECTED": 0,
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
        "NVML_VOLATILE_ECC": 0,
        "NVML_AGGREGATE_ECC": 1,
        "NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS": 0,
        "NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR": 1,
        **FIELDS,
    }
    vars(module).update(content)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    nvml._nvml.cache_clear()
    return module
