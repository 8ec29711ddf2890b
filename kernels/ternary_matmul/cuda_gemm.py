"""Products on CUDA for more rows of activations than gemv takes, with row16 weights: gemm_mma.cu and gemm_wgmma.cu, the
choice of their instance for a shape, and gemm_align.cu before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import ClassVar

import numpy as np

from tritmark.harness.machine.gpu import DeviceInfo
from tritmark.harness.spec import Axes
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch import Call
from tritmark.kernels.cuda.launch.resources import REGISTERS_PER_BLOCK
from tritmark.kernels.cuda.launch.tuning import Steps, instance_name
from tritmark.kernels.cuda.tiles.mma_tiles import MMA_SHARED, MmaTiles
from tritmark.kernels.cuda.tiles.product import WARP, constant, tiles_of
from tritmark.kernels.cuda.tiles.wgmma_tiles import ALIGNED, WGMMA_SHARED, WgmmaTiles
from tritmark.kernels.ternary_matmul.cuda_arguments import activation_row_bytes, arrays, scalars

MAX_K = (1 << 18) - 1
"""The largest K for which 64 * 128 * K fits the int32 accumulators."""


@dataclass(frozen=True, slots=True)
class GemmMma(MmaTiles):
    """An instance of gemm_mma.cu, which documents the macros, and its time on an H200 in us."""

    def warps(self, K: int) -> int:
        """Warps of a block: at most as many as have something to load, and one for the factors."""
        return min(self.threads // WARP, -(-K // 256))

    def shared(self, K: int) -> int:
        """Bytes of dynamic shared memory."""
        return 64 * self.groups + self.sums_bytes * self.warps(K)


@dataclass(frozen=True, slots=True)
class GemmWgmma(WgmmaTiles):
    """An instance of gemm_wgmma.cu, which documents the macros, and its time on an H200 in us."""

    panel_k: ClassVar[int] = 128
    factor_bytes: ClassVar[int] = 24


# The costs were fitted to times of 144 shapes on an H200 and then adjusted, within a third of each, for the best
# choice: within 0.1 % of the fastest in the mean, at most 5 %. `python suites/performance/gemm_costs.py --fit` measures
# and fits them all. Costs affect only the choice: every instance is exact.
MMA = (
    GemmMma(2, 2, 640, 70, (0.020, 2.304, 0.020, 0.902)),
    GemmMma(3, 2, 640, 90, (0.375, 1.755, 0.462, 1.024)),
    GemmMma(4, 2, 512, 92, (0.174, 1.323, 1.200, 1.243)),
    GemmMma(4, 4, 384, 158, (0.020, 2.665, 1.894, 0.329)),
)
SAME = (
    GemmWgmma(16, 1, 2, 16, (1.252, 0.361, 0.155, 0.028)),
    GemmWgmma(32, 1, 2, 12, (1.520, 0.512, 0.147, 0.036)),
    GemmWgmma(48, 1, 2, 9, (1.625, 0.645, 0.164, 0.042)),
    GemmWgmma(64, 1, 2, 8, (1.839, 0.683, 0.180, 0.041)),
    GemmWgmma(80, 1, 2, 7, (1.990, 0.778, 0.189, 0.048)),
    GemmWgmma(96, 1, 2, 6, (2.216, 0.828, 0.204, 0.051)),
    GemmWgmma(128, 1, 2, 4, (2.716, 0.888, 0.243, 0.071)),
    GemmWgmma(64, 2, 2, 5, (2.552, 0.739, 0.344, 0.064)),
    GemmWgmma(80, 2, 1, 9, (2.727, 1.461, 0.350, 0.055)),
    GemmWgmma(96, 2, 1, 8, (2.868, 1.509, 0.398, 0.057)),
    GemmWgmma(112, 2, 1, 7, (3.025, 1.756, 0.470, 0.048)),
    GemmWgmma(128, 2, 1, 6, (3.217, 2.017, 0.582, 0.020)),
    GemmWgmma(160, 2, 1, 4, (3.285, 2.731, 0.688, 0.045)),
)
# If tiles differ in size, the first ones take 2 % longer than uniform tiles.
MIXED = replace(SAME[11], costs=(3.217, 2.017, 0.594, 0.020), last=SAME[9])
# A second wave of these has all costs again.
SPLIT = (
    GemmWgmma(16, 1, 2, 16, (0.604, 2.170, 0.080, 0.197), split=4),
    GemmWgmma(32, 1, 2, 12, (0.336, 3.024, 0.115, 0.093), split=2),
    GemmWgmma(32, 1, 2, 12, (0.838, 2.721, 0.125, 0.090), split=3),
    GemmWgmma(32, 1, 2, 12, (0.935, 1.886, 0.062, 0.220), split=4),
    GemmWgmma(48, 1, 2, 10, (0.041, 3.737, 0.156, 0.078), split=2),
    GemmWgmma(48, 1, 2, 10, (0.833, 2.672, 0.168, 0.096), split=3),
    GemmWgmma(48, 1, 2, 10, (0.846, 2.811, 0.076, 0.243), split=4),
    GemmWgmma(64, 1, 2, 8, (0.126, 4.237, 0.177, 0.077), split=2),
    GemmWgmma(64, 1, 2, 8, (0.719, 3.477, 0.190, 0.082), split=3),
    GemmWgmma(64, 1, 1, 16, (0.869, 2.930, 0.078, 0.289), split=4),
    GemmWgmma(96, 1, 2, 6, (0.108, 5.479, 0.200, 0.084), split=2),
    GemmWgmma(96, 1, 2, 6, (0.967, 4.072, 0.199, 0.100), split=3),
    GemmWgmma(96, 1, 2, 6, (1.340, 3.611, 0.077, 0.291), split=4),
    GemmWgmma(128, 1, 1, 10, (0.707, 5.666, 0.265, 0.078), split=2),
    GemmWgmma(128, 1, 1, 10, (1.722, 3.704, 0.067, 0.373), split=4),
)
WGMMA = (*SAME, MIXED, *SPLIT)
Instance = GemmMma | GemmWgmma


def _kernel(instance: Instance) -> Kernel:
    if isinstance(instance, GemmMma):
        return Kernel(
            file="ternary_matmul/gemm_mma.cu",
            name="gemm_mma",
            threads=instance.threads,
            registers=REGISTERS_PER_BLOCK // instance.threads // 8 * 8,
            shared=MMA_SHARED,
            capability=(8, 0),
            defines=instance.defines,
            overlaps=True,
        )
    return Kernel(
        file="ternary_matmul/gemm_wgmma.cu",
        name="gemm_wgmma",
        threads=instance.threads,
        registers=168,
        shared=WGMMA_SHARED,
        # float32 outputs are spilled to local memory after the product.
        local=32 if instance.columns * instance.blocks == 256 else 0,
        capability=(9, 0),
        specific=True,
        defines=instance.defines,
        overlaps=True,
    )


KERNELS = {instance: _kernel(instance) for instance in (*MMA, *WGMMA)}
ALIGN = Kernel(
    file="ternary_matmul/gemm_align.cu",
    name="gemm_align",
    threads=256,
    registers=64,
    capability=(8, 0),
    defines=(("THREADS", "256"),),
    overlaps=True,
)


def workspace(axes: Axes) -> int:
    """Bytes for a copy of the activations with aligned rows, if K leaves them unaligned."""
    return axes["M"] * _aligned(axes["K"]) if axes["K"] % ALIGNED else 0


def _aligned(K: int) -> int:
    return -(-K // ALIGNED) * ALIGNED


@lru_cache(maxsize=1024)
def fastest(instances: Sequence[Instance], M: int, N: int, K: int, sms: int) -> Instance:
    """The instance with the least predicted time for that product on a device with that many multiprocessors."""
    return min(instances, key=lambda instance: instance.predicted_us(M, N, K, sms))


def launched(instances: Sequence[Instance], kind: int, call: Call) -> tuple[Step, ...]:
    """The launch of the instance with the least predicted time."""
    axes = call.axes
    return _launch(fastest(instances, axes["M"], axes["N"], axes["K"], call.info.sms), kind, call)


def by_name(instances: Sequence[Instance], kind: int, axes: Axes, info: DeviceInfo) -> dict[str, Steps]:
    """The instances in ascending order of predicted time."""
    sizes = axes["M"], axes["N"], axes["K"], info.sms
    ordered = sorted(instances, key=lambda instance: instance.predicted_us(*sizes))
    return {instance_name(KERNELS[instance]): partial(_launch, instance, kind) for instance in ordered}


def _launch(instance: Instance, kind: int, call: Call) -> tuple[Step, ...]:
    """The launch, after a copy of the activations if K leaves their rows unaligned. Rows that are unaligned only by
    their stride are read directly."""
    M, N, K = call.axes["M"], call.axes["N"], call.axes["K"]
    kernel, mixed, whole = KERNELS[instance], 0, 0
    if isinstance(instance, GemmMma):
        # The device schedules one block per tile.
        shared = instance.shared(K)
        launch = call.params(kernel, tiles_of(instance.tile, M, N), WARP * instance.warps(K), shared=shared)
    else:
        blocks, mixed, whole = instance.launched(M, N, K, call.info.sms)
        launch = call.params(kernel, blocks, shared=instance.shared_bytes)
    (activations, weights, *others), apart = arrays(call), activation_row_bytes(call)
    first: tuple[Step, ...] = ()
    if call.workspace is not None and apart % ALIGNED:
        align = call.params(ALIGN, M)
        copied = (activations, call.workspace, apart, np.int32(M), np.int32(K))
        first = (Step(kernel=ALIGN, grid=align.grid, block=align.block, args=copied),)
        activations, apart = call.workspace, np.int64(_aligned(K))
    args: tuple[object, ...] = (activations, weights, *others, apart, *scalars(call, kind))
    if isinstance(instance, GemmMma):
        args = (*args, constant(call))
    else:
        maps = instance.maps(activations, int(apart), weights, others[-1], call.axes)
        args = (*maps, *args, np.int32(mixed), np.int32(whole))
    return (*first, Step(kernel=kernel, grid=launch.grid, block=launch.block, args=args, shared=launch.shared))
