"""The CUDA variants of ternary_matmul_a16 with a float16 scale for each group of weights: row16_g32 to row16_g256."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from math import inf
from typing import ClassVar

from tritmark.harness.machine.gpu import DeviceInfo
from tritmark.harness.spec import Axes, Constraint, KernelKey, MaxSize, MinSize, MultipleOf, Tier, Variant
from tritmark.kernels.cuda.device_type import DEVICE
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch.launch import Call, Steps, variant
from tritmark.kernels.cuda.launch.resources import REGISTERS_PER_BLOCK
from tritmark.kernels.cuda.launch.tuning import instance_name
from tritmark.kernels.cuda.tiles.grouped_tiles import balanced_warps, mma_defines, scales_bytes, warp_bytes
from tritmark.kernels.cuda.tiles.mma_tiles import MMA_SHARED
from tritmark.kernels.cuda.tiles.wgmma_tiles import WGMMA_SHARED, WgmmaTiles
from tritmark.kernels.formats.row16_grouped import FORMATS as ROW16_GROUPED
from tritmark.kernels.ternary_matmul_a16.cuda import INPUTS, KINDS, A16Mma, A16Wgmma, step
from tritmark.kernels.ternary_matmul_a16.spec import DTYPES, MAX_K, NAMES

FORMATS = {form.name: form.group for form in ROW16_GROUPED}
"""Weights of a group; K is a multiple of it."""


@dataclass(frozen=True, slots=True)
class A16GroupedMma(A16Mma):
    """An instance of grouped_mma.cu, which documents the macros, and its time on an H200 in us. Its blocks loop over
    tiles, so that the next one's weights are loaded while this one's are multiplied."""

    waves: ClassVar[int | None] = 1

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
        return balanced_warps(K, self.threads, MMA_SHARED, self.warp_bytes)

    def passes(self, K: int) -> int:
        """Passes of the warps of a block over K."""
        return -(-K // (256 * self.warps(K)))

    def shared(self, M: int, K: int) -> int:
        """Bytes of dynamic shared memory."""
        return self.warp_bytes * self.warps(K)


@dataclass(frozen=True, slots=True)
class A16GroupedWgmma(A16Wgmma):
    """An instance of grouped_wgmma.cu, which documents the macros, and its time on an H200 in us."""

    group: int = 0

    @property
    def defines(self) -> tuple[tuple[str, str], ...]:
        """The macros."""
        return (("GROUP", str(self.group)), *WgmmaTiles.defines.__get__(self))

    @property
    def shared_bytes(self) -> int:
        """Bytes of dynamic shared memory: also the scales of each stage."""
        return int(WgmmaTiles.shared_bytes.__get__(self)) + scales_bytes(self, self.group)


MMA_COSTS = {
    32: (
        (0.853, 0.646, 1.548, 0.43),
        (0.643, 0.553, 2.019, 0.368),
        (3.427, 0.0, 0.0, 2.917),
        (1.084, 0.617, 1.939, 1.307),
        (0.784, 1.003, 2.973, 2.39),
        (5.201, 0.0, 0.0, 10.761),
    ),
    64: (
        (0.866, 0.479, 1.393, 0.391),
        (0.621, 0.51, 1.595, 0.569),
        (2.482, 0.031, 0.0, 2.716),
        (0.878, 0.452, 1.81, 1.293),
        (0.629, 1.12, 2.44, 2.284),
        (5.075, 0.0, 0.0, 10.323),
    ),
    128: (
        (0.888, 0.407, 1.24, 0.484),
        (0.637, 0.465, 1.604, 0.521),
        (2.438, 0.034, 0.0, 2.687),
        (0.859, 0.473, 1.701, 1.295),
        (0.719, 1.102, 2.299, 2.313),
        (4.693, 0.0, 0.0, 10.109),
    ),
    256: (
        (0.761, 0.463, 1.453, 0.338),
        (0.671, 0.454, 1.523, 0.583),
        (2.429, 0.022, 0.0, 2.647),
        (1.158, 0.128, 1.413, 1.748),
        (0.639, 1.152, 2.276, 2.209),
        (4.717, 0.0, 0.0, 9.911),
    ),
}
"""The costs of each instance (MmaTiles.costs), by the size of groups: fitted to times of
`suites/performance/grouped_products.py --activations bfloat16 --every` on an H200. They affect only the choice."""


def mma_instances(group: int) -> tuple[A16GroupedMma, ...]:
    """The instances of a size of groups."""
    table = ((2, 1, 384, 80), (4, 1, 384, 162), (2, 2, 512, 98), (4, 2, 384, 150), (4, 4, 384, 168), (2, 8, 256, 198))
    return tuple(
        A16GroupedMma(*macros, costs, group=group) for macros, costs in zip(table, MMA_COSTS[group], strict=True)
    )


WGMMA_COSTS = {
    32: (
        (1.998, 0.151, 0.266, 0.006),
        (1.948, 0.138, 0.318, 0.008),
        (2.303, 0.373, 0.358, 0.015),
        (2.366, 0.528, 0.449, 0.013),
        (2.87, 0.508, 0.526, 0.025),
        (3.483, 0.576, 0.607, 0.032),
        (0.072, 3.301, 0.324, 0.0),
        (0.0, 4.154, 0.374, 0.023),
        (0.0, 4.031, 0.391, 0.0),
        (0.128, 5.627, 0.537, 0.062),
    ),
    64: (
        (1.634, 0.149, 0.282, 0.002),
        (1.876, 0.053, 0.291, 0.007),
        (2.135, 0.193, 0.312, 0.011),
        (2.494, 0.511, 0.36, 0.015),
        (2.265, 0.482, 0.43, 0.019),
        (3.034, 0.773, 0.471, 0.023),
        (0.109, 2.939, 0.318, 0.0),
        (0.0, 4.015, 0.317, 0.02),
        (0.0, 3.745, 0.338, 0.0),
        (0.0, 5.728, 0.409, 0.097),
    ),
    128: (
        (1.654, 0.284, 0.224, 0.005),
        (1.83, 0.311, 0.232, 0.009),
        (2.26, 0.438, 0.232, 0.016),
        (2.352, 0.254, 0.31, 0.017),
        (2.284, 0.0, 0.359, 0.02),
        (2.658, 0.62, 0.427, 0.023),
        (0.152, 3.127, 0.242, 0.0),
        (0.0, 4.356, 0.221, 0.029),
        (0.0, 4.002, 0.253, 0.0),
        (0.0, 5.619, 0.334, 0.115),
    ),
    256: (
        (1.776, 0.298, 0.173, 0.013),
        (1.987, 0.145, 0.169, 0.013),
        (2.183, 0.425, 0.213, 0.015),
        (2.447, 0.33, 0.264, 0.024),
        (1.001, 0.328, 0.329, 0.041),
        (0.552, 1.946, 0.388, 0.013),
        (0.239, 3.093, 0.184, 0.0),
        (0.0, 4.215, 0.202, 0.025),
        (0.0, 3.911, 0.235, 0.0),
        (0.0, 6.272, 0.256, 0.127),
    ),
}
"""As MMA_COSTS, of WgmmaTiles.costs."""


def wgmma_instances(group: int) -> tuple[A16GroupedWgmma, ...]:
    """The instances of a size of groups; a stage has whole groups."""
    panels = 4 if group == 256 else 2
    table = (
        *((16, 16, 1), (32, 16, 1), (64, 8, 1), (96, 6, 1), (128, 5, 1), (160, 4, 1)),
        *((32, 8, 4), (64, 8, 2), (64, 8, 4), (128, 4, 2)),
    )
    return tuple(
        A16GroupedWgmma(columns, 1, panels, 2 * stages // panels, costs, split=split, group=group)
        for (columns, stages, split), costs in zip(table, WGMMA_COSTS[group], strict=True)
    )


Instance = A16GroupedMma | A16GroupedWgmma
MMA = {group: mma_instances(group) for group in FORMATS.values()}
WGMMA = {group: wgmma_instances(group) for group in FORMATS.values()}


def kernel_of(instance: Instance, dtype: str) -> Kernel:
    """Its kernel for activations of that dtype."""
    wgmma = isinstance(instance, A16GroupedWgmma)
    name = "grouped_wgmma" if wgmma else "grouped_mma"
    return Kernel(
        file=f"ternary_matmul_a16/{name}.cu",
        name=f"gemm_a16_{name}",
        threads=instance.threads,
        registers=168 if wgmma else min(255, REGISTERS_PER_BLOCK // instance.threads // 8 * 8),
        shared=WGMMA_SHARED if wgmma else MMA_SHARED,
        local=0 if wgmma else 32,
        capability=(9, 0) if wgmma else (8, 0),
        specific=wgmma,
        defines=(("INPUT", INPUTS[dtype]), *instance.defines),
        overlaps=True,
    )


KERNELS = {
    (each, dtype): kernel_of(each, dtype)
    for table in (MMA, WGMMA)
    for instances in table.values()
    for each in instances
    for dtype in NAMES
}


@lru_cache(maxsize=1024)
def ordered(name: str, group: int, M: int, N: int, K: int, sms: int) -> tuple[Instance, ...]:
    """The instances of a variant that take the product, in ascending order of predicted time on a device with that many
    multiprocessors."""
    instances: tuple[Instance, ...] = (*MMA[group], *WGMMA[group]) if name == "gemm" else MMA[group]
    predicted = {each: each.predicted_us(M, N, K, sms) for each in instances}
    return tuple(sorted((each for each in instances if predicted[each] < inf), key=predicted.__getitem__))


def chosen(name: str, group: int, axes: Axes, info: DeviceInfo) -> list[Instance]:
    """The instances of a variant for that product that fit the device's shared memory, the fastest first."""
    M, N, K = (axes[axis] for axis in "MNK")
    found = ordered(name, group, M, N, K, info.sms)
    return [each for each in found if each.shared(M, K) <= info.shared_per_block_optin]


