"""The CUDA variants of ternary_matmul_experts: the products of ternary_matmul, whose blocks find their expert in
`offsets` on the device (cuda/tiles/experts.cuh). So a launch depends on the axes alone, and a graph may be replayed
with other offsets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

import numpy as np

from tritmark.harness.machine.gpu import DeviceInfo
from tritmark.harness.spec import Axes, Constraint, KernelKey, MaxSize, MultipleOf, Tier, Variant
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch import DEVICE, Call, variant
from tritmark.kernels.cuda.launch.resources import REGISTERS_PER_BLOCK
from tritmark.kernels.cuda.launch.tuning import ByName, Steps, instance_name
from tritmark.kernels.cuda.tiles.mma_tiles import MMA_SHARED
from tritmark.kernels.cuda.tiles.product import WARP
from tritmark.kernels.formats import BUILT_IN
from tritmark.kernels.formats.row16_grouped import FORMATS as ROW16_GROUPED
from tritmark.kernels.ternary_matmul.cuda_arguments import KINDS, activation_row_bytes, arrays
from tritmark.kernels.ternary_matmul.cuda_gemm import MAX_K, GemmMma
from tritmark.kernels.ternary_matmul.cuda_grouped import GroupedMma
from tritmark.kernels.ternary_matmul_experts.spec import OP, dtypes

FORMATS = {"row16": 0} | {form.name: form.group for form in ROW16_GROUPED}
"""Weights of a group, 0 for one scale for an expert."""
UNUSED = (0.0, 0.0, 0.0, 0.0)
"""The instance is not chosen by predicted times."""

BLOCKS, MOST_TILES = 8, 4
"""Blocks of a multiprocessor, one after another, below which a block takes one tile; the most tiles that it takes."""
TILES = (1, 2, 4, 8)
"""Tiles of a block that `tritmark tune instances` tries."""

Instance = GemmMma | GroupedMma


def mma_instances(group: int) -> tuple[Instance, ...]:
    """The instances of a size of groups: those of few rows of activations first."""
    if not group:
        table: tuple[tuple[int, int, int, int], ...] = (
            (2, 1, 640, 64),
            (4, 1, 640, 80),
            (8, 1, 512, 120),
            (4, 2, 512, 112),
            (4, 4, 384, 168),
        )
        return tuple(GemmMma(*macros, UNUSED) for macros in table)
    table = ((2, 1, 640, 80), (4, 1, 640, 96), (4, 2, 384, 144), (4, 4, 384, 168))
    return tuple(GroupedMma(*macros, UNUSED, group=group) for macros in table)


def kernel_of(instance: Instance) -> Kernel:
    """Its kernel."""
    grouped = isinstance(instance, GroupedMma)
    return Kernel(
        file=f"ternary_matmul/{'grouped' if grouped else 'gemm'}_mma.cu",
        name=f"gemm_experts_{'grouped_' if grouped else ''}mma",
        threads=instance.threads,
        registers=REGISTERS_PER_BLOCK // instance.threads // 8 * 8,
        shared=MMA_SHARED,
        # A few values are spilled with 32 rows of activations, and with two groups of scales in 64 weights.
        local=64,
        capability=(8, 0),
        defines=(*instance.defines, ("EXPERTS", "1")),
        overlaps=True,
    )


MMA = {group: mma_instances(group) for group in FORMATS.values()}
KERNELS = {each: kernel_of(each) for instances in MMA.values() for each in instances}


def shares(M: int, E: int, most: int) -> int:
    """The most shares, of at most `most` rows of one expert, that M rows of E experts make."""
    return min(M, (M + min(M, E) * (most - 1)) // most)


def chosen(group: int, axes: Axes) -> Instance:
    """The instance for those sizes: by the rows that an expert gets if they are spread evenly."""
    rows = axes["M"] / min(axes["M"], axes["E"])
    eights = 1 if rows <= 6 else 2 if rows <= 12 else 4
    return next(each for each in MMA[group] if each.groups == eights and each.rows8 == 4)


def tiles_of_block(instance: Instance, axes: Axes, sms: int) -> int:
    """Tiles of a block: more than one if that leaves each multiprocessor with enough blocks."""
    most, high = instance.tile
    tiles = shares(axes["M"], axes["E"], most) * -(-axes["N"] // high)
    return max(1, min(MOST_TILES, tiles // (BLOCKS * sms)))


def _launch(instance: Instance, tiles: int, format: str, kind: int, call: Call) -> tuple[Step, ...]:
    M, N, K, E = (call.axes[axis] for axis in "MNKE")
    kernel, (most, high) = KERNELS[instance], instance.tile
    count = shares(M, E, most)
    # One block more checks the offsets.
    blocks = count * -(-N // (high * tiles)) + 1
    launch = call.params(kernel, blocks, WARP * instance.warps(K), shared=instance.shared(K))
    apart = BUILT_IN[format].packed_bytes((N, K)) // 16
    args = (
        *arrays(call),
        call.inputs["weight_scale"],
        call.inputs["offsets"],
        activation_row_bytes(call),
        np.int64(apart),
        *(np.int32(each) for each in (M, N, K, kind, E, count)),
        call.bad,
    )
    return (Step(kernel=kernel, grid=launch.grid, block=launch.block, args=args, shared=launch.shared),)


def _steps(format: str, kind: int, call: Call) -> tuple[Step, ...]:
    instance = chosen(FORMATS[format], call.axes)
    return _launch(instance, tiles_of_block(instance, call.axes, call.info.sms), format, kind, call)


def _by_name(format: str, kind: int, axes: Axes, info: DeviceInfo) -> dict[str, Steps]:
    """The instances with several numbers of tiles, the built-in choice first."""
    group = FORMATS[format]
    first = chosen(group, axes)
    found = [(first, tiles_of_block(first, axes, info.sms)), *product(MMA[group], TILES)]
    return {
        instance_name(KERNELS[each], tiles=tiles): partial(_launch, each, tiles, format, kind)
        for each, tiles in dict.fromkeys(found)
    }


def _variants(format: str, group: int) -> Iterator[Variant]:
    constraints: tuple[Constraint, ...] = (MaxSize("K", MAX_K),)
    if group:
        constraints = (MultipleOf("K", group), *constraints)
    for dtype in dtypes(format, DEVICE):
        by_name: ByName = partial(_by_name, format, KINDS[dtype])
        yield variant(
            KernelKey(DEVICE, OP.name, format, dtype),
            "mma",
            Tier.EXTREMELY_OPTIMIZED,
            "int8 tensor cores, each weight decoded once for 8 to 32 rows of activations of its expert",
            tuple(KERNELS[each] for each in MMA[group]),
            partial(_steps, format, KINDS[dtype]),
            constraints=constraints,
            alignment=16,
            instances=by_name,
        )


VARIANTS = tuple(each for format, group in FORMATS.items() for each in _variants(format, group))
