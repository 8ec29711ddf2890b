"""All facts of the host in one object."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

from tritmark.harness.machine import cpu, memory

if TYPE_CHECKING:
    from tritmark.harness.record import Machine


def machine_facts() -> Machine:
    """What the host is, without its ceilings. Takes about 0.2 to 1 s: py-cpuinfo asks CPUID in a process of its own."""
    from hashlib import sha256

    import cpuinfo
    import psutil

    from tritmark.harness.record import Machine

    told = cpuinfo.get_cpu_info()
    flags = frozenset(told.get("flags", ()))
    name = told.get("brand_raw") or platform.processor() or platform.machine()
    caches, total = cpu.caches(), memory.total()
    logical = psutil.cpu_count() or 1
    physical = psutil.cpu_count(logical=False) or logical
    # Whole GiB: a kernel keeps a little more or less for itself from boot to boot.
    same = (name, told.get("stepping"), logical, physical, sorted(caches.items()), round(total / (1 << 30)))
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
    )
