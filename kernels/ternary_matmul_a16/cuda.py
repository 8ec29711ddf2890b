"""The CUDA variants of ternary_matmul_a16, with row16 weights, and the choice of the instance for a shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from math import inf
from typing import ClassVar

import numpy as np

from tritmark.harness.machine.gpu import DeviceInfo
from tritmark.harness.spec import Axes, KernelKey, MaxSize, MinSize, Tier
from tritmark.kernels.cuda.device_type import DEVICE
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch.launch import Call, Steps, variant
from tritmark.kernels.cuda.launch.resources import REGISTERS_PER_BLOCK
from tritmark.kernels.cuda.launch.tuning import instance_name
from tritmark.kernels.cuda.tiles.mma_tiles import MMA_SHARED, MmaTiles
from tritmark.kernels.cuda.tiles.product import WARP, constant, tiles_of
from tritmark.kernels.cuda.tiles.wgmma_tiles import WGMMA_SHARED, WgmmaTiles
from tritmark.kernels.ternary_matmul_a16.spec import DTYPES, MAX_K, NAMES

FORMAT = "row16"
KINDS = {"float32": 1, "bfloat16": 2, "float16": 3}
"""The kernels' numbers of output dtypes."""
INPUTS = {"bfloat16": "8", "float16": "16"}
"""The macro INPUT of the kernels for each dtype of the activations."""
MAX_THREADS = 2048
"""Threads of a multiprocessor, at most."""


