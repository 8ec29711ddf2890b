"""Access patterns of CUDA variants in device and shared memory, from traces of the simulator. `python -m
tritmark.kernels.cuda.access [GLOB]` prints those of all variants; `tritmark run` puts them into the Record.

The shapes are small and have no tails; the patterns hold for any size, except in tails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from tritmark.harness.errors import DeviceError, DeviceUnavailableError
from tritmark.harness.providers import installed
from tritmark.harness.spec import DEVICE_MEMORY, SHARED_MEMORY, Device, KernelAccesses, Op, TracedAccess, Variant
from tritmark.kernels.cuda.access.banks import SharedSite, shared_sites
from tritmark.kernels.cuda.access.coalescing import AccessSite, analyse

AXES = {"n": 8192, "block": 64, "M": 64, "N": 128, "K": 256}
INSTEAD: tuple[dict[str, int], ...] = ({}, {"M": 1}, {"block": 256}, {"n": 65536, "block": 32768})
"""Other sizes, for variants whose constraints refuse AXES."""


@dataclass(frozen=True, slots=True)
class Sites:
    """The loads and stores of one call of a variant."""

    axes: dict[str, int]
    device: tuple[AccessSite, ...]
    shared: tuple[SharedSite, ...]


def _axes(op: Op, variant: Variant) -> dict[str, int]:
    unknown = set(op.axes) - AXES.keys()
    sizes = ({axis: (AXES | other)[axis] for axis in op.axes} for other in INSTEAD if not unknown)
    found = next((each for each in sizes if all(limit.refusal(each) is None for limit in variant.constraints)), None)
    if found is None:
        raise DeviceUnavailableError(
            f"{variant.id} takes none of the shapes that are traced ({AXES} and variations)",
            next_step="add one to INSTEAD of kernels/cuda/access/traced.py",
        )
    return found


def traced(device: Device, op: Op, variant: Variant, *, shared: bool = True) -> Sites:
    """All loads and stores of a variant's launches in one call, to device memory and to `shared` memory. Raises
    DeviceError outside the simulator, for a call that is too long to be traced, and what the launch raises."""
    from tritmark.kernels.cuda.context import cuda_context
    from tritmark.kernels.cuda.simulator import SimulatorBackend
    from tritmark.kernels.dispatch import offload

    backend = cuda_context().backend
    if not isinstance(backend, SimulatorBackend):
        raise DeviceUnavailableError("only the simulator traces accesses", next_step="set TRITMARK_CUDA=simulator")
    axes = _axes(op, variant)
    logical = op.generate(axes, op.input_families[0], np.random.default_rng(1))
    launch, _ = offload.launch(device, op, variant, op.encode(logical, axes, variant.key.format), axes)
    with backend.trace(shared=shared) as trace:
        launch.run()
    if not all(each.complete for each in trace.launches):
        raise DeviceError(f"{variant.id}: too many accesses to trace", next_step="trace a kernel with shorter launches")
    return Sites(axes, analyse(trace), shared_sites(trace))


def sites(variant: Variant) -> tuple[AccessSite, ...]:
    """The loads and stores of a variant in device memory, in one call. Raises as `traced` does."""
    here = installed()
    return traced(here.registry.devices[variant.key.device], here.ops[variant.key.op], variant, shared=False).device


def kernel_accesses(device: Device, op: Op, variant: Variant) -> KernelAccesses:
    """The access patterns of a variant for the Record. Raises as `traced` does."""
    from tritmark.kernels.cuda.simulator import toolchain

    found = traced(device, op, variant)
    return KernelAccesses(
        kernel=variant.id,
        axes=found.axes,
        simulator=f"tritmark's simulator, {toolchain.compiler()[1]}",
        accesses=(
            *(
                TracedAccess(
                    function=each.kernel,
                    line=each.line,
                    memory=DEVICE_MEMORY,
                    kind=each.kind,
                    size=each.size,
                    pattern=str(each.pattern),
                    requests=each.instructions,
                    transactions=each.sectors,
                    least=each.least,
                )
                for each in found.device
            ),
            *(
                TracedAccess(
                    function=each.kernel,
                    line=each.line,
                    memory=SHARED_MEMORY,
                    kind=each.kind,
                    size=each.size,
                    pattern=str(each.pattern),
                    requests=each.instructions,
                    transactions=each.passes,
                    least=each.least,
                )
                for each in found.shared
            ),
        ),
    )


def missing() -> str | None:
    """Why the simulator cannot be built here and the next step, or None."""
    from tritmark.kernels.cuda.simulator import toolchain

    try:
        toolchain.compiler()
    except DeviceError as error:
        return str(error)
    return None


def environment() -> Mapping[str, str]:
    """The variables of a process in which the simulator replaces the current GPU, with its compute capability if there
    is one."""
    from tritmark.harness.machine import gpu
    from tritmark.kernels.cuda.context import SELECT, current_gpu, driver_index, simulated

    if simulated() or gpu.why_not(driver_index(current_gpu())) is not None:
        return {SELECT: "simulator"}
    capability = ".".join(map(str, gpu.device_info(driver_index(current_gpu())).capability))
    return {SELECT: "simulator", "TRITMARK_SIMULATOR_CAPABILITY": capability}


def percent(found: tuple[AccessSite, ...]) -> float:
    """Coalescing of all sites together, in percent."""
    return 100 * sum(site.least for site in found) / sum(site.sectors for site in found)


def cuda_variants(glob: str = "*") -> Iterator[Variant]:
    """The CUDA variants of all packages whose id matches."""
    yield from (
        each for each in installed().registry.variants if each.key.device == "cuda" and fnmatchcase(each.id, glob)
    )
