"""Everything that NVML reports without root on the health of each GPU of this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tritmark.harness.machine import nvml as readings
from tritmark.harness.machine.reading import Reading

T = TypeVar("T")

_LOST = {15: "the GPU is lost", 16: "the GPU must be reset"}
"""NVML_ERROR_GPU_IS_LOST and NVML_ERROR_RESET_REQUIRED."""
_NOT_SUPPORTED = 3
_RECOVERY = {1: "reset the GPU", 2: "reboot the machine", 3: "drain peer access", 4: "drain and reset the GPU"}
"""NVML_GPU_RECOVERY_ACTION_*."""
_FIELDS = {
    "shutdown_margin": "NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT",
    "slowdown_margin": "NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT",
    "most_margin": "NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT",
    "recovery": "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """State of a GPU. None: NVML does not report the value, or this GPU does not have it."""

    index: int
    """As in nvidia-smi."""
    uuid: str = ""
    name: str = ""
    bus: str = ""
    """PCI address, such as 00000000:3B:00.0."""
    note: str = ""
    """Why nothing could be read."""
    lost: str = ""
    """What the driver reports of a GPU that does not respond; "" for one that does."""
    reading: Reading = field(default_factory=Reading)
    clock_max_hz: int | None = None
    power_limit: float | None = None
    """Watts, enforced."""
    most_temperature: int | None = None
    """Degrees Celsius above which the driver lowers the clocks."""
    slowdown_temperature: int | None = None
    """Degrees Celsius above which the hardware lowers the clocks."""
    shutdown_temperature: int | None = None
    margin: int | None = None
    """Degrees until clocks are lowered, on GPUs that report a margin in place of thresholds."""
    most_margin: int | None = None
    """The margin at which the driver lowers the clocks."""
    slowdown_margin: int | None = None
    shutdown_margin: int | None = None
    ecc: bool | None = None
    corrected: int | None = None
    """Memory errors since the driver was loaded."""
    uncorrected: int | None = None
    corrected_total: int | None = None
    """Memory errors over the life of the GPU."""
    uncorrected_total: int | None = None
    remapped_corrected: int | None = None
    """Rows of memory that were replaced because of corrected errors."""
    remapped_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    retired_pages: int | None = None
    retirement_pending: bool | None = None
    link_width: int | None = None
    """PCIe lanes."""
    link_width_max: int | None = None
    link_generation: int | None = None
    link_generation_max: int | None = None
    replays: int | None = None
    """PCIe packets that were sent again, since the driver was loaded."""
    recovery: str = ""
    """What the driver wants done; "" for nothing."""
    utilization: int | None = None
    """Percent."""
    memory_used: int | None = None
    """Bytes used by all processes."""
    memory_total: int | None = None
    throttled_ns: dict[str, int] = field(default_factory=dict)
    """See nvml.throttled_ns."""

    @property
    def counters(self) -> dict[str, int]:
        """The numbers that only grow, by name."""
        names = (
            "corrected",
            "uncorrected",
            "corrected_total",
            "uncorrected_total",
            "remapped_corrected",
            "remapped_uncorrected",
            "retired_pages",
            "replays",
        )
        found = {name: value for name in names if (value := getattr(self, name)) is not None}
        return found | {f"throttled_ns.{reason}": ns for reason, ns in self.throttled_ns.items()}


def states() -> list[GpuState]:
    """The state of each GPU, in the order of nvidia-smi. Raises LookupError, with the reason, without NVML."""
    nvml = readings.library()
    try:
        count = int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError as problem:
        raise LookupError(f"NVML: {problem}") from None
    return [_state(nvml, index) for index in range(count)]


def _state(nvml: Any, index: int) -> GpuState:
    uuid = ""
    try:
        device = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = _text(nvml.nvmlDeviceGetUUID(device))
        nvml.nvmlDeviceGetPciInfo(device)
        _asked_itself(nvml, device)
    except nvml.NVMLError as problem:
        lost = _LOST.get(getattr(problem, "value", 0), "")
        return GpuState(index=index, uuid=uuid, note=f"NVML on GPU {index}: {problem}", lost=lost)

    def ask(question: Callable[[], T]) -> T | None:
        return readings.reported(nvml, question)

    def threshold(name: str) -> int | None:
        return ask(lambda: int(nvml.nvmlDeviceGetTemperatureThreshold(device, getattr(nvml, name)))) or None

    def errors(kind: str, span: str) -> int | None:
        return ask(lambda: int(nvml.nvmlDeviceGetTotalEccErrors(device, getattr(nvml, kind), getattr(nvml, span))))

    def retired(cause: str) -> int | None:
        return ask(lambda: len(nvml.nvmlDeviceGetRetiredPages(device, getattr(nvml, cause))))

    corrected, uncorrected = "NVML_MEMORY_ERROR_TYPE_CORRECTED", "NVML_MEMORY_ERROR_TYPE_UNCORRECTED"
    volatile, aggregate = "NVML_VOLATILE_ECC", "NVML_AGGREGATE_ECC"
    remapped = ask(lambda: tuple(map(int, nvml.nvmlDeviceGetRemappedRows(device)))) or (None, None, None, None)
    pages = [
        retired("NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS"),
        retired("NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR"),
    ]
    fields = readings.fields(nvml, device, _FIELDS)
    memory = ask(lambda: nvml.nvmlDeviceGetMemoryInfo(device))
    return GpuState(
        index=index,
        uuid=uuid,
        name=_text(ask(lambda: nvml.nvmlDeviceGetName(device)) or ""),
        bus=_text(ask(lambda: nvml.nvmlDeviceGetPciInfo(device).busId) or ""),
        reading=readings.sensors(uuid),
        clock_max_hz=ask(lambda: int(nvml.nvmlDeviceGetMaxClockInfo(device, nvml.NVML_CLOCK_SM)) * 1_000_000),
        power_limit=ask(lambda: float(nvml.nvmlDeviceGetEnforcedPowerLimit(device) / 1000)),
        most_temperature=threshold("NVML_TEMPERATURE_THRESHOLD_GPU_MAX"),
        slowdown_temperature=threshold("NVML_TEMPERATURE_THRESHOLD_SLOWDOWN"),
        shutdown_temperature=threshold("NVML_TEMPERATURE_THRESHOLD_SHUTDOWN"),
        margin=ask(lambda: int(nvml.nvmlDeviceGetMarginTemperature(device))),
        most_margin=fields.get("most_margin"),
        slowdown_margin=fields.get("slowdown_margin"),
        shutdown_margin=fields.get("shutdown_margin"),
        ecc=ask(lambda: bool(nvml.nvmlDeviceGetEccMode(device)[0])),
        corrected=errors(corrected, volatile),
        uncorrected=errors(uncorrected, volatile),
        corrected_total=errors(corrected, aggregate),
        uncorrected_total=errors(uncorrected, aggregate),
        remapped_corrected=remapped[0],
        remapped_uncorrected=remapped[1],
        remap_pending=None if remapped[2] is None else bool(remapped[2]),
        remap_failed=None if remapped[3] is None else bool(remapped[3]),
        retired_pages=None if None in pages else sum(each or 0 for each in pages),
        retirement_pending=ask(lambda: bool(nvml.nvmlDeviceGetRetiredPagesPendingStatus(device))),
        link_width=ask(lambda: int(nvml.nvmlDeviceGetCurrPcieLinkWidth(device))),
        link_width_max=ask(lambda: int(nvml.nvmlDeviceGetMaxPcieLinkWidth(device))),
        link_generation=ask(lambda: int(nvml.nvmlDeviceGetCurrPcieLinkGeneration(device))),
        link_generation_max=ask(lambda: int(nvml.nvmlDeviceGetMaxPcieLinkGeneration(device))),
        replays=ask(lambda: int(nvml.nvmlDeviceGetPcieReplayCounter(device))),
        recovery=_RECOVERY.get(fields.get("recovery", 0), "see nvidia-smi -q" if fields.get("recovery") else ""),
        utilization=ask(lambda: int(nvml.nvmlDeviceGetUtilizationRates(device).gpu)),
        memory_used=None if memory is None else int(memory.used),
        memory_total=None if memory is None else int(memory.total),
        throttled_ns=readings.throttled_ns(uuid),
    )


def _asked_itself(nvml: Any, device: Any) -> None:
    """Raise NVMLError if the GPU does not respond. The driver still knows the UUID of a lost GPU."""
    try:
        nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU)
    except nvml.NVMLError as problem:
        if getattr(problem, "value", None) != _NOT_SUPPORTED:
            raise


def _text(found: str | bytes) -> str:
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)
