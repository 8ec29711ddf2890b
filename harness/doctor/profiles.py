"""Checks of each GPU: facts, health, and direct copies to other GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from tritmark.harness.doctor.check import Check, State
from tritmark.harness.machine import gpu
from tritmark.harness.machine.gpu import DeviceInfo, Health
from tritmark.harness.text import units

_MEANS = "runs and times kernels as --device {0} or device={0!r}"

_HELD_DOWN = {
    "hw_thermal_slowdown": "too hot: check its cooling, and let it cool down before measuring",
    "sw_thermal_slowdown": "too hot: check its cooling, and let it cool down before measuring",
    "hw_slowdown": "slowed by heat or lack of power: check its cooling and its power supply",
    "hw_power_brake_slowdown": "slowed by the power supply: check the power supply of the machine",
    "sw_power_cap": "at its power limit: stop other work on it, or sudo nvidia-smi -i {0} -pl WATTS",
    "applications_clocks_setting": "its clocks are set lower: reset them with sudo nvidia-smi -i {0} -rac",
}
"""The fix for each reason of lower clocks. An idle GPU has low clocks without a fault."""


def healths() -> list[Health]:
    """The health of each GPU; empty without a driver. Call it before a context is made, because that is load, too."""
    return [] if gpu.driver_problem() is not None else [gpu.health(index) for index in range(gpu.device_count())]


def profiles(found: Sequence[Health]) -> Iterator[Check]:
    """A check of each GPU with the health that `healths` found, and one of the links between GPUs."""
    for index, health in enumerate(found):
        yield profile(gpu.device_info(index), health)
    if len(found) > 1:
        yield topology({index: gpu.reaches(index) for index in range(len(found))})


def profile(info: DeviceInfo, health: Health) -> Check:
    """The check of one GPU, which reports the worst problem."""
    name, means, found = f"GPU {info.index}", _MEANS.format(f"cuda:{info.index}"), "; ".join(_facts(info, health))
    closed = gpu.mode_problem(info.index)
    if closed is not None:
        return Check(name, State.MEND, f"{found}; {closed.found}", means, closed.next_step)
    if health.ecc_uncorrected:
        mend = (
            f"inspect with nvidia-smi -i {info.index} -q -d ECC,ROW_REMAPPER; restart the machine, and have the GPU "
            "replaced if the errors come back"
        )
        return Check(name, State.MEND, found, f"{means}; its results may be incorrect", mend)
    for reason, mend in _HELD_DOWN.items():
        if reason in (health.throttle or ()):
            return Check(name, State.BETTER, found, f"{means}; its times are longer now", mend.format(info.index))
    if health.utilization:
        return Check(
            name, State.BETTER, found, f"{means}; its times are noisier now", "wait for other work on it to end"
        )
    if health.note:
        return Check(name, State.BETTER, found, f"{means}; its health is unknown", "fix the error that NVML reports")
    return Check(name, State.OK, found, means)


def _facts(info: DeviceInfo, health: Health) -> Iterator[str]:
    major, minor = info.capability
    yield f"{info.name}, compute capability {major}.{minor}, {units.size(info.memory)}"
    if health.memory_used is not None:
        yield f"{units.size(health.memory_used)} of it in use"
    if health.clock_hz is not None and health.clock_max_hz is not None:
        yield f"{health.clock_hz // 1_000_000} of {health.clock_max_hz // 1_000_000} MHz"
    if health.temperature is not None:
        yield f"{health.temperature} °C"
    if health.power is not None and health.power_limit is not None:
        yield f"{health.power:.0f} of {health.power_limit:.0f} W"
    held = [reason for reason in health.throttle or () if reason != "gpu_idle"]
    if held:
        yield f"clocks limited by {', '.join(held)}"
    if health.ecc is not None:
        errors = f", {health.ecc_uncorrected} uncorrected errors" if health.ecc_uncorrected else ""
        yield f"ECC {'on' if health.ecc else 'off'}{errors}"
    if health.utilization:
        yield f"busy for {health.utilization} % of the time"
    if health.note:
        yield health.note


def topology(reaches: dict[int, tuple[int, ...]]) -> Check:
    """The pairs of GPUs that copy directly, without the host's memory."""
    means = "copies between GPUs are direct, or go through the host's memory, which takes longer"
    apart = [
        f"{one} and {other}"
        for one, other in combinations(reaches, 2)
        if other not in reaches[one] or one not in reaches[other]
    ]
    if not apart:
        return Check("GPU to GPU", State.OK, f"direct between all {len(reaches)}", means)
    mend = "nvidia-smi topo -p2p r shows the reason; NVLink, or IOMMU and ACS of PCIe off, allow direct copies"
    return Check("GPU to GPU", State.BETTER, f"not direct between {'; '.join(apart)}", means, mend)
