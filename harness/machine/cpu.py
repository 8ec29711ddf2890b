"""Cores, caches and clocks of the host, as reported by Linux. Imports only what loads quickly."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from tritmark.harness.machine.files import SYS, line, number

CPUS = Path("devices/system/cpu")
CGROUP = Path("fs/cgroup")
_MODEL = (
    *("vendor_id", "model name", "cpu family", "model", "stepping", "microcode"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision"),
)
"""Fields of /proc/cpuinfo, on x86-64 and on aarch64."""
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


BINDING = ("OMP_PROC_BIND", "true")
"""Binds OpenMP threads to cores. If other processes compete, the scheduler may put two threads on one core, and they
wait for each other for whole time slices. With three busy processes on two cores, a call of 12 us took 8 ms unbound
and 12 us bound."""


def bind_threads() -> None:
    """Make the OpenMP of candidates and peers bind its threads, including the calling one, unless the environment
    already sets it. Call this before OpenMP is loaded."""
    affinity()
    os.environ.setdefault(*BINDING)


@cache
def affinity() -> frozenset[int]:
    """Logical cores that this process may run on, as of the first call: later, OpenMP may bind the calling thread to
    one."""
    return frozenset(os.sched_getaffinity(0))


def quota(sys: Path = SYS, proc: Path = Path("/proc")) -> int | None:
    """CPU quota in cores: the least of the control group and its parents, rounded down, at least 1; None without a
    limit. Reads versions 1 and 2 (Linux's cgroups(7)) at their usual mount points."""
    found = [_granted(folder) for folder in _groups(sys / CGROUP, proc)]
    return min((cores for cores in found if cores is not None), default=None)


def _groups(root: Path, proc: Path) -> Iterator[Path]:
    """Folders of this process's control groups that may limit its time. Includes the root, since in a container the
    path may be the host's."""
    paths = {root: "/", root / "cpu": "/", root / "cpu,cpuacct": "/"}
    for each in (line(proc / "self" / "cgroup") or "").splitlines():
        _, controllers, path = each.split(":", 2)
        if not controllers:
            paths[root] = path
        elif "cpu" in controllers.split(","):
            paths[root / "cpu"] = paths[root / "cpu,cpuacct"] = path
    for mounted, path in paths.items():
        parts = [part for part in path.split("/") if part not in {"", ".."}]
        for depth in range(len(parts) + 1):
            yield mounted.joinpath(*parts[:depth])


def _granted(folder: Path) -> int | None:
    granted, _, period = (line(folder / "cpu.max") or "").partition(" ")
    if not granted:
        granted, period = (line(folder / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period"))
    if not granted.isdecimal() or not period.isdecimal() or not int(period):
        return None  # "max", and of version 1 -1
    return max(1, int(granted) // int(period))


def usable_cores(sys: Path = SYS) -> int:
    """Logical cores that this process may keep busy: its affinity, or the control group's quota if that is less."""
    return min(len(affinity()), quota(sys) or len(affinity()))


def physical_cores(sys: Path = SYS) -> int:
    """Physical cores among those that this process may keep busy, at least 1. A core with unknown siblings counts as
    one."""
    cores = {line(sys / CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list") or f"cpu{cpu}" for cpu in affinity()}
    return max(1, min(len(cores), usable_cores(sys)))


def model(proc: Path = Path("/proc")) -> str:
    """The processor of the first core, as described by Linux, without its clock frequency; "" if unknown."""
    reported: dict[str, str] = {}
    with suppress(OSError):
        for each in (proc / "cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = each.partition(":")
            reported.setdefault(name.strip(), value.strip())
    return ", ".join(f"{name} {reported[name]}" for name in _MODEL if name in reported)


def caches(sys: Path = SYS) -> dict[str, int]:
    """Bytes of the caches of the first usable core: L1d, L1i, L2, L3 if present; empty if unknown."""
    sizes: dict[str, int] = {}
    for folder in sorted((sys / CPUS / f"cpu{min(affinity())}" / "cache").glob("index*")):
        level, kind, size = (line(folder / name) for name in ("level", "type", "size"))
        if level is None or size is None or size[-1] not in _UNITS or not size[:-1].isdecimal():
            continue
        suffix = {"Data": "d", "Instruction": "i"}.get(kind or "", "")
        sizes[f"L{level}{suffix}"] = int(size[:-1]) * _UNITS[size[-1]]
    return sizes


def last_level(sys: Path = SYS) -> int | None:
    """Bytes of the largest cache of a core; None if unknown."""
    return max(caches(sys).values(), default=None)


def governor(sys: Path = SYS) -> str | None:
    """The frequency governor; None if unknown, as in most virtual machines."""
    return line(sys / CPUS / f"cpu{min(affinity())}" / "cpufreq" / "scaling_governor")


def clocks(sys: Path = SYS, proc: Path = Path("/proc")) -> list[int]:
    """Current clock frequency of each core that this process may use, Hz; empty if unknown. Virtual machines often
    report a constant."""
    reported = [number(sys / CPUS / f"cpu{core}" / "cpufreq" / "scaling_cur_freq") for core in sorted(affinity())]
    found = [1000 * khz for khz in reported if khz]
    return found or _clocks_of_cpuinfo(proc)


def _clocks_of_cpuinfo(proc: Path) -> list[int]:
    found, core = [], -1
    with suppress(OSError):
        for each in (proc / "cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = each.partition(":")
            with suppress(ValueError):
                if name.strip() == "processor":
                    core = int(value)
                elif name.strip() == "cpu MHz" and core in affinity():
                    found.append(round(float(value) * 1e6))
    return found


def numa_nodes(sys: Path = SYS) -> int:
    """Number of NUMA nodes, at least 1."""
    return max(1, sum(1 for _ in (sys / "devices/system/node").glob("node[0-9]*")))


def hypervisor(flags: frozenset[str], sys: Path = SYS) -> str | None:
    """The hypervisor of this host, named by firmware or Xen; "unnamed" if they give no name; None if CPUID reports no
    hypervisor."""
    if "hypervisor" not in flags:
        return None
    return line(sys / "hypervisor" / "type") or line(sys / "class/dmi/id/sys_vendor") or "unnamed"
