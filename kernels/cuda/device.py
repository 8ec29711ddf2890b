"""The GPU as a device of the harness: whether it exists, its features, its memory, and the proof of its launches.

Each function does only what its question needs: only work on the device makes the context.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from tritmark.harness.errors import DeviceError, UsageError
from tritmark.harness.nearest import nearest
from tritmark.harness.spec import (
    AccessTracing,
    Ceiling,
    Clock,
    Device,
    DeviceStats,
    KernelAccesses,
    Launch,
    Memory,
    Numbering,
    Op,
    Proof,
    Variant,
)
from tritmark.harness.spec.stats import COUNTS
from tritmark.kernels.cuda.array import DeviceArray
from tritmark.kernels.cuda.context import (
    SELECT,
    alone,
    cuda_context,
    current_gpu,
    driver_index,
    existing_context,
    gpu_count,
    in_use,
    on_gpu,
    simulated,
)
from tritmark.kernels.cuda.device_type import DEVICE as DEVICE_TYPE
from tritmark.kernels.cuda.launch import launch as launches
from tritmark.kernels.cuda.launch.counted import CountedLaunch
from tritmark.kernels.cuda.launch.launch import compute
from tritmark.kernels.cuda.launch.tuning import gpu_identity
from tritmark.kernels.cuda.launch.tuning import source_hash as hash_of_sources
from tritmark.kernels.cuda.memory.memory import Watch

if TYPE_CHECKING:
    from tritmark.harness.candidate.manifest import Described

FORCE = "TRITMARK_FORCE_CUDA"
"""Environment variable: the only variant that may be selected on the GPU."""

CAPABILITIES = ((6, 1), (7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0))
"""Compute capabilities that variants may require."""


def features() -> frozenset[str]:
    """Every capability up to the device's own, that of the device alone, and REAL if it is not simulated."""
    backend = cuda_context().backend
    found = {compute(each) for each in CAPABILITIES if each <= backend.info.capability}
    found.add(launches.alone(backend.info.capability))
    return frozenset(found if backend.simulated else found | {launches.REAL})


def missing() -> str | None:
    """Why the current GPU cannot be used and the next step, or None. For the simulator: why it cannot be built."""
    if simulated():
        from tritmark.kernels.cuda.simulator import toolchain

        if current_gpu() >= gpu_count():
            return f"no GPU {current_gpu()}; next: legal: 0 to {gpu_count() - 1}"
        return _why(toolchain.compiler)
    from tritmark.harness.machine import gpu

    index = driver_index(current_gpu())
    return None if in_use(index) and not gpu.faked() else gpu.why_not(index)


def _why(ask: Callable[[], object]) -> str | None:
    try:
        ask()
    except DeviceError as error:
        return str(error)
    return None


def forced() -> str | None:
    """The variant that TRITMARK_FORCE_CUDA names, or None. Raises UsageError for an unknown name."""
    name = os.environ.get(FORCE, "").strip()
    if not name:
        return None
    legal = dict.fromkeys(variant.rpartition("/")[2] for variant in launches.KERNELS)
    if name not in legal:
        raise UsageError(f"{FORCE} is {name!r}; {nearest(name, legal)}")
    return name


def code_hash(variant_id: str) -> str:
    """SHA-256 over the hashes of the binaries with the variant's kernels, which are compiled if necessary; "" for any
    other variant."""
    kernels = launches.KERNELS.get(variant_id, ())
    return (
        sha256("".join(cuda_context().function(kernel).code_hash for kernel in kernels).encode()).hexdigest()
        if kernels
        else ""
    )


def source_hash(variant_id: str) -> str:
    """See tuning.source_hash; "" for a variant that has no kernels here."""
    kernels = launches.KERNELS.get(variant_id, ())
    arch = cuda_context().backend.info.arch
    return hash_of_sources(kernels, launches.STEPS[variant_id], arch) if kernels else ""


def identity() -> Mapping[str, str]:
    """The current GPU and its driver. The simulator's are its own, so a choice for one is never used on the other."""
    return gpu_identity(cuda_context().backend.info)


def compiler() -> str:
    """Name and version of the kernel compiler, and its loader."""
    from tritmark.kernels.cuda.driver.compile import compiler as nvcc
    from tritmark.kernels.cuda.driver.compile import loaded_by_pycuda

    through_pycuda = loaded_by_pycuda()
    if simulated():
        from tritmark.kernels.cuda.simulator import toolchain

        return toolchain.compiler()[1]
    return f"{nvcc()} through PyCUDA's SourceModule" if through_pycuda else nvcc()


