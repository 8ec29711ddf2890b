"""The CUDA variants of ternary_matmul with a float16 scale for each group of weights: row16_g32 to row16_g256."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import ClassVar

import numpy as np

from tritmark.harness.machine.gpu import DeviceInfo
from tritmark.harness.spec import Axes, Constraint, KernelKey, MaxSize, MinSize, MultipleOf, Tier, Variant
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch import DEVICE, Call, variant
from tritmark.kernels.cuda.launch.resources import REGISTERS_PER_BLOCK
from tritmark.kernels.cuda.launch.tuning import ByName, Steps, instance_name
from tritmark.kernels.cuda.tiles.grouped_tiles import balanced_warps, mma_defines, scales_bytes, warp_bytes
from tritmark.kernels.cuda.tiles.mma_tiles import MMA_SHARED, MmaTiles
from tritmark.kernels.cuda.tiles.product import WARP, constant, tiles_of
from tritmark.kernels.cuda.tiles.wgmma_tiles import WGMMA_SHARED, WgmmaTiles
from tritmark.kernels.formats.row16_grouped import FORMATS as ROW16_GROUPED
from tritmark.kernels.ternary_matmul.cuda_arguments import KINDS, SHARED, activation_row_bytes, arrays, scalars
from tritmark.kernels.ternary_matmul.spec import MAX_K, OP, dtypes

FORMATS = {form.name: form.group for form in ROW16_GROUPED}
"""Weights of a group; K is a multiple of it."""
GEMV_M = 8
"""The most rows of activations of the variant gemv."""


# --- one row of activations
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupedRows:
    """The macros of an instance of grouped_rows.cu, which documents them."""

    group: int
    seg: int
    steps: int
    threads: int = 512

    @property
    def tile(self) -> int:
        """Rows of weights of a warp."""
        return 16 // self.seg

    def split(self, K: int) -> int:
        """Warps that share the K of a row."""
        return -(-K // (256 * self.seg * self.steps))

    def tiles(self, K: int) -> int:
        """Tiles of a block: as many as make 4 warps."""
        return max(1, 4 // self.split(K))

    def shared(self, K: int) -> int:
        """Bytes of dynamic shared memory: activations, sums of the warps."""
        return self.split(K) * (256 * self.seg * self.steps + 8 * self.tiles(K) * self.tile)

    def takes(self, K: int) -> bool:
        """Whether a block's threads and shared memory suffice."""
        return WARP * self.split(K) <= self.threads and self.shared(K) <= SHARED


MOST_PADDING = 1.15
"""How many times the least padded K an instance may take."""


def rows_instances(group: int) -> tuple[GroupedRows, ...]:
    """The instances of a size of groups, those with more weights of a warp first."""
    return tuple(GroupedRows(group, 2, steps) for steps in (5, 4, 2, 1))


def rows_for(group: int, K: int) -> GroupedRows | None:
    """The instance for that product: of those that pad K little, the one with the most weights in flight in a warp,
    which was the fastest on an H200. None if no instance takes the product."""
    found = [each for each in rows_instances(group) if each.takes(K)]
    padded = {each: each.split(K) * each.steps for each in found}
    found = [each for each in found if padded[each] <= MOST_PADDING * min(padded.values())]
    return found[0] if found else None


# --- more rows, mma
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupedMma(MmaTiles):
    """An instance of grouped_mma.cu, which documents the macros, and its time on an H200 in us."""

    group: int = 0
    stages: int = 2

    @property
    def defines(self) -> tuple[tuple[str, str], ...]:
        """The macros."""
        return mma_defines(self.group, self.rows8, self.groups, self.stages, self.threads)

    @property
    def warp_bytes(self) -> int:
        """Bytes of shared memory of a warp: its ring and its sums."""
        return warp_bytes(self.group, self.rows8, self.groups, self.stages)

    def warps(self, K: int) -> int:
        """Warps of a block, all with the same number of steps or one less."""
        return balanced_warps(K, self.threads, MMA_SHARED - 64 * self.groups, self.warp_bytes)

    def shared(self, K: int) -> int:
        """Bytes of dynamic shared memory."""
        return 64 * self.groups + self.warp_bytes * self.warps(K)