@dataclass(frozen=True, slots=True)
class A16Gemv:
    """An instance of gemv.cu, which documents the macros, and its time on an H200 in us."""

    rows8: int
    groups: int
    threads: int
    registers: int
    """Registers of a thread, as the compiler assigns them."""
    costs: tuple[float, float, float]
    """Costs of a launch; of each consecutive tile of a block; of the 64 weights of a row that each lane of a
    multiprocessor has."""

    @property
    def tile(self) -> tuple[int, int]:
        """Rows of activations, at most, and of weights of a block."""
        return 8 * self.groups, 8 * self.rows8

    def passes(self, K: int) -> int:
        """Passes of the warps of a block over K."""
        return -(-K // (256 * (self.threads // WARP)))

    def block(self, K: int) -> int:
        """Threads of a block: the fewest that do not need more passes."""
        return WARP * -(-K // (256 * self.passes(K)))

    def shared(self, M: int, K: int) -> int:
        """Bytes of dynamic shared memory."""
        warps, rows = self.block(K) // WARP, min(M, self.tile[0])
        return warps * rows * (512 * self.passes(K) + 64 * self.rows8)

    def resident(self, M: int, K: int) -> int:
        """Resident blocks of a multiprocessor; 0 if none fits."""
        if self.tile[0] < M or self.shared(M, K) > WGMMA_SHARED:
            return 0
        threads = self.block(K)
        fit = REGISTERS_PER_BLOCK // (threads * (-(-self.registers // 8) * 8))
        return min(fit, MAX_THREADS // threads, WGMMA_SHARED // (self.shared(M, K) + 1024))

    def grid(self, M: int, N: int, K: int, sms: int) -> int:
        """Blocks: as many as are resident; each loads a tile while it multiplies the previous one."""
        return min(tiles_of(self.tile, M, N), sms * max(1, self.resident(M, K)))

    def predicted_us(self, M: int, N: int, K: int, sms: int) -> float:
        """Time of a launch on a device with that many multiprocessors."""
        if not self.resident(M, K):
            return inf
        launch, turn, work = self.costs
        tiles = tiles_of(self.tile, M, N)
        turns = -(-tiles // (sms * self.resident(M, K))) * self.passes(K)
        return launch + turns * turn + -(-tiles // sms) * self.rows8 * K / 2560 * work


@dataclass(frozen=True, slots=True)
class A16Mma(MmaTiles):
    """An instance of gemm_mma.cu, which documents the macros, and its time on an H200 in us."""

    waves: ClassVar[int | None] = None
    """Blocks are at most so many times those that are resident."""
    held: int = 1

    def passes(self, K: int) -> int:
        """Passes of the warps of a block over K."""
        return -(-K // (256 * self.steps * (self.threads // WARP)))

    def warps(self, K: int) -> int:
        """Warps of a block: the fewest that do not need more passes."""
        return -(-K // (256 * self.steps * self.passes(K)))

    def block(self, K: int) -> int:
        """Threads of a block."""
        return WARP * self.warps(K)

    def shared(self, M: int, K: int) -> int:
        """Bytes of dynamic shared memory."""
        return self.sums_bytes * self.warps(K)

    def grid(self, M: int, N: int, K: int, sms: int) -> int:
        """Blocks: one for each tile, scheduled by the device."""
        return tiles_of(self.tile, M, N)


@dataclass(frozen=True, slots=True)
class A16Wgmma(WgmmaTiles):
    """An instance of gemm_wgmma.cu, which documents the macros, and its time on an H200 in us."""

    panel_k: ClassVar[int] = 64
    factor_bytes: ClassVar[int] = 0

    @property
    def slices(self) -> int:
        """The macro SLICES: as many as fit into registers beside the sums, at most half of a stage."""
        return min(4 // self.blocks, 2 * self.panels)

    def block(self, K: int) -> int:
        """Threads of a block."""
        return self.threads

    def shared(self, M: int, K: int) -> int:
        """Bytes of dynamic shared memory."""
        return self.shared_bytes

    def grid(self, M: int, N: int, K: int, sms: int) -> int:
        """Blocks of a launch."""
        return self.launched(M, N, K, sms)[0]

    def predicted_us(self, M: int, N: int, K: int, sms: int) -> float:
        """Time of a launch on a device with that many multiprocessors."""
        if self.split > 1 and tiles_of(self.tile, M, N) * self.split > 2 * sms:
            return inf  # each tile has its own blocks
        return WgmmaTiles.predicted_us(self, M, N, K, sms)


# The costs of GEMV and MMA were fitted to 64 shapes on an H200, with overlapping launches and constant weights. The
# other costs were fitted to 102 shapes on an H100 (M 16 to 2048, six N x K) and then adjusted, within a third of each,
# for the best choice: within 0.1 % of the fastest in the mean, at most 2 %. `python suites/performance/gemm_costs.py
# --activations bfloat16 --fit` measures and fits them. Costs affect only the choice: every instance meets the bound.
GEMV = (
    A16Gemv(4, 1, 192, 96, (1.3862, 0.7143, 0.1866)),  # measured only at 13824 x 2560: costs of the next
    A16Gemv(4, 1, 256, 101, (1.3862, 0.7143, 0.1866)),
    A16Gemv(5, 1, 192, 128, (1.5949, 0.6583, 0.2576)),
    A16Gemv(2, 1, 320, 75, (1.4836, 0.4533, 0.2606)),
    A16Gemv(3, 1, 448, 72, (1.1856, 0.6864, 0.3125)),
    A16Gemv(3, 1, 640, 82, (1.4885, 0.4364, 0.3086)),
    A16Gemv(3, 2, 320, 121, (2.0653, 0.0, 0.6412)),
    A16Gemv(4, 2, 448, 120, (2.2062, 0.0, 0.5851)),
)
MMA = (
    A16Mma(4, 2, 384, 123, (1.8536, 2.5077, 0.759, 3.375), steps=2, held=2),
    A16Mma(4, 4, 384, 126, (1.1883, 2.4556, 2.2444, 2.6852)),
)
SAME = (
    A16Wgmma(16, 1, 2, 16, (0.451, 0.451, 0.196, 0.012)),
    A16Wgmma(32, 1, 2, 16, (0.918, 0.918, 0.198, 0.018)),
    A16Wgmma(64, 1, 2, 10, (2.024, 0.172, 0.195, 0.022)),
    A16Wgmma(96, 1, 2, 7, (2.626, 0.000, 0.224, 0.042)),
    A16Wgmma(128, 1, 2, 5, (2.971, 0.000, 0.255, 0.066)),
    A16Wgmma(192, 1, 1, 6, (3.949, 0.000, 0.353, 0.113)),
    A16Wgmma(96, 2, 2, 5, (1.882, 0.000, 0.475, 0.037)),
    A16Wgmma(128, 2, 2, 4, (4.907, 0.000, 0.552, 0.069)),
    A16Wgmma(160, 2, 1, 6, (3.970, 0.170, 0.689, 0.065)),
)
MIXED = replace(SAME[7], costs=(3.720, 0.000, 0.552, 0.072), last=SAME[6])
SPLIT = (
    A16Wgmma(16, 1, 2, 8, (0.590, 3.061, 0.182, 0.000), split=4),
    A16Wgmma(16, 1, 2, 8, (0.474, 2.495, 0.242, 0.000), split=6),
    A16Wgmma(32, 1, 2, 8, (0.000, 3.766, 0.208, 0.006), split=2),
    A16Wgmma(32, 1, 2, 16, (2.012, 2.012, 0.216, 0.000), split=3),
    A16Wgmma(32, 1, 2, 8, (0.722, 3.225, 0.210, 0.000), split=4),
    A16Wgmma(32, 1, 2, 8, (0.000, 3.343, 0.246, 0.000), split=6),
    A16Wgmma(64, 1, 2, 8, (0.000, 5.083, 0.200, 0.029), split=2),
    A16Wgmma(64, 1, 2, 11, (0.875, 3.814, 0.203, 0.011), split=3),
    A16Wgmma(64, 1, 2, 8, (0.644, 4.058, 0.205, 0.004), split=4),
    A16Wgmma(96, 1, 2, 7, (0.455, 5.144, 0.223, 0.045), split=2),
    A16Wgmma(96, 1, 2, 7, (0.737, 4.613, 0.248, 0.000), split=3),
    A16Wgmma(96, 1, 2, 7, (0.000, 5.366, 0.265, 0.000), split=4),
    A16Wgmma(128, 1, 2, 6, (2.022, 4.941, 0.233, 0.071), split=2),
    A16Wgmma(128, 1, 2, 6, (0.000, 6.215, 0.317, 0.000), split=4),
)
WGMMA = (*SAME, MIXED, *SPLIT)
Instance = A16Gemv | A16Mma | A16Wgmma


def _defines(instance: Instance) -> tuple[tuple[str, str], ...]:
    """The macros of an instance; they have the names of its fields."""
    if isinstance(instance, A16Wgmma):
        return (*instance.defines, ("SLICES", str(instance.slices)))
    if isinstance(instance, A16Mma):
        *others, threads = instance.defines
        return (*others, ("HELD", str(instance.held)), threads)
    skipped = {"registers", "costs"}
    return tuple(
        (each.name.upper(), str(getattr(instance, each.name))) for each in fields(instance) if each.name not in skipped
    )


def _kernel(instance: Instance, dtype: str) -> Kernel:
    name, threads = _FILES[type(instance)], instance.block(1 << 20)
    wgmma = isinstance(instance, A16Wgmma)
    return Kernel(
        file=f"ternary_matmul_a16/{name}.cu",
        name=f"gemm_a16_{name.removeprefix('gemm_')}",
        threads=threads,
        registers=168 if wgmma else min(255, REGISTERS_PER_BLOCK // threads // 8 * 8),
        shared=MMA_SHARED if isinstance(instance, A16Mma) else WGMMA_SHARED,
        capability=(9, 0) if wgmma else (8, 0),
        specific=wgmma,
        defines=(("INPUT", INPUTS[dtype]), *_defines(instance)),
        overlaps=True,
    )


_FILES: dict[type[Instance], str] = {A16Gemv: "gemv", A16Mma: "gemm_mma", A16Wgmma: "gemm_wgmma"}
KERNELS = {(instance, dtype): _kernel(instance, dtype) for instance in (*GEMV, *MMA, *WGMMA) for dtype in NAMES}


@lru_cache(maxsize=1024)
def fastest(instances: Sequence[Instance], M: int, N: int, K: int, sms: int) -> Instance:
    """The instance with the least predicted time for that product on a device with that many multiprocessors."""
    return min(instances, key=lambda instance: instance.predicted_us(M, N, K, sms))


def launched(instances: Sequence[Instance], dtype: str, kind: int, call: Call) -> tuple[Step, ...]:
    """The launch of the fastest instance that fits the device's shared memory, from activations of that dtype to
    outputs of that kind."""
    M, N, K = (call.axes[axis] for axis in "MNK")
    fit = tuple(each for each in instances if each.shared(M, K) <= call.info.shared_per_block_optin)
    instance = fastest(fit, M, N, K, call.info.sms)
    return (step(KERNELS[instance, dtype], instance, kind, call),)


def step(kernel: Kernel, instance: Instance, kind: int, call: Call) -> Step:
    """The launch of the kernel of an instance, to outputs of that kind."""
    M, N, K = (call.axes[axis] for axis in "MNK")
    activations, weights, out = call.inputs["activations"], call.inputs["weights"], call.outputs["out"]
    apart = activations.strides[0]
    args: tuple[object, ...] = (
        activations,
        weights,
        out,
        np.int64(apart),
        np.float32(call.inputs["weight_scale"]),
        *(np.int32(each) for each in (M, N, K, kind)),
    )
    if isinstance(instance, A16Wgmma):
        grid, mixed, whole = instance.launched(M, N, K, call.info.sms)
        args = (*instance.maps(activations, apart, weights, out, call.axes), *args, np.int32(mixed), np.int32(whole))
    else:
        grid, args = instance.grid(M, N, K, call.info.sms), (*args, constant(call))
    waves = instance.waves if isinstance(instance, A16Mma) else None
    launch = call.params(kernel, grid, instance.block(K), shared=instance.shared(M, K), waves=waves)
    return Step(kernel=kernel, grid=launch.grid, block=launch.block, args=args, shared=launch.shared)


def by_name(instances: Sequence[Instance], dtype: str, kind: int, axes: Axes, info: DeviceInfo) -> dict[str, Steps]:
    """The instances that take the product, in ascending order of predicted time."""
    M, N, K = (axes[axis] for axis in "MNK")
    fit = [each for each in instances if each.shared(M, K) <= info.shared_per_block_optin]
    predicted = {each: each.predicted_us(M, N, K, info.sms) for each in fit}
    ordered = sorted((each for each in fit if predicted[each] < inf), key=predicted.__getitem__)
    return {instance_name(KERNELS[each, dtype]): partial(launched, (each,), dtype, kind) for each in ordered}


MAKERS: tuple[tuple[str, Tier, str, tuple[Instance, ...], tuple[MinSize, ...]], ...] = (
    (
        "mma",
        Tier.HIGHLY_OPTIMIZED,
        "16-bit tensor cores, each weight decoded once for 8, 16 or 32 rows of activations",
        (*GEMV, *MMA),
        (),
    ),
    (
        "gemm",
        Tier.EXTREMELY_OPTIMIZED,
        "16-bit tensor cores, mma or wgmma, by the predicted time for the shape",
        (*GEMV, *MMA, *WGMMA),
        (MinSize("M", 9),),
    ),
)

VARIANTS = tuple(
    variant(
        KernelKey(DEVICE, name, FORMAT, dtype),
        variant_name,
        tier,
        summary,
        tuple(KERNELS[instance, given] for instance in instances),
        partial(launched, instances, given, KINDS[dtype]),
        constraints=(*constraints, MaxSize("K", MAX_K)),
        alignment=16,
        instances=partial(by_name, instances, given, KINDS[dtype]),
    )
    for given, name in NAMES.items()
    for dtype in DTYPES
    for variant_name, tier, summary, instances, constraints in MAKERS
)
