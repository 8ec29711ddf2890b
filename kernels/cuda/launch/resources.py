"""Resources that kernels use, from the compiler's report: budgets are checked without a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tritmark.harness.errors import CompileError
from tritmark.kernels.cuda.driver.compile import architectures, compile_kernel
from tritmark.kernels.cuda.kernel import Kernel

CHECKED = ("sm_70", "sm_75", "sm_80", "sm_90")
"""Architectures of the kernels; a new compiler may no longer support the oldest."""

REGISTERS_PER_BLOCK = 65536
"""The same on every architecture from 7.0 to 12.0."""
_CLUSTERS = {1: 132, 2: 64, 3: 39, 4: 30, 6: 16}
"""Number of clusters of each size that an H200 holds at a time with one block per multiprocessor, at most as
cuOccupancyMaxActiveClusters reports. The blocks of a cluster share one part of the device."""


def resident_clusters(size: int, sms: int) -> int:
    """Number of clusters of so many blocks, one per multiprocessor, that a device like the H200 holds at a time."""
    return max(1, _CLUSTERS[size] * sms // _CLUSTERS[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Resources of one kernel on one architecture, in bytes by default."""

    registers: int
    """Per thread."""
    stack: int
    """Local memory per thread, including spilled registers."""
    spill_stores: int
    spill_loads: int
    shared: int
    """Static shared memory per block. Dynamic shared memory is set at the launch; launch_params checks it."""
    constant: int
    """Parameters and constants."""


_FUNCTION = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
_FRAME = re.compile(
    r"Function properties for (\S+)\s+(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
)
_REGISTERS = re.compile(r"Used (\d+) registers")
_CUMULATIVE = re.compile(r"(\d+) bytes cumulative stack size")
_SHARED = re.compile(r"(\d+)(?:\+(\d+))? bytes smem")
_CONSTANT = re.compile(r"(\d+) bytes cmem\[\d+\]")


def parse(report: str) -> dict[str, Resources]:
    """The resources of each kernel, from the output of ptxas -v (CUDA 12 and 13).

    Spills of functions that are called and not inlined count for every kernel of the source, because the report does
    not state their callers.
    """
    parts = _FUNCTION.split(report)[1:]
    kernels = dict(zip(parts[0::3], parts[2::3], strict=True))
    frames = {name: (int(stack), int(stores), int(loads)) for name, stack, stores, loads in _FRAME.findall(report)}
    called = [frame for name, frame in frames.items() if name not in kernels]
    found: dict[str, Resources] = {}
    for name, text in kernels.items():
        used = _REGISTERS.search(text)
        if used is None or name not in frames:
            continue
        cumulative = _CUMULATIVE.search(text)
        shared = _SHARED.search(text)
        stack, stores, loads = frames[name]
        found[name] = Resources(
            registers=int(used[1]),
            stack=max(stack, int(cumulative[1]) if cumulative else 0),
            spill_stores=stores + sum(frame[1] for frame in called),
            spill_loads=loads + sum(frame[2] for frame in called),
            shared=sum(int(part) for part in shared.groups() if part) if shared else 0,
            constant=sum(int(size) for size in _CONSTANT.findall(text)),
        )
    return found


def checked_architectures() -> tuple[str, ...]:
    """The architectures of CHECKED that the compiler supports."""
    return tuple(arch for arch in CHECKED if arch in architectures())


def resources(kernel: Kernel, arch: str) -> Resources:
    """The resources of the kernel on `arch`. Raises CompileError if its source does not compile or lacks the kernel."""
    report = compile_kernel(kernel, arch).report
    found = parse(report).get(kernel.name)
    if found is None:
        raise CompileError(
            f"{kernel.file} has no kernel {kernel.name} (it has: {', '.join(parse(report)) or 'none'})",
            next_step='declare it extern "C" __global__ under that name',
        )
    return found


def runs_on(kernel: Kernel, arch: str) -> bool:
    """Whether the kernel is made for the architecture."""
    return kernel.runs_on(divmod(int(re.sub(r"\D", "", arch)), 10))


def violations(kernel: Kernel, arch: str, used: Resources) -> list[str]:
    """The exceeded budgets of the kernel on `arch`, one line each."""
    limits = (
        ("registers a thread", used.registers, kernel.registers),
        ("bytes of static shared memory a block", used.shared, kernel.shared),
        ("bytes of local memory a thread", used.stack, kernel.local),
        ("bytes spilled", max(used.spill_stores, used.spill_loads) if not kernel.local else 0, 0),
        # Registers are allocated by warp, eight at a time per thread.
        ("registers a block", -(-kernel.threads // 32) * 32 * -(-used.registers // 8) * 8, REGISTERS_PER_BLOCK),
    )
    where = f"{kernel.file}:{kernel.name}{dict(kernel.defines) or ''} on {arch}"
    return [f"{where}: {found} {what}, budget {budget}" for what, found, budget in limits if found > budget]


def survey(kernels: Iterable[Kernel], archs: Sequence[str] | None = None) -> dict[tuple[Kernel, str], Resources]:
    """The resources of every distinct kernel on every architecture that it is made for, compiled in parallel.

    `archs` defaults to checked_architectures(). Raises CompileError.
    """
    import os
    from concurrent.futures import ThreadPoolExecutor

    chosen = checked_architectures() if archs is None else archs
    cases = [(kernel, arch) for arch in chosen for kernel in dict.fromkeys(kernels) if runs_on(kernel, arch)]
    # Of kernels that share source and options one is compiled; the others find its cubin in the cache.
    first = {(kernel.file, kernel.defines, kernel.options, arch): (kernel, arch) for kernel, arch in cases}
    with ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)))) as pool:
        list(pool.map(lambda case: resources(*case), first.values()))
    return {case: resources(*case) for case in cases}


def check(kernels: Iterable[Kernel], archs: Sequence[str] | None = None) -> list[str]:
    """All exceeded budgets, one line each, [] for none; arguments and errors as for survey."""
    return [line for (kernel, arch), use in survey(kernels, archs).items() for line in violations(kernel, arch, use)]
