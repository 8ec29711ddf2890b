"""Cores, caches and clocks of the host, as Linux tells them. Imports nothing that costs time."""

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
"""Of /proc/cpuinfo, on x86-64 and on aarch64."""
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


BINDING = ("OMP_PROC_BIND", "true")
"""Threads that stay on their cores. Where others compete for the cores, two threads that the scheduler has put on
one of them wait for each other by whole time slices: a call of 12 us took 8 ms, and bound 12 us with three busy
processes on two cores."""


def bind_threads() -> None:
    """Have the OpenMP of candidates and peers bind its threads, the calling one among them, unless the environment says
    otherwise. To be called before it is loaded."""
    affinity()
    os.environ.setdefault(*BINDING)


@cache
def affinity() -> frozenset[int]:
    """Logical cores that this process might run on when it was first asked: later, OpenMP may have bound the asking
    thread to one."""
    return frozenset(os.sched_getaffinity(0))


def quota(sys: Path = SYS, proc: Path = Path("/proc")) -> int | None:
    """Cores' worth of time that the control group and those around it grant, the least of them, rounded down but at
    least 1; None without a limit. Of version 2 and of version 1 (Linux's cgroups(7)), each where it is usually
    mounted."""
    found = [_granted(folder) for folder in _groups(sys / CGROUP, proc)]
    return min((cores for cores in found if cores is not None), default=None)


def _groups(root: Path, proc: Path) -> Iterator[Path]:
    """Folders of this process's control groups that may limit its time; in a container, where the path may be that
    of the host, at least the root."""
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
    """Distinct cores among those that this process may keep busy, at least 1; a core whose siblings are not told
    counts for itself."""
    cores = {line(sys / CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list") or f"cpu{cpu}" for cpu in affinity()}
    return max(1, min(len(cores), usable_cores(sys)))


def model(proc: Path = Path("/proc")) -> str:
    """Which processor the first core is, in the words and numbers that Linux has for it, without its clock's speed; ""
    where nothing is told."""
    reported: dict[str, str] = {}
    with suppress(OSError):
        for each in (proc / "cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = each.partition(":")
            reported.setdefault(name.strip(), value.strip())
    return ", ".join(f"{name} {reported[name]}" for name in _MODEL if name in reported)


def caches(sys: Path = SYS) -> dict[str, int]:
    """Bytes of the caches that the first usable core sees: L1d, L1i, L2, L3 as far as there are such; empty where
    nothing is told."""
    sizes: dict[str, int] = {}
    for folder in sorted((sys / CPUS / f"cpu{min(affinity())}" / "cache").glob("index*")):
        level, kind, size = (line(folder / name) for name in ("level", "type", "size"))
        if level is None or size is None or size[-1] not in _UNITS or not size[:-1].isdecimal():
            continue
        suffix = {"Data": "d", "Instruction": "i"}.get(kind or "", "")
        sizes[f"L{level}{suffix}"] = int(size[:-1]) * _UNITS[size[-1]]
    return sizes


def last_level(sys: Path = SYS) -> int | None:
    """Bytes of the largest cache that a core sees; None where nothing is told."""
    return max(caches(sys).values(), default=None)


def governor(sys: Path = SYS) -> str | None:
    """What decides about the clock frequency; None where it is not told, as in most virtual machines."""
    return line(sys / CPUS / f"cpu{min(affinity())}" / "cpufreq" / "scaling_governor")


def clocks(sys: Path = SYS, proc: Path = Path("/proc")) -> list[int]:
    """Hz of each core that this process may use, at this moment; empty where nothing is told. Virtual machines often
    show a constant."""
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
    """Memory nodes, at least 1."""
    return max(1, sum(1 for _ in (sys / "devices/system/node").glob("node[0-9]*")))


def hypervisor(flags: frozenset[str], sys: Path = SYS) -> str | None:
    """What the host is a guest of: the name that firmware or Xen gives, "unnamed" where they give none, None where
    CPUID denies it."""
    if "hypervisor" not in flags:
        return None
    return line(sys / "hypervisor" / "type") or line(sys / "class/dmi/id/sys_vendor") or "unnamed"
