"""The CUDA variants of ternary_matmul over gpu_int2, the layout of BitNet's own CUDA kernels."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial

import numpy as np

from tritmark.harness.machine.gpu import DeviceInfo
from tritmark.harness.spec import Axes, KernelKey, MaxSize, MinSize, MultipleOf, Tier
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch import DEVICE, Call, variant
from tritmark.kernels.cuda.launch.tuning import Steps, instance_name
from tritmark.kernels.cuda.tiles.product import WARP
from tritmark.kernels.formats.gpu_int2 import COLUMNS
from tritmark.kernels.formats.gpu_int2 import ROWS as STRIP
from tritmark.kernels.ternary_matmul.cuda_arguments import KINDS, SHARED
from tritmark.kernels.ternary_matmul.spec import MAX_K, OP, dtypes

FORMAT = "gpu_int2"
LOAD = 128
"""Columns of a warp's loads of one step."""
THREADS = 512
"""The most threads of a block."""
FACTORS = 256
"""Bytes of shared memory reserved for the factors of the rows of activations."""
BUSY = 32
"""Warps of a multiprocessor that hide the latency of memory."""


@dataclass(frozen=True, slots=True)
class Dp4a:
    """The macros of an instance of gpu_int2.cu, which documents them."""

    rows: int
    strips: int
    steps: int

    @property
    def tile(self) -> tuple[int, int]:
        """Rows of activations and of weights of a block."""
        return self.rows, self.strips * STRIP

    @property
    def warp_k(self) -> int:
        """Columns that one warp may sum in int32."""
        return 1 << 21

    @property
    def least_threads(self) -> int:
        """The fewest threads of a block: each finishes one output."""
        return self.rows * self.strips * STRIP

    @property
    def sums(self) -> int:
        """Bytes of a warp's sums in shared memory."""
        return 4 * self.rows * self.strips * STRIP


@dataclass(frozen=True, slots=True)
class Mma:
    """The macros of an instance of gpu_int2_mma.cu, which documents them."""

    groups: int
    steps: int

    @property
    def tile(self) -> tuple[int, int]:
        """Rows of activations and of weights of a block."""
        return 8 * self.groups, 2 * STRIP

    @property
    def warp_k(self) -> int:
        """Columns that one warp may sum in int32, minus the padding of its last step."""
        return (1 << 18) - 2 * LOAD * self.steps

    @property
    def least_threads(self) -> int:
        """The fewest threads of a block: each computes a factor."""
        return 8 * self.groups

    @property
    def sums(self) -> int:
        """Bytes of a warp's sums in shared memory, with a row stride of 36 words."""
        return 4 * 8 * self.groups * 36


Instance = Dp4a | Mma

ONE = Dp4a(rows=1, strips=1, steps=2)
SEVERAL = Dp4a(rows=4, strips=1, steps=1)
MMA = tuple(Mma(groups=groups, steps=1) for groups in (1, 2, 4))
MMA_K = 1 << 20
"""The largest K that the warps of a block can share."""

_SOURCES: dict[type[Instance], tuple[str, str, tuple[int, int], int]] = {
    Dp4a: ("gpu_int2", "gemm_gpu_int2_dp4a", (7, 0), 64),
    Mma: ("gpu_int2_mma", "gemm_gpu_int2_mma", (8, 0), 128),
}


def kernel_of(instance: Instance) -> Kernel:
    """Its kernel."""
    file, name, capability, registers = _SOURCES[type(instance)]
    macros = {each.name.upper(): str(getattr(instance, each.name)) for each in fields(instance)}
    return Kernel(
        file=f"ternary_matmul/{file}.cu",
        name=name,
        threads=THREADS,
        registers=registers,
        shared=SHARED,
        capability=capability,
        defines=(*macros.items(), ("THREADS", str(THREADS))),
    )


INSTANCES: tuple[Instance, ...] = (ONE, SEVERAL, *MMA)
KERNELS = {instance: kernel_of(instance) for instance in INSTANCES}


def warps_of(instance: Instance, M: int, N: int, K: int, sms: int) -> int:
    """Warps that share the K of a block on a device with that many multiprocessors: enough to keep it busy, at most as
    many as have something to load, and all with the same number of passes."""
    steps = -(-K // (LOAD * instance.steps))
    rows, high = instance.tile
    blocks = -(-M // rows) * -(-N // high)
    least = max(-(-instance.least_threads // WARP), -(-K // instance.warp_k))
    most = min(THREADS // WARP, (SHARED - FACTORS) // instance.sums)
    wanted = max(least, min(most, steps, -(-BUSY * sms // blocks)))
    passes = -(-steps // wanted)
    return max(least, -(-steps // passes))


def mma_for(M: int) -> Mma:
    """The instance for M rows of activations. For up to 32 rows, 16 at a time were faster than 32 on an H200."""
    few, some, many = MMA
    return few if few.tile[0] >= M else some if 2 * some.tile[0] >= M else many


def _launched(instance: Instance, kind: int, call: Call) -> tuple[Step, ...]:
    M, N, K = call.axes["M"], call.axes["N"], call.axes["K"]
    rows, high = instance.tile
    warps = warps_of(instance, M, N, K, call.info.sms)
    kernel, inputs = KERNELS[instance], call.inputs
    launch = call.params(kernel, -(-M // rows) * -(-N // high), WARP * warps, shared=instance.sums * warps)
    args = (
        inputs["activations"],
        inputs["weights"],
        inputs["act_scale"],
        call.outputs["out"],
        np.int64(inputs["activations"].strides[0]),
        np.float32(inputs["weight_scale"]),
        np.int32(M),
        np.int32(N),
        np.int32(K),
        np.int32(kind),
    )
    return (Step(kernel=kernel, grid=launch.grid, block=launch.block, args=args, shared=launch.shared),)


def _dp4a(kind: int, call: Call) -> tuple[Step, ...]:
    return _launched(ONE if call.axes["M"] == 1 else SEVERAL, kind, call)


def _mma(kind: int, call: Call) -> tuple[Step, ...]:
    return _launched(mma_for(call.axes["M"]), kind, call)


def _mma_by_name(kind: int, axes: Axes, info: DeviceInfo) -> dict[str, Steps]:
    """Each instance for tensor cores, the built-in choice first."""
    first = mma_for(axes["M"])
    ordered = sorted(MMA, key=lambda instance: instance is not first)
    return {instance_name(KERNELS[instance]): partial(_launched, instance, kind) for instance in ordered}


_SHAPES = (MultipleOf("N", STRIP), MultipleOf("K", COLUMNS))
MAKERS = (
    (
        "dp4a",
        "each weight read once for four rows of activations, dp4a",
        (KERNELS[ONE], KERNELS[SEVERAL]),
        _dp4a,
        (MaxSize("K", MAX_K),),
    ),
    (
        "mma",
        "each weight decoded once for up to 32 rows of activations, int8 tensor cores",
        tuple(KERNELS[each] for each in MMA),
        _mma,
        (MinSize("M", 2), MaxSize("K", MMA_K)),
    ),
)

VARIANTS = tuple(
    variant(
        KernelKey(DEVICE, OP.name, FORMAT, dtype),
        name,
        Tier.HIGHLY_OPTIMIZED,
        summary,
        kernels,
        partial(steps, KINDS[dtype]),
        constraints=(*_SHAPES, *constraints),
        alignment=16,
        rank=rank,
        instances=partial(_mma_by_name, KINDS[dtype]) if steps is _mma else None,
    )
    for dtype in dtypes(FORMAT, DEVICE)
    for rank, (name, summary, kernels, steps, constraints) in enumerate(MAKERS)
)
