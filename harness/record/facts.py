"""All facts of the host and its GPUs in one object."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import fields
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from tritmark.harness.machine import cpu, memory, numa

if TYPE_CHECKING:
    from tritmark.harness.machine.gpu import DeviceInfo, Health
    from tritmark.harness.record import Gpu, Machine, TunedPrefetch
    from tritmark.harness.spec import Device


_ASK = """
import json
from cpuinfo import cpuinfo
print("\\n" + json.dumps(cpuinfo._get_cpu_info_internal()))
"""
"""py-cpuinfo's get_cpu_info is not used: it runs its own Python and fails on output of a start-up file."""


def _environment() -> dict[str, str]:
    found = find_spec("cpuinfo")
    (package,) = (found and found.submodule_search_locations) or ("",)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return environment | {"PYTHONPATH": str(Path(package).parent), "PYTHONSAFEPATH": "1"}


def _read(environment: Mapping[str, str]) -> dict[str, Any]:
    from tritmark.harness.errors import BadEnvironmentError, Failure
    from tritmark.harness.machine.session import cause

    command = [sys.executable, "-c", _ASK]
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    lines = done.stdout.decode("utf-8", "replace").rstrip().splitlines()
    try:
        reported: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError):
        why = cause(Failure.CRASH, max(0, -done.returncode), wanted=0, killed_before=None)
        if why is not None:
            raise why from None
        words = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it printed nothing"]
        raise BadEnvironmentError(
            f"py-cpuinfo cannot read this CPU: {words[-1]}", next_step=f"run {sys.executable} -m cpuinfo"
        ) from None
    return reported


@cache
def ask() -> Future[dict[str, Any]]:
    """Start py-cpuinfo in the background and return its result as a future.

    It queries CPUID and measures the clock rate: 0.3 to 1 s, mostly asleep. The Pythons that it starts must see neither
    the user's PYTHON variables nor the current folder. The result raises BadEnvironmentError if py-cpuinfo fails.
    """
    future: Future[dict[str, Any]] = Future()

    def answer(environment: Mapping[str, str]) -> None:
        try:
            future.set_result(_read(environment))
        except BaseException as error:
            future.set_exception(error)

    # A copy of the environment, since other code may change it. A daemon, so that a command can end without it.
    Thread(target=answer, args=(_environment(),), daemon=True).start()
    return future


def machine_facts() -> Machine:
    """Facts of the host and its GPUs, without ceilings. The first call takes 0.2 to 1 s.

    Raises BadEnvironmentError if py-cpuinfo fails."""
    from hashlib import sha256

    import psutil

    from tritmark.harness.record import Machine, NumaNode

    reported = ask().result()
    flags = frozenset(reported.get("flags", ()))
    name = reported.get("brand_raw") or platform.processor() or platform.machine()
    caches, total = cpu.caches(), memory.total()
    logical = psutil.cpu_count() or 1
    physical = psutil.cpu_count(logical=False) or logical
    # Whole GiB: the memory that Linux reserves changes slightly from boot to boot.
    same: tuple[object, ...] = (
        name,
        reported.get("stepping"),
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
        vendor=reported.get("vendor_id_raw", ""),
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
    """Results of `tritmark tune prefetch` for the device's kernels on this machine; invalid entries are left out."""
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
    """Every GPU that the driver shows to this process, with its current health; empty without a working driver."""
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
    """The entry of a GPU in a Record."""
    from tritmark.harness.machine.gpu import GpuFacts
    from tritmark.harness.record import Gpu

    kept = {each.name: getattr(info, each.name) for each in fields(GpuFacts)}
    return Gpu(**kept, peak_bandwidth=info.peak_bandwidth, health=health, faked=faked, reaches=reaches)