def proof(launch: Launch) -> Proof | None:
    """The evidence that the launcher collected; None for a launch that is not its own."""
    return launch.proof if isinstance(launch, CountedLaunch) else None


class CudaMemory:
    """The memory of GPU `index` for the harness: buffers and arrays are DeviceArrays."""

    def __init__(self, index: int) -> None:
        self._index = index

    @property
    def cache(self) -> int | None:
        """Bytes of L2; None if the driver does not report them."""
        return cuda_context(self._index).backend.info.l2 or None

    def available(self) -> int:
        """Free bytes, including those that the pool keeps."""
        return cuda_context(self._index).pool.available()

    def allocate(self, nbytes: int) -> DeviceArray:
        """A flat uint8 array from the pool, content undefined. Raises InsufficientMemoryError."""
        return cuda_context(self._index).array((max(1, nbytes),), "uint8")

    def view(
        self,
        buffer: DeviceArray,
        offset: int,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
        strides: tuple[int, ...] | None = None,
    ) -> DeviceArray:
        """An array within the buffer."""
        return buffer.view(shape, dtype, offset, strides)

    def write(self, array: DeviceArray, values: npt.NDArray[Any]) -> None:
        """Copy to the device; complete on return."""
        array.write(values)

    def read(self, array: DeviceArray, into: npt.NDArray[Any]) -> None:
        """Copy from the device; complete on return."""
        array.read(into)

    def watch(self) -> Watch:
        """See kernels.cuda.memory.memory."""
        return cuda_context(self._index).pool.watch()


def stats() -> DeviceStats:
    """Counts of the current GPU in this process and its memory pool; zeros before its first use, which this does not
    start."""
    name, context = f"{DEVICE_TYPE}:{current_gpu()}", existing_context()
    if context is None:
        return DeviceStats(device=name, simulated=simulated())
    counts = context.stats.copy()
    return DeviceStats(
        device=name,
        simulated=context.backend.simulated,
        pool=context.pool.figures(),
        **{each: getattr(counts, each) for each in COUNTS},
    )


def memory_problems() -> Sequence[str]:
    """See MemoryPool.check_memory_health, of the current GPU."""
    return cuda_context().pool.check_memory_health().reasons


def _memory() -> Memory:
    return CudaMemory(current_gpu())


def _title(index: int) -> str:
    if simulated():
        return cuda_context(index).backend.info.name
    from tritmark.harness.machine import gpu

    return gpu.device_info(index).name


def _clock() -> Clock:
    from tritmark.kernels.cuda.measure.clock import GraphClock

    return GraphClock()


def _plain_clock() -> Clock:
    from tritmark.kernels.cuda.measure.plain import PlainClock

    return PlainClock()


def _ceilings() -> Mapping[str, Ceiling]:
    from tritmark.kernels.cuda.measure.ceilings import ceilings

    return ceilings()


def _adopt(described: Described) -> tuple[Variant, ...]:
    from tritmark.kernels.cuda.launch.adopt import adopt

    return adopt(described, CAPABILITIES, compiled=missing() is None)


def _tracing() -> AccessTracing:
    def trace(op: Op, variant: Variant) -> KernelAccesses:
        from tritmark.kernels.cuda.access import traced as access

        return access.kernel_accesses(DEVICE, op, variant)

    def missing() -> str | None:
        from tritmark.kernels.cuda.access import traced as access

        return access.missing()

    def environment() -> Mapping[str, str]:
        from tritmark.kernels.cuda.access import traced as access

        return access.environment()

    return AccessTracing(missing=missing, environment=environment, trace=trace)


DEVICE = Device(
    type=DEVICE_TYPE,
    summary="an NVIDIA GPU, through PyCUDA",
    features=features,
    clock=_clock,
    plain_clock=_plain_clock,
    ceilings=_ceilings,
    cores=lambda: 1,
    forced=forced,
    code_hash=code_hash,
    compiler=compiler,
    missing=missing,
    simulated=simulated,
    tracing=_tracing(),
    losing=lambda launch: {SELECT: "simulator", "TRITMARK_SIMULATOR_FAILS": f"0@{launch}"},
    memory=_memory,
    transfers=lambda: cuda_context().transfers,
    proof=proof,
    stats=stats,
    memory_problems=memory_problems,
    adopt=_adopt,
    identity=identity,
    source_hash=source_hash,
    numbering=Numbering(count=gpu_count, title=_title, at=on_gpu, alone=alone),
)
