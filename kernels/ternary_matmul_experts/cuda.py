"""The CUDA variants of ternary_matmul_experts: the products of ternary_matmul, whose blocks find their expert in
`offsets` on the device (cuda/tiles/experts.cuh). So a launch depends on the axes alone, and a graph may be replayed
with other offsets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
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
from tritmark.kernels.cuda.tiles.wgmma_tiles import WGMMA_SHARED
from tritmark.kernels.formats import BUILT_IN
from tritmark.kernels.formats.row16_grouped import FORMATS as ROW16_GROUPED
from tritmark.kernels.ternary_matmul.cuda_arguments import KINDS, activation_row_bytes, arrays
from tritmark.kernels.ternary_matmul.cuda_gemm import MAX_K, GemmMma, GemmWgmma
from tritmark.kernels.ternary_matmul.cuda_grouped import GroupedMma, GroupedWgmma
from tritmark.kernels.ternary_matmul_experts.spec import OP, dtypes

FORMATS = {"row16": 0} | {form.name: form.group for form in ROW16_GROUPED}
"""Weights of a group, 0 for one scale for an expert."""
UNUSED = (0.0, 0.0, 0.0, 0.0)
"""The instance is not chosen by predicted times."""

LEAST_TILES = 4
"""The most tiles of a block of few warps; a block of more warps takes as many tiles."""
MOST_PARTS = (1 << 16) - 1
"""The most blocks of a share: of the second axis of a grid."""
TILE_COST = 75
"""Time of a wgmma tile besides its columns, in columns: 54 for K of 512 and 95 for 2048, on an H200."""
TALL_COST = 0.84
"""Time of a wgmma tile of twice the weights, over that of two tiles: 0.78 to 0.88 on an H200."""
TILES = (1, 2, 4, 8)
"""Tiles of a block that `tritmark tune instances` tries."""

LISTED = 64
"""The most tiles of a block of a wgmma product (expert_tiles.cuh)."""
WGMMA_ROWS = 6
"""wgmma is chosen for so many rows of an expert or more, if they are spread evenly."""

Mma = GemmMma | GroupedMma
Wgmma = GemmWgmma | GroupedWgmma
Instance = Mma | Wgmma


def mma_instances(group: int) -> tuple[Mma, ...]:
    """The instances of a size of groups: those of few rows of activations first."""
    if not group:
        table: tuple[tuple[int, int, int, int], ...] = (
            (2, 1, 640, 64),
            (4, 1, 640, 72),
            (8, 1, 512, 120),
            (4, 2, 512, 112),
            (4, 4, 384, 168),
        )
        return tuple(GemmMma(*macros, UNUSED) for macros in table)
    table = ((2, 1, 640, 80), (4, 1, 640, 96), (4, 2, 384, 144), (4, 4, 384, 168))
    return tuple(GroupedMma(*macros, UNUSED, group=group) for macros in table)


def wgmma_instances(group: int) -> tuple[Wgmma, ...]:
    """The same for wgmma."""
    if not group:
        table = ((16, 1, 16), (32, 1, 12), (64, 1, 8), (96, 1, 6), (128, 1, 4), (32, 2, 8), (64, 2, 5))
        return tuple(GemmWgmma(columns, blocks, 2, stages, UNUSED) for columns, blocks, stages in table)
    panels = 2 if group >= 128 else 1
    return tuple(
        GroupedWgmma(columns, 1, panels, 2 * stages // panels, UNUSED, group=group)
        for columns, stages in ((16, 12), (32, 10), (64, 7), (96, 5), (128, 4))
    )


def kernel_of(instance: Instance) -> Kernel:
    """Its kernel."""
    grouped = isinstance(instance, GroupedMma | GroupedWgmma)
    wgmma = isinstance(instance, Wgmma)
    kind = "wgmma" if wgmma else "mma"
    return Kernel(
        file=f"ternary_matmul/{'grouped' if grouped else 'gemm'}_{kind}.cu",
        name=f"gemm_experts_{'grouped_' if grouped else ''}{kind}",
        threads=instance.threads,
        registers=168 if wgmma else REGISTERS_PER_BLOCK // instance.threads // 8 * 8,
        shared=WGMMA_SHARED if wgmma else MMA_SHARED,
        # A few values are spilled with 32 rows of activations, and with two groups of scales in 64 weights.
        local=32 if wgmma else 64,
        capability=(9, 0) if wgmma else (8, 0),
        specific=wgmma,
        defines=(*instance.defines, ("EXPERTS", "1")),
        overlaps=True,
    )


MMA = {group: mma_instances(group) for group in FORMATS.values()}
WGMMA = {group: wgmma_instances(group) for group in FORMATS.values()}
KERNELS: dict[Instance, Kernel] = {
    each: kernel_of(each) for table in (MMA, WGMMA) for instances in table.values() for each in instances
}


def shares(M: int, E: int, most: int) -> int:
    """The most shares, of at most `most` rows of one expert, that M rows of E experts make."""
    return min(M, (M + min(M, E) * (most - 1)) // most)


def tiles_of(instance: Instance, axes: Axes) -> int:
    """The most tiles of a launch."""
    most, high = instance.tile
    return shares(axes["M"], axes["E"], most) * -(-axes["N"] // high)


def chosen(name: str, group: int, axes: Axes, sms: int) -> Instance:
    """The instance of a variant for those sizes on a device with that many multiprocessors: by the rows that an expert
    gets if they are spread evenly. As measured by suites/performance/expert_products.py on an H200."""
    rows = axes["M"] / min(axes["M"], axes["E"])
    if name == "gemm" and rows >= WGMMA_ROWS:

        def cost(each: Wgmma) -> float:
            tiles = max(1.0, rows / each.columns + 0.5)
            return tiles * (each.columns + TILE_COST) * (TALL_COST if each.blocks == 2 else 1.0)

        return min(WGMMA[group], key=cost)
    eights = 1 if rows <= 6 else 2 if rows <= 12 else 4
    # Tall tiles have more weights in flight, if there are enough of them.
    tall = sorted((each for each in MMA[group] if each.groups == eights), key=lambda each: -each.rows8)
    return next((each for each in tall if each.rows8 == 4 or tiles_of(each, axes) >= sms), tall[0])


def tiles_of_block(instance: Instance, axes: Axes, sms: int) -> int:
    """Tiles of a block of an mma product: as many as leave one block for each that the device holds at a time."""
    if isinstance(instance, Wgmma):
        return 1
    warps = instance.warps(axes["K"])
    resident = max(1, REGISTERS_PER_BLOCK // (WARP * warps * instance.registers))
    return max(1, min(max(LEAST_TILES, warps), -(-tiles_of(instance, axes) // (resident * sms))))


def wgmma_blocks(tiles: int, sms: int) -> int:
    """Blocks of a launch of a wgmma product with so many tiles."""
    return max(min(tiles, sms), -(-tiles // LISTED))


def _launch(instance: Instance, tiles: int, format: str, kind: int, call: Call) -> tuple[Step, ...]:
    M, N, K, E = (call.axes[axis] for axis in "MNKE")
    kernel, (most, high) = KERNELS[instance], instance.tile
    (activations, weights, act_scale, out), apart = arrays(call), activation_row_bytes(call)
    args: tuple[object, ...] = (
        activations,
        weights,
        act_scale,
        out,
        call.inputs["weight_scale"],
        call.inputs["offsets"],
        apart,
        np.int64(BUILT_IN[format].packed_bytes((N, K)) // 16),
        *(np.int32(each) for each in (M, N, K, kind, E, shares(M, E, most))),
        call.bad,
    )
    if isinstance(instance, Wgmma):
        blocks = wgmma_blocks(tiles_of(instance, call.axes), call.info.sms)
        launch = call.params(kernel, blocks, shared=instance.shared_bytes)
        of_a, _, of_out = instance.maps(activations, int(apart), weights, out, call.axes)
        args = (of_a, of_out, *args)
    else:
        count, parts = shares(M, E, most), min(MOST_PARTS, -(-N // (high * tiles)))
        launch = call.params(kernel, count * parts, WARP * instance.warps(K), shared=instance.shared(K))
        # One more column of blocks checks the offsets.
        launch = replace(launch, grid=(count + 1, parts, 1))
    return (Step(kernel=kernel, grid=launch.grid, block=launch.block, args=args, shared=launch.shared),)


def _steps(name: str, format: str, kind: int, call: Call) -> tuple[Step, ...]:
    instance = chosen(name, FORMATS[format], call.axes, call.info.sms)
    return _launch(instance, tiles_of_block(instance, call.axes, call.info.sms), format, kind, call)


def _by_name(name: str, format: str, kind: int, axes: Axes, info: DeviceInfo) -> dict[str, Steps]:
    """The instances, those of mma with several numbers of tiles of a block; the built-in choice first."""
    group = FORMATS[format]
    first = chosen(name, group, axes, info.sms)
    found: list[tuple[Instance, int]] = [(first, tiles_of_block(first, axes, info.sms)), *product(MMA[group], TILES)]
    found += [(each, 1) for each in WGMMA[group]] if name == "gemm" else []
    return {
        instance_name(KERNELS[each], **({} if isinstance(each, Wgmma) else {"tiles": tiles})): partial(
            _launch, each, tiles, format, kind
        )
        for each, tiles in dict.fromkeys(found)
    }


MAKERS = (
    (
        "mma",
        Tier.HIGHLY_OPTIMIZED,
        "int8 tensor cores, each weight decoded once for 8 to 32 rows of activations of its expert",
        (MMA,),
    ),
    (
        "gemm",
        Tier.EXTREMELY_OPTIMIZED,
        "int8 tensor cores, mma or wgmma, by the rows of activations that experts have",
        (MMA, WGMMA),
    ),
)


def _variants(format: str, group: int) -> Iterator[Variant]:
    constraints: tuple[Constraint, ...] = (MaxSize("K", MAX_K),)
    if group:
        constraints = (MultipleOf("K", group), *constraints)
    for dtype in dtypes(format, DEVICE):
        for rank, (name, tier, summary, tables) in enumerate(MAKERS):
            by_name: ByName = partial(_by_name, name, format, KINDS[dtype])
            yield variant(
                KernelKey(DEVICE, OP.name, format, dtype),
                name,
                tier,
                summary,
                tuple(KERNELS[each] for table in tables for each in table[group]),
                partial(_steps, name, format, KINDS[dtype]),
                constraints=constraints,
                alignment=16,
                rank=rank,
                instances=by_name,
            )


VARIANTS = tuple(each for format, group in FORMATS.items() for each in _variants(format, group))
