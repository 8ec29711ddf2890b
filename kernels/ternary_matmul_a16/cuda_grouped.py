"""The CUDA variants of ternary_matmul_a16 with a float16 scale for each group of weights: row16_g32 to row16_g256."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from math import inf
from typing import ClassVar

from tritmark.harness.machine.gpu import DeviceInfo
from tritmark.harness.spec import Axes, Constraint, KernelKey, MaxSize, MinSize, MultipleOf, Tier, Variant
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch.launch import DEVICE, Call, Steps, variant
from tritmark.kernels.cuda.launch.resources import REGISTERS_PER_BLOCK
from tritmark.kernels.cuda.launch.tuning import instance_name
from tritmark.kernels.cuda.tiles.mma_tiles import MMA_SHARED
from tritmark.kernels.cuda.tiles.product import WARP
from tritmark.kernels.cuda.tiles.wgmma_tiles import WGMMA_SHARED, WgmmaTiles
from tritmark.kernels.formats.row16_grouped import FORMATS as ROW16_GROUPED
from tritmark.kernels.ternary_matmul_a16.cuda import INPUTS, KINDS, A16Mma, A16Wgmma, step
from tritmark.kernels.ternary_matmul_a16.spec import DTYPES, MAX_K, NAMES

FORMATS = {form.name: form.group for form in ROW16_GROUPED}
"""Weights of a group; K is a multiple of it."""


MOST_WARPS = 12
"""Warps of a block that share K: more only add sums."""


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
        macros = {"GROUP": self.group, "ROWS8": self.rows8, "EIGHTS": self.groups, "STAGES": self.stages}
        return tuple((name, str(value)) for name, value in (macros | {"THREADS": self.threads}).items())

    @property
    def warp_bytes(self) -> int:
        """Bytes of shared memory of a warp: its ring and its sums."""
        tile = 8 * self.rows8
        return self.stages * tile * (64 + 2 * 256 // self.group) + 4 * 8 * self.groups * (tile + 4)

    def warps(self, K: int) -> int:
        """Warps of a block, all with the same number of steps or one less."""
        most = min(MOST_WARPS, self.threads // WARP, MMA_SHARED // self.warp_bytes)
        steps = -(-K // 256)
        return -(-steps // -(-steps // most))

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
        scales = self.stages * self.panels * self.panel_k // self.group * 2 * self.tile[1]
        return int(WgmmaTiles.shared_bytes.__get__(self)) + scales


def mma_instances(group: int) -> tuple[A16GroupedMma, ...]:
    """The instances of a size of groups. Their costs are those of gemm_mma.cu with tiles alike."""
    return (
        A16GroupedMma(2, 1, 384, 80, (1.188, 1.200, 1.000, 2.700), group=group),
        A16GroupedMma(4, 1, 384, 162, (1.188, 1.600, 1.600, 1.800), group=group),
        A16GroupedMma(2, 2, 512, 98, (1.188, 1.400, 1.300, 2.900), group=group),
        A16GroupedMma(4, 2, 384, 150, (1.854, 2.508, 1.000, 3.375), group=group),
        A16GroupedMma(4, 4, 384, 168, (1.188, 2.456, 2.244, 2.685), group=group),
        A16GroupedMma(2, 8, 256, 198, (1.188, 2.456, 2.600, 2.900), group=group),
    )


def wgmma_instances(group: int) -> tuple[A16GroupedWgmma, ...]:
    """The instances of a size of groups; a stage has whole groups. Their costs are those of gemm_wgmma.cu with tiles
    alike."""
    panels = 4 if group == 256 else 2
    table = (
        (16, 16, 1, (0.451, 0.451, 0.196, 0.012)),
        (32, 16, 1, (0.918, 0.918, 0.198, 0.018)),
        (64, 8, 1, (2.024, 0.172, 0.195, 0.022)),
        (96, 6, 1, (2.626, 0.000, 0.224, 0.042)),
        (128, 5, 1, (2.971, 0.000, 0.255, 0.066)),
        (160, 4, 1, (3.500, 0.000, 0.304, 0.090)),
        (32, 8, 4, (0.722, 3.225, 0.210, 0.000)),
        (64, 8, 2, (0.000, 5.083, 0.200, 0.029)),
        (64, 8, 4, (0.644, 4.058, 0.205, 0.004)),
        (128, 4, 2, (2.022, 4.941, 0.233, 0.071)),
    )
    return tuple(
        A16GroupedWgmma(columns, 1, panels, 2 * stages // panels, costs, split=split, group=group)
        for columns, stages, split, costs in table
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
