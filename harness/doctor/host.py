"""Checks of the host: pages, clocks, cores, NUMA, counters, compiler and disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from tritmark.harness.doctor.check import Check, State
from tritmark.harness.errors import BadEnvironmentError
from tritmark.harness.machine import cpu, memory, numa
from tritmark.harness.machine.files import SYS, line, number
from tritmark.harness.text.units import counted

PROC = Path("/proc")
_COUNTERS_FOR_OWN = 2
"""The highest kernel.perf_event_paranoid at which a process may count its own events."""


def huge_pages(sys: Path = SYS) -> Check:
    """Whether buffers and packed weights can use huge pages."""
    found = memory.huge_pages(sys)
    means = (
        "buffers and packed weights request huge pages; with small pages, large kernels also wait for address "
        "translation"
    )
    if found in {"always", "madvise"}:
        return Check("huge pages", State.OK, found, means)
    mend = (
        f"echo madvise | sudo tee /sys/{memory.THP}"
        if found
        else "use a Linux kernel with transparent huge pages, if possible"
    )
    return Check("huge pages", State.BETTER, found or "not in this Linux kernel", means, mend)


def governor(sys: Path = SYS) -> Check:
    """The governor of the clock frequency."""
    found = cpu.governor(sys)
    if found is None:
        means = (
            "the clock frequency can be neither read nor set, as in most virtual machines; the noise check shows the "
            "effect"
        )
        return Check("governor", State.ABSENT, "unknown", means)
    means = "unless the governor is performance, the clock frequency follows the load, and times follow the frequency"
    if found == "performance":
        return Check("governor", State.OK, found, means)
    return Check("governor", State.BETTER, found, means, "sudo cpupower frequency-set -g performance")


def cores(sys: Path = SYS) -> Check:
    """The cores that this process may use."""
    allowed, there, granted = len(cpu.affinity()), os.cpu_count() or 1, cpu.quota(sys)
    found = f"{allowed} of {there} logical cores"
    if granted is not None and granted < allowed:
        means = (
            f"the control group grants the time of {counted(granted, 'core')} and stops a process that uses more, for "
            "milliseconds"
        )
        mend = f"bind to as many cores: taskset -c 0-{granted - 1} tritmark run (or raise the quota)"
        return Check("cores", State.BETTER, f"{found}, a quota of {granted}", means, mend)
    return Check(
        "cores",
        State.OK,
        found,
        f"a default run uses {counted(cpu.physical_cores(sys), 'thread')}, one for each physical core",
    )


def nodes(sys: Path = SYS, proc: Path = PROC, usable: frozenset[int] | None = None) -> Check:
    """Whether the allowed cores and memory are on the same NUMA nodes."""
    there = numa.topology(sys, proc, usable)
    if not there.several:
        return Check("NUMA", State.OK, "one node", "all memory is equally near to every core")
    reported = {node.number: len(there.working.get(node.number, ())) for node in there.nodes}
    found = "; ".join(
        f"node {node}: {counted(cores, 'core')}{'' if node in there.storing else ', no memory for this process'}"
        for node, cores in reported.items()
    )
    kind, _, bound = numa.policy(proc).partition(":")
    storing = [node for node in there.storing if kind != "bind" or node in numa.listed(bound)]
    far = [node for node in there.working if node not in storing]
    if far:
        names = ", ".join(map(str, far))
        to = ",".join(map(str, storing)) or "N"
        return Check(
            "NUMA",
            State.BETTER,
            f"{found}{f'; numactl binds memory to {bound}' if kind == 'bind' else ''}",
            f"the cores of node {names} have all their memory on other nodes",
            f"run on cores and memory of the same nodes: numactl --cpunodebind={to} --membind={to} tritmark run (for a "
            "container: --cpuset-cpus and --cpuset-mems)",
        )
    if numa.balancing(proc):
        return Check(
            "NUMA",
            State.BETTER,
            f"{found}; Linux moves pages to the threads",
            "pages that move during a measurement change its times; Records count them (node_use)",
            "sudo sysctl kernel.numa_balancing=0",
        )
    means = "the pool keeps its threads on their nodes; PackedWeights.placed puts weights on the same nodes"
    return Check("NUMA", State.OK, found, means)


def counters(proc: Path = PROC) -> Check:
    """Whether a process may read the CPU's counters of its own events."""
    means = "perf stat can show why a kernel is slow; tritmark itself needs no counters"
    found = line(proc / "sys/kernel/perf_event_paranoid")
    if found is None:
        return Check("perf counters", State.ABSENT, "not in this Linux kernel", means)
    text = f"kernel.perf_event_paranoid is {found}"
    level = number(proc / "sys/kernel/perf_event_paranoid")
    if found.startswith("-") or (level is not None and level <= _COUNTERS_FOR_OWN):
        return Check("perf counters", State.OK, text, means)
    return Check(
        "perf counters", State.ABSENT, text, means, f"sudo sysctl kernel.perf_event_paranoid={_COUNTERS_FOR_OWN}"
    )


def compiler() -> Check:
    """The compilers of C and C++ sources."""
    from tritmark.harness.candidate import compiling

    means = (
        "`tritmark check` compiles .c and .cpp files, and `tritmark gate` builds commits; the installed kernels are "
        "compiled already"
    )
    found = []
    for suffix in compiling.SUFFIXES:
        try:
            found.append(" ".join(compiling._compiler(suffix)))
        except BadEnvironmentError as error:
            return Check("compiler", State.ABSENT, error.found, means, error.next_step)
    return Check("compiler", State.OK, ", ".join(found), means)


def disk(out: Path) -> Check:
    """Whether results can be written."""
    from tritmark.harness.store import _LARGEST
    from tritmark.harness.text.units import size

    means = f"Records and reports go to {out}"
    nearest = next(each for each in (out.absolute(), *out.absolute().parents) if os.path.exists(each))
    try:
        # access() is not reliable: read-only file systems, quotas, root.
        with tempfile.TemporaryFile(dir=nearest) as file:
            file.write(b"\0")
            file.flush()
        free = shutil.disk_usage(nearest).free
    except OSError as error:
        why = error.strerror or str(error)
        return Check(
            "disk",
            State.MEND,
            f"{nearest}: {why}",
            means,
            "free some space, fix the permissions, or choose another folder: --out DIR",
        )
    if free < _LARGEST:
        return Check(
            "disk",
            State.BETTER,
            f"{size(free)} free",
            f"{means}; one Record may take up to {size(_LARGEST)}",
            "free some space",
        )
    return Check("disk", State.OK, f"{size(free)} free", means)