MMA_COSTS = {
    32: (
        (0.862, 0.851, 0.415, 0.683),
        (1.204, 0.662, 0.491, 1.339),
        (1.502, 1.38, 0.0, 1.7),
        (0.297, 1.599, 1.587, 0.773),
        (0.0, 2.661, 1.577, 2.571),
    ),
    64: (
        (0.999, 0.479, 0.45, 0.53),
        (0.317, 0.861, 1.186, 0.4),
        (1.22, 0.896, 0.927, 0.858),
        (0.557, 0.868, 1.174, 0.672),
        (0.383, 1.186, 1.975, 0.865),
    ),
    128: (
        (1.059, 0.46, 0.375, 0.531),
        (0.442, 0.804, 0.993, 0.418),
        (0.665, 0.829, 0.869, 0.37),
        (0.626, 0.803, 1.041, 0.662),
        (0.392, 1.01, 1.85, 0.577),
    ),
    256: (
        (0.894, 0.664, 0.229, 0.532),
        (0.57, 0.82, 0.684, 0.537),
        (0.285, 1.766, 0.11, 0.478),
        (0.335, 1.582, 0.267, 0.992),
        (0.0, 2.613, 0.0, 1.643),
    ),
}
"""The costs of each instance (MmaTiles.costs), by the size of groups: fitted to times of
`suites/performance/grouped_products.py --every` on an H200. They affect only the choice."""


def mma_instances(group: int) -> tuple[GroupedMma, ...]:
    """The instances of a size of groups."""
    table = ((2, 1, 640, 70), (4, 1, 640, 78), (2, 2, 512, 96), (4, 2, 384, 134), (4, 4, 384, 168))
    return tuple(GroupedMma(*macros, costs, group=group) for macros, costs in zip(table, MMA_COSTS[group], strict=True))


# --- many rows, wgmma
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupedWgmma(WgmmaTiles):
    """An instance of grouped_wgmma.cu, which documents the macros, and its time on an H200 in us."""

    group: int = 0

    panel_k: ClassVar[int] = 128
    factor_bytes: ClassVar[int] = 8

    @property
    def defines(self) -> tuple[tuple[str, str], ...]:
        """The macros."""
        return (("GROUP", str(self.group)), *WgmmaTiles.defines.__get__(self))

    @property
    def shared_bytes(self) -> int:
        """Bytes of dynamic shared memory: also the scales of each stage."""
        return int(WgmmaTiles.shared_bytes.__get__(self)) + scales_bytes(self, self.group)


WGMMA_COSTS = {
    32: (
        (1.687, 0.359, 0.49, 0.003),
        (2.152, 0.313, 0.574, 0.011),
        (2.433, 1.518, 0.706, 0.04),
        (2.912, 2.178, 0.897, 0.037),
        (3.289, 2.941, 1.089, 0.043),
        (2.556, 4.899, 1.248, 0.077),
        (0.165, 3.329, 0.619, 0.012),
        (0.784, 4.919, 0.649, 0.15),
        (0.236, 4.246, 0.717, 0.108),
        (0.141, 7.709, 1.102, 0.086),
    ),
    64: (
        (2.047, 0.119, 0.427, 0.018),
        (2.406, 0.018, 0.469, 0.023),
        (2.786, 0.42, 0.569, 0.009),
        (2.703, 1.734, 0.652, 0.001),
        (3.137, 1.939, 0.785, 0.001),
        (2.492, 3.189, 0.931, 0.0),
        (0.0, 3.466, 0.478, 0.0),
        (0.0, 4.55, 0.575, 0.022),
        (0.0, 4.145, 0.578, 0.011),
        (0.0, 6.302, 0.788, 0.028),
    ),
    128: (
        (1.441, 0.835, 0.238, 0.01),
        (1.56, 1.14, 0.26, 0.01),
        (1.84, 1.7, 0.33, 0.009),
        (1.997, 2.554, 0.382, 0.03),
        (2.574, 3.255, 0.465, 0.03),
        (2.611, 4.025, 0.537, 0.04),
        (0.0, 3.482, 0.285, 0.0),
        (0.0, 4.59, 0.333, 0.04),
        (0.0, 4.336, 0.347, 0.007),
        (0.0, 7.017, 0.487, 0.064),
    ),
    256: (
        (1.468, 0.566, 0.208, 0.02),
        (1.329, 1.332, 0.208, 0.026),
        (1.548, 1.923, 0.258, 0.03),
        (1.95, 2.668, 0.287, 0.044),
        (2.238, 3.688, 0.325, 0.051),
        (0.0, 5.423, 0.466, 0.024),
        (0.267, 2.988, 0.256, 0.043),
        (0.781, 4.705, 0.108, 0.184),
        (2.781, 1.045, 0.026, 0.56),
        (0.0, 8.077, 0.175, 0.179),
    ),
}
"""As MMA_COSTS."""