def _launch(instance: Instance, dtype: str, kind: int, call: Call) -> tuple[Step, ...]:
    return (step(KERNELS[instance, dtype], instance, kind, call),)


def _steps(name: str, group: int, dtype: str, kind: int, call: Call) -> tuple[Step, ...]:
    return _launch(chosen(name, group, call.axes, call.info)[0], dtype, kind, call)


def _by_name(name: str, group: int, dtype: str, kind: int, axes: Axes, info: DeviceInfo) -> dict[str, Steps]:
    """The instances that take the product, in ascending order of predicted time."""
    found = chosen(name, group, axes, info)
    return {instance_name(KERNELS[each, dtype]): partial(_launch, each, dtype, kind) for each in found}


MAKERS: tuple[tuple[str, Tier, str, tuple[Constraint, ...]], ...] = (
    (
        "mma",
        Tier.HIGHLY_OPTIMIZED,
        "16-bit tensor cores, each weight decoded once for 8 to 64 rows of activations",
        (),
    ),
    (
        "gemm",
        Tier.EXTREMELY_OPTIMIZED,
        "16-bit tensor cores, mma or wgmma, by the predicted time for the shape",
        (MinSize("M", 9),),
    ),
)


def _variants(format: str, group: int) -> Iterator[Variant]:
    tables: dict[str, tuple[Instance, ...]] = {"mma": MMA[group], "gemm": (*MMA[group], *WGMMA[group])}
    for given, op in NAMES.items():
        for dtype in DTYPES:
            for name, tier, summary, constraints in MAKERS:
                yield variant(
                    KernelKey(DEVICE, op, format, dtype),
                    name,
                    tier,
                    summary,
                    tuple(KERNELS[each, given] for each in tables[name]),
                    partial(_steps, name, group, given, KINDS[dtype]),
                    constraints=(MultipleOf("K", group), *constraints, MaxSize("K", MAX_K)),
                    alignment=16,
                    instances=partial(_by_name, name, group, given, KINDS[dtype]),
                )


VARIANTS = tuple(each for format, group in FORMATS.items() for each in _variants(format, group))
