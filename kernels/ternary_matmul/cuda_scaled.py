"""The CUDA variants of ternary_matmul with formats that store scales in the bytes: tq2_0 of ggml, one for each group of
256 weights, and iq2_bn of ik_llama.cpp, one for each row. So weights of GGUF files need no repacking."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial

import numpy as np

from tritmark.harness.spec import KernelKey, MaxSize, MinSize, MultipleOf, Tier, Variant
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch import DEVICE, Call, variant
from tritmark.kernels.cuda.tiles.product import WARP
from tritmark.kernels.formats.ggml_blocks import BLOCK as GROUP
from tritmark.kernels.formats.iq_bn import BLOCK
from tritmark.kernels.ternary_matmul.cuda_arguments import KINDS, SHARED, activation_row_bytes, arrays, scalars
from tritmark.kernels.ternary_matmul.spec import MAX_K, OP, dtypes

FORMATS = {"tq2_0": GROUP, "iq2_bn": BLOCK}
"""Weights of a group; K is a multiple of it."""
THREADS = 512
"""The most threads of a block with warps that share K."""
FOUR = 4
"""Rows of weights that four lanes process together, one group of columns at a time."""
PARTS = 24 << 10
"""Bytes of shared memory for the totals of groups; two blocks fit into a multiprocessor with 48 KiB."""
BUSY = 72
"""Warps per multiprocessor above which warps that share K only wait for each other."""


@dataclass(frozen=True, slots=True)
class ScaledDp4a:
    """The macros of an instance of scaled.cu, which documents them."""

    grouped: int
    rows: int
    threads: int

    @property
    def four(self) -> int:
        """Bytes of the totals of four rows of weights and one group."""
        return FOUR * self.rows * (8 if self.grouped else 4)

    @staticmethod
    def sets(N: int, groups: int, sms: int) -> int:
        """Sets of four rows of a block on a device with that many multiprocessors: few sets if there are few rows, so
        that there are more blocks."""
        return max(1, 32 // groups) if 32 * sms >= N else 4

    def chunk(self, groups: int, sets: int) -> int:
        """Groups that a block processes at a time."""
        return min(groups, PARTS // (self.four * sets) - 1)

    def warps(self, N: int, sets: int, chunk: int, sms: int) -> int:
        """Warps of a block: four lanes for each four rows and group; half as many if there are many rows; and the same
        number of passes for all."""
        jobs = sets * chunk
        turns = max(1 if 32 * sms >= N else 2, -(-jobs // (THREADS // 4)))
        return max(-(-FOUR * self.rows * sets // WARP), -(-jobs // turns // 8))


@dataclass(frozen=True, slots=True)
class ScaledMma:
    """The macros of an instance of scaled_mma.cu, which documents them."""

    grouped: int
    eights: int
    sets: int
    split: int
    threads: int

    @property
    def tile(self) -> tuple[int, int]:
        """Rows of activations and of weights."""
        return 8 * self.eights, 16 * self.sets

    @property
    def sums(self) -> int:
        """Bytes of a warp's parts and scales in shared memory."""
        active, high = self.tile
        return 4 * (active * (high + 4) + high) if self.split else 0

    @property
    def fixed(self) -> int:
        """Bytes of a block's totals, factors and scales in shared memory."""
        active, high = self.tile
        return active * high * (8 if self.grouped else 4) + 8 * active + 4 * high if self.split else 0

    def warps(self, tiles: int, groups: int, sms: int) -> int:
        """Warps of a block; if they share K, all have the same number of passes."""
        if not self.split:
            return self.threads // WARP
        most = min(self.threads // WARP, (SHARED - self.fixed) // self.sums, max(1, BUSY * sms // tiles))
        return -(-groups // -(-groups // most))


Instance = ScaledDp4a | ScaledMma


def instances(format: str) -> tuple[tuple[ScaledDp4a, ScaledDp4a], tuple[ScaledMma, ScaledMma, ScaledMma, ScaledMma]]:
    """All instances of a format: with dp4a for one row of activations and for several; with tensor cores for up to 8
    rows, for more, for still more, and without sharing K."""
    grouped = int(format == "tq2_0")
    return (
        # 1024 threads are never launched: the bound limits tq2_0's instance to 64 registers, which was faster.
        (ScaledDp4a(grouped, 1, 1024 if grouped else THREADS), ScaledDp4a(grouped, 4, THREADS)),
        (
            ScaledMma(grouped, 1, 1, 1, THREADS),
            ScaledMma(grouped, 2, 2, 1, THREADS),
            ScaledMma(grouped, 4, 2, 1, 256),
            ScaledMma(grouped, 4, 2, 0, 128),
        ),
    )


_SOURCES = {ScaledDp4a: ("scaled", "gemm_scaled_dp4a", (7, 0)), ScaledMma: ("scaled_mma", "gemm_scaled_mma", (8, 0))}


def kernel_of(instance: Instance) -> Kernel:
    """Its kernel."""
    file, name, capability = _SOURCES[type(instance)]
    return Kernel(
        file=f"ternary_matmul/{file}.cu",
        name=name,
        threads=instance.threads,
        registers=min(255, 65536 // instance.threads),
        shared=SHARED,
        # A few values are spilled for one more block per multiprocessor on 7.5 to 8.9 and 12.0; none on 9.0 and 10.0.
        local=32,
        capability=capability,
        defines=tuple((each.name.upper(), str(getattr(instance, each.name))) for each in fields(instance)),
    )


KERNELS = {each: kernel_of(each) for format in FORMATS for kind in instances(format) for each in kind}


def _step(
    instance: Instance, kind: int, call: Call, blocks: int, warps: int, shared: int, *more: np.int32
) -> tuple[Step, ...]:
    kernel = KERNELS[instance]
    launch = call.params(kernel, blocks, WARP * warps, shared=shared)
    args = (*arrays(call), activation_row_bytes(call), *scalars(call, kind), *more)
    return (Step(kernel=kernel, grid=launch.grid, block=launch.block, args=args, shared=launch.shared),)


def _dp4a(format: str, kind: int, call: Call) -> tuple[Step, ...]:
    M, N, groups, sms = call.axes["M"], call.axes["N"], -(-call.axes["K"] // GROUP), call.info.sms
    one, several = instances(format)[0]
    instance = one if M == 1 else several
    sets = instance.sets(N, groups, sms)
    chunk = instance.chunk(groups, sets)
    blocks = -(-N // (FOUR * sets)) * -(-M // instance.rows)
    warps, shared = instance.warps(N, sets, chunk, sms), instance.four * sets * (chunk | 1)
    return _step(instance, kind, call, blocks, warps, shared, np.int32(sets), np.int32(chunk))


def mma_for(format: str, M: int, N: int, sms: int) -> ScaledMma:
    """The instance for M rows of activations and N of weights on a device with that many multiprocessors, as measured
    on the H200's 132 (scaled_mma.cu): without sharing K if there are enough tiles for all."""
    eight, some, many, alone = instances(format)[1]
    tiles = -(-M // alone.tile[0]) * -(-N // alone.tile[1])
    if M > 32 and (64 * sms <= N if alone.grouped else tiles >= 4 * sms):
        return alone
    return eight if M <= 8 else some if M <= 48 else many


def _mma(format: str, kind: int, call: Call) -> tuple[Step, ...]:
    M, N, groups, sms = call.axes["M"], call.axes["N"], -(-call.axes["K"] // GROUP), call.info.sms
    instance = mma_for(format, M, N, sms)
    tiles = -(-M // instance.tile[0]) * -(-N // instance.tile[1])
    warps = instance.warps(tiles, groups, sms)
    return _step(instance, kind, call, tiles if instance.split else -(-tiles // warps), warps, instance.sums * warps)


MAKERS = (
    ("dp4a", "reads GGUF's bytes, each weight once for four rows of activations, dp4a", _dp4a, ()),
    (
        "mma",
        "reads GGUF's bytes, each weight decoded once for up to 32 rows of activations, int8 tensor cores",
        _mma,
        (MinSize("M", 2),),
    ),
)


def _variants(format: str) -> Iterator[Variant]:
    for dtype in dtypes(format, DEVICE):
        for rank, (name, summary, steps, constraints) in enumerate(MAKERS):
            yield variant(
                KernelKey(DEVICE, OP.name, format, dtype),
                name,
                Tier.HIGHLY_OPTIMIZED,
                summary,
                tuple(KERNELS[each] for each in instances(format)[rank]),
                partial(steps, format, KINDS[dtype]),
                constraints=(MultipleOf("K", FORMATS[format]), MaxSize("K", MAX_K), *constraints),
                alignment=16,
                rank=rank,
            )


VARIANTS = tuple(each for format in FORMATS for each in _variants(format))
