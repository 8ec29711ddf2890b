"""All facts of the host and its GPUs in one object."""

from __future__ import annotations

import os
import platform
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

from tritmark.harness.machine import cpu, memory, numa

if TYPE_CHECKING:
    from tritmark.harness.machine.gpu import DeviceInfo, Health
    from tritmark.harness.record import Gpu, Machine, TunedPrefetch
    from tritmark.harness.spec import Device


@cache
def _told() -> dict[str, Any]:
    """What py-cpuinfo says. It takes about a second, for it asks CPUID in a process of its own and measures the clock's
    rate, and a process stays on one processor."""
    import cpuinfo

    told: dict[str, Any] = cpuinfo.get_cpu_info()
    return told


def machine_facts() -> Machine:
    """What the host and its GPUs are, without their ceilings. Takes about 0.2 to 1 s for the first time."""
    from hashlib import sha256

    import psutil

    from tritmark.harness.record import Machine, NumaNode

    told = _told()
    flags = frozenset(told.get("flags", ()))
    name = told.get("brand_raw") or platform.processor() or platform.machine()
    caches, total = cpu.caches(), memory.total()
    logical = psutil.cpu_count() or 1
    physical = psutil.cpu_count(logical=False) or logical
    # Whole GiB: a kernel keeps a little more or less for itself from boot to boot.
    same: tuple[object, ...] = (
        name,
        told.get("stepping"),
        logical,
        physical,
        sorted(caches.items()),
        round(total / (1 << 30)),
    )
    gpus = gpu_facts()
    if gpus:
        same += tuple((each.name, each.capability, each.sms, round(each.memory / (1 << 30))) for each in gpus)
    return Machine(
        id=sha256(repr(same).encode()).hexdigest()[:12],
        hostname=platform.node(),
        cpu=name,
        vendor=told.get("vendor_id_raw", ""),
        architecture=platform.machine(),
        features=tuple(sorted(flags)),
        logical_cores=logical,
        physical_cores=physical,
        usable_cores=cpu.usable_cores(),
        caches=caches,
        memory=total,
        page_size=os.sysconf("SC_PAGE_SIZE"),
        huge_pages=memory.huge_pages(),
        governor=cpu.governor(),
        numa_nodes=cpu.numa_nodes(),
        hypervisor=cpu.hypervisor(flags),
        kernel=platform.release(),
        gpus=gpus,
        nodes=tuple(
            NumaNode(number=node.number, cores=node.cores, memory=node.memory, distances=node.distances)
            for node in numa.topology().nodes
        ),
    )


def prefetch_facts(device: Device) -> tuple[TunedPrefetch, ...]:
    """What `tritmark tune` found about the device's kernels on this machine; what the file has wrong is left out."""
    from pydantic import ValidationError

    from tritmark.harness import prefetched
    from tritmark.harness.record import TunedPrefetch

    facts = []
    for each in device.prefetching():
        found = prefetched.kept(device.type, each.key.op, each.identity())
        if found is not None:
            try:
                facts.append(TunedPrefetch.model_validate(found).model_copy(update={"used": each.used()}))
            except ValidationError:
                continue
    return tuple(facts)


def gpu_facts() -> tuple[Gpu, ...]:
    """Every GPU that the driver has for this process, with its health at this moment; none where there is no driver
    that works."""
    from tritmark.harness.machine import gpu

    if gpu.driver_problem() is not None:
        return ()
    faked = gpu.faked() is not None
    return tuple(
        gpu_record(info, gpu.health(info.index), faked=faked, reaches=gpu.reaches(info.index))
        for info in map(gpu.device_info, range(gpu.device_count()))
    )


def gpu_record(
    info: DeviceInfo, health: Health | None = None, *, faked: bool = False, reaches: tuple[int, ...] = ()
) -> Gpu:
    """What a Record keeps of a GPU."""
    from tritmark.harness.machine.gpu import GpuFacts
    from tritmark.harness.record import Gpu

    kept = {each.name: getattr(info, each.name) for each in fields(GpuFacts)}
    return Gpu(**kept, peak_bandwidth=info.peak_bandwidth, health=health, faked=faked, reaches=reaches)
