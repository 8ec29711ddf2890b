"""The host and its measured ceilings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tritmark.harness.record import (
    CeilingFacts,
    Contradiction,
    Machine,
    Record,
    TunedPrefetch,
    contradicted,
    contradictions,
)
from tritmark.harness.report.section import Section
from tritmark.harness.text import units


def one_line(record: Record) -> str:
    """The machine in one line."""
    machine = record.machine
    cores = f"{machine.usable_cores} of {units.counted(machine.logical_cores, 'logical core')}"
    last = max(machine.caches.values(), default=None)
    cache = f", {units.size(last)} last-level cache" if last else ""
    virtual = f", virtual ({machine.hypervisor})" if machine.hypervisor else ""
    gpus = "".join(f"; {gpu.name}, {units.size(gpu.memory)}" for gpu in machine.gpus)
    return f"{machine.cpu}, {cores}{cache}, {units.size(machine.memory)} memory{virtual}{gpus}"


def nodes(machine: Machine) -> list[tuple[str, str]]:
    """Each NUMA node and the read rates of its memory."""
    found = []
    for node in machine.nodes:
        has = [f"cores {ranges(node.cores)}" if node.cores else "no cores", units.size(node.memory)]
        if len(machine.nodes) > 1:
            has.append(f"distances {' '.join(map(str, node.distances))}")
        has += [
            f"read from node {each.cores} at {units.rate(each.rate, 'bytes/s')}"
            for each in machine.node_bandwidths
            if each.memory == node.number
        ]
        found.append((f"NUMA node {node.number}", ", ".join(has)))
    return found


def ranges(numbers: Iterable[int]) -> str:
    """0, 1, 2, 8 as "0-2,8"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def _facts(record: Record) -> list[tuple[str, str]]:
    machine = record.machine
    unknown = "unknown"
    return [
        ("CPU", machine.cpu),
        ("Vendor, architecture", f"{machine.vendor}, {machine.architecture}"),
        ("Cores", f"{machine.physical_cores} physical, {machine.logical_cores} logical, {machine.usable_cores} usable"),
        ("NUMA nodes", str(machine.numa_nodes)),
        *(nodes(machine) if len(machine.nodes) > 1 else ()),
        ("Caches", ", ".join(f"{name} {units.size(nbytes)}" for name, nbytes in machine.caches.items()) or unknown),
        ("Memory", units.size(machine.memory)),
        ("Page size", units.size(machine.page_size)),
        ("Transparent huge pages", machine.huge_pages or unknown),
        ("Frequency governor", machine.governor or unknown),
        ("Hypervisor", machine.hypervisor or "none detected"),
        ("Kernel", machine.kernel),
        ("Host", machine.hostname),
        ("Machine id", machine.id),
        ("Features", " ".join(machine.features) or "none"),
        *(
            (f"GPU {gpu.index}", f"{gpu.name}, {units.size(gpu.memory)}, driver {gpu.driver}, {gpu.uuid}")
            for gpu in machine.gpus
        ),
    ]


def _ceilings(record: Record) -> dict[tuple[str, str, str], dict[int, CeilingFacts]]:
    """Device, name and level to number of threads to ceiling."""
    found: dict[tuple[str, str, str], dict[int, CeilingFacts]] = {}
    for ceiling in record.machine.ceilings:
        found.setdefault((ceiling.device, ceiling.name, ceiling.level), {})[ceiling.threads] = ceiling
    return found


def _outcome(tuned: TunedPrefetch) -> str:
    """The chosen prefetch strategy, and the one that the kernels of the Record used."""
    builtin, used = units.prefetch(tuned.builtin), units.prefetch(tuned.used)
    if tuned.chosen:
        found = f"{units.prefetch(tuned.chosen)} was chosen in place of the built-in choice, {builtin}"
    else:
        found = f"no strategy was faster twice than the built-in choice, {builtin}" + (
            f" ({tuned.note})" if tuned.note else ""
        )
    return f"{found}; kernels of this Record: {used}"


def _described(found: Contradiction) -> str:
    """A contradiction, and whether a second measurement confirmed it."""
    again = ", confirmed by a second measurement" if found.fast.repeats and found.slow.repeats else ""
    return f"{found.description}{again}"


def _context(record: Record) -> dict[str, Any]:
    threads = sorted({ceiling.threads for ceiling in record.machine.ceilings})
    prefetch = [(each, _outcome(each)) for each in record.machine.prefetch]
    return {
        "facts": _facts(record),
        "ceilings": _ceilings(record),
        "doubted": contradicted(record.machine.ceilings),
        "contradictions": [_described(each) for each in contradictions(record.machine.ceilings)],
        "threads": threads,
        "prefetch": prefetch,
    }


SECTION = Section("machine", "Machine", "machine.html", _context, about="the host and its measured ceilings")
