"""Each GPU of this machine: what it is, how it is, and whether its copies go right to the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from tritmark.harness.doctor.check import Check, State
from tritmark.harness.machine import gpu
from tritmark.harness.machine.gpu import DeviceInfo, Health
from tritmark.harness.text import units

_MEANS = "kernels run and are timed on it, as --device {0} or device={0!r}"

_HELD_DOWN = {
    "hw_thermal_slowdown": "it is too hot: see to its cooling, and let it cool down before it is measured",
    "sw_thermal_slowdown": "it is too hot: see to its cooling, and let it cool down before it is measured",
    "hw_slowdown": "it protects itself from heat or want of power: see to its cooling and its power supply",
    "hw_power_brake_slowdown": "its power supply holds it down: see to that of the machine",
    "sw_power_cap": "it draws all the power that it may: stop what runs there, or sudo nvidia-smi -i {0} -pl WATTS",
    "applications_clocks_setting": "its clocks were set lower: sudo nvidia-smi -i {0} -rac",
}
"""What to do, by why the clocks are lower than they might be. An idle GPU's are low by themselves."""


def healths() -> list[Health]:
    """How each GPU is: to be asked before anything of ours makes a context there, which is work too. None where no
    driver works."""
    return [] if gpu.driver_problem() is not None else [gpu.health(index) for index in range(gpu.device_count())]


def profiles(found: Sequence[Health]) -> Iterator[Check]:
    """Every GPU, and the ways between them, where `healths` found them so."""
    for index, health in enumerate(found):
        yield profile(gpu.device_info(index), health)
    if len(found) > 1:
        yield topology({index: gpu.reaches(index) for index in range(len(found))})


def profile(info: DeviceInfo, health: Health) -> Check:
    """One GPU: the first thing that is wrong with it decides, the worst before the others."""
    name, means, found = f"GPU {info.index}", _MEANS.format(f"cuda:{info.index}"), "; ".join(_facts(info, health))
    closed = gpu.mode_problem(info.index)
    if closed is not None:
        return Check(name, State.MEND, f"{found}; {closed.found}", means, closed.next_step)
    if health.ecc_uncorrected:
        mend = (
            f"look with nvidia-smi -i {info.index} -q -d ECC,ROW_REMAPPER; restart the machine, and have the GPU "
            "replaced if they come back"
        )
        return Check(name, State.MEND, found, f"{means}; results there may be wrong", mend)
    for reason, mend in _HELD_DOWN.items():
        if reason in (health.throttle or ()):
            return Check(name, State.BETTER, found, f"{means}; its times are longer now", mend.format(info.index))
    if health.utilization:
        return Check(name, State.BETTER, found, f"{means}; its times are noisier now", "wait for what runs there")
    if health.note:
        return Check(name, State.BETTER, found, f"{means}; how it is remains unknown", "mend what NVML says")
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
        yield f"clocks are held down by {', '.join(held)}"
    if health.ecc is not None:
        errors = f", {health.ecc_uncorrected} errors that it could not correct" if health.ecc_uncorrected else ""
        yield f"ECC {'on' if health.ecc else 'off'}{errors}"
    if health.utilization:
        yield f"busy for {health.utilization} % of the time"
    if health.note:
        yield health.note


def topology(reaches: dict[int, tuple[int, ...]]) -> Check:
    """Which pairs of GPUs copy without the host between."""
    means = "copies from GPU to GPU go right there, or else through the host's memory, which takes longer"
    apart = [
        f"{one} and {other}"
        for one, other in combinations(reaches, 2)
        if other not in reaches[one] or one not in reaches[other]
    ]
    if not apart:
        return Check("GPU to GPU", State.OK, f"each of {len(reaches)} reaches the memory of every other", means)
    mend = "nvidia-smi topo -p2p r says why; IOMMU and PCIe's ACS off, or NVLink, let them"
    return Check("GPU to GPU", State.BETTER, f"not between {'; '.join(apart)}", means, mend)