def wgmma_instances(group: int) -> tuple[GroupedWgmma, ...]:
    """The instances of a size of groups."""
    # Columns, stages of 256 k, and blocks that share K. A stage has two loads, of half of a group of 256 each.
    table = (
        *((16, 12, 1), (32, 10, 1), (64, 7, 1), (96, 5, 1), (128, 4, 1), (160, 3, 1)),
        *((32, 10, 4), (64, 8, 2), (64, 8, 4), (128, 5, 2)),
    )
    panels = 2 if group >= 128 else 1
    return tuple(
        GroupedWgmma(columns, 1, panels, 2 * stages // panels, costs, split=split, group=group)
        for (columns, stages, split), costs in zip(table, WGMMA_COSTS[group], strict=True)
    )


Instance = GroupedRows | GroupedMma | GroupedWgmma


def kernel_of(instance: Instance) -> Kernel:
    """Its kernel."""
    if isinstance(instance, GroupedRows):
        macros = {"GROUP": instance.group, "SEG": instance.seg, "STEPS": instance.steps, "THREADS": instance.threads}
        return Kernel(
            file="ternary_matmul/grouped_rows.cu",
            name="gemm_grouped_rows",
            threads=instance.threads,
            registers=REGISTERS_PER_BLOCK // instance.threads // 8 * 8,
            shared=SHARED,
            local=32,
            capability=(8, 0),
            defines=tuple((name, str(value)) for name, value in macros.items()),
            overlaps=True,
        )
    if isinstance(instance, GroupedWgmma):
        return Kernel(
            file="ternary_matmul/grouped_wgmma.cu",
            name="gemm_grouped_wgmma",
            threads=instance.threads,
            registers=168,
            shared=WGMMA_SHARED,
            local=32,
            capability=(9, 0),
            specific=True,
            defines=instance.defines,
            overlaps=True,
        )
    return Kernel(
        file="ternary_matmul/grouped_mma.cu",
        name="gemm_grouped_mma",
        # A few values are spilled with 32 rows of activations.
        local=64,
        threads=instance.threads,
        registers=REGISTERS_PER_BLOCK // instance.threads // 8 * 8,
        shared=MMA_SHARED,
        capability=(8, 0),
        defines=instance.defines,
        overlaps=True,
    )


ROWS = {group: rows_instances(group) for group in FORMATS.values()}
MMA = {group: mma_instances(group) for group in FORMATS.values()}
WGMMA = {group: wgmma_instances(group) for group in FORMATS.values()}
KERNELS = {each: kernel_of(each) for table in (ROWS, MMA, WGMMA) for instances in table.values() for each in instances}


@lru_cache(maxsize=1024)
def fastest(
    instances: Sequence[GroupedMma | GroupedWgmma], M: int, N: int, K: int, sms: int
) -> GroupedMma | GroupedWgmma:
    """The instance with the least predicted time for that product on a device with that many multiprocessors."""
    return min(instances, key=lambda instance: instance.predicted_us(M, N, K, sms))


def _launch(instance: Instance, kind: int, call: Call) -> tuple[Step, ...]:
    M, N, K = (call.axes[axis] for axis in "MNK")
    kernel = KERNELS[instance]
    if isinstance(instance, GroupedRows):
        tiles, split = instance.tiles(K), instance.split(K)
        blocks = -(-N // (tiles * instance.tile))
        launch = call.params(kernel, blocks, WARP * tiles * split, shared=instance.shared(K))
        weight_scale, _, *numbers = scalars(call, kind)
        args: tuple[object, ...] = (*arrays(call), weight_scale, *numbers, np.int32(split), constant(call))
    elif isinstance(instance, GroupedWgmma):
        launch = call.params(kernel, instance.launched(M, N, K, call.info.sms)[0], shared=instance.shared_bytes)
        (activations, weights, _, out), apart = arrays(call), activation_row_bytes(call)
        maps = instance.maps(activations, int(apart), weights, out, call.axes)
        args = (*maps, *arrays(call), apart, *scalars(call, kind))
    else:
        blocks = tiles_of(instance.tile, M, N)
        # Blocks loop over tiles, so that the next one's weights are loaded while this one's are multiplied.
        launch = call.params(kernel, blocks, WARP * instance.warps(K), shared=instance.shared(K), waves=1)
        args = (*arrays(call), activation_row_bytes(call), *scalars(call, kind), constant(call))
    return (Step(kernel=kernel, grid=launch.grid, block=launch.block, args=args, shared=launch.shared),)


def _products(name: str, group: int) -> tuple[GroupedMma | GroupedWgmma, ...]:
    """The instances for several rows of activations of a variant."""
    return (*MMA[group], *WGMMA[group]) if name == "gemm" else MMA[group]


def chosen(name: str, group: int, axes: Axes, sms: int) -> Instance:
    """The instance that a variant launches for those sizes on a device with that many multiprocessors."""
    M, N, K = (axes[axis] for axis in "MNK")
    rows = rows_for(group, K) if name == "gemv" and M == 1 else None
    return rows or fastest(_products(name, group), M, N, K, sms)


def _steps(name: str, group: int, kind: int, call: Call) -> tuple[Step, ...]:
    return _launch(chosen(name, group, call.axes, call.info.sms), kind, call)


def _by_name(name: str, group: int, kind: int, axes: Axes, info: DeviceInfo) -> dict[str, Steps]:
    """The instances that take the product, the built-in choice first."""
    first = chosen(name, group, axes, info.sms)
    rows = ROWS[group] if name == "gemv" and axes["M"] == 1 else ()
    found: list[Instance] = [first, *(each for each in rows if each.takes(axes["K"])), *_products(name, group)]
    return {instance_name(KERNELS[each]): partial(_launch, each, kind) for each in dict.fromkeys(found)}


MAKERS: tuple[tuple[str, Tier, str, tuple[Constraint, ...]], ...] = (
    (
        "mma",
        Tier.HIGHLY_OPTIMIZED,
        "int8 tensor cores, each weight decoded once for up to 32 rows of activations",
        (MinSize("M", 2),),
    ),
    (
        "gemv",
        Tier.EXTREMELY_OPTIMIZED,
        "each weight read once, int8 tensor cores",
        (MaxSize("M", GEMV_M),),
    ),
    (
        "gemm",
        Tier.EXTREMELY_OPTIMIZED,
        "int8 tensor cores, mma or wgmma, by the predicted time for the shape",
        (MinSize("M", GEMV_M + 1),),
    ),
)


def _variants(format: str, group: int) -> Iterator[Variant]:
    tables = {"mma": (MMA,), "gemv": (ROWS, MMA), "gemm": (MMA, WGMMA)}
    for dtype in dtypes(format, DEVICE):
        for rank, (name, tier, summary, constraints) in enumerate(MAKERS):
            by_name: ByName = partial(_by_name, name, group, KINDS[dtype])
            yield variant(
                KernelKey(DEVICE, OP.name, format, dtype),
                name,
                tier,
                summary,
                tuple(KERNELS[each] for table in tables[name] for each in table[group]),
                partial(_steps, name, group, KINDS[dtype]),
                constraints=(MultipleOf("K", group), *constraints, MaxSize("K", MAX_K)),
                alignment=16,
                rank=rank,
                instances=by_name,
            )


VARIANTS = tuple(each for format, group in FORMATS.items() for each in _variants(format, group))
