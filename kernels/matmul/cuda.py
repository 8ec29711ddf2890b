"""The CUDA variants of matmul: tiles in shared memory for every dtype, tensor cores for the 16-bit ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from tritmark.harness.spec import Axes, Constraint, KernelKey, MaxSize, MultipleOf, Tier, Variant
from tritmark.kernels.cuda.device_type import DEVICE
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch.launch import Call, Steps, variant
from tritmark.kernels.matmul.spec import MAX_K, NAMES

THREADS = 256
"""Threads of a block of `tiled`."""
EDGE = 64
"""Rows and columns of the outputs of a block of `tiled`."""
TILED = {
    dtype: Kernel(
        file="matmul/tiled.cu",
        name=name,
        threads=THREADS,
        registers=80,
        shared=2 * 16 * 68 * 4,
        capability=capability,
        defines=(("INPUT", bits), ("THREADS", str(THREADS)), ("NAME", name)),
    )
    for dtype, name, bits, capability in (
        ("float32", "gemm_fp32", "32", (6, 1)),
        ("float16", "gemm_fp16", "16", (6, 1)),
        ("bfloat16", "gemm_bf16", "8", (8, 0)),
    )
}
FFMA = Kernel(
    file="matmul/ffma.cu",
    name="gemm_ffma",
    threads=256,
    registers=128,
    shared=4 * 16 * 132 * 4,
    capability=(9, 0),  # for older capabilities the compiler spills
    defines=(("THREADS", "256"),),
    options=("-maxrregcount=128",),  # two blocks on a multiprocessor
)
FFMA_EDGE = 128
"""Rows and columns of the outputs of a block of `ffma`."""
EDGES = (128, 64)
"""Tile edges of `wmma`, the preferred one first."""


def _wmma(name: str, bits: str, capability: tuple[int, int], edge: int) -> Kernel:
    depth, warp_n, threads, registers = (32, 64, 256, 176) if edge == 128 else (64, 32, 128, 192)
    function = f"{name}_{edge}"
    return Kernel(
        file="matmul/wmma.cu",
        name=function,
        threads=threads,
        registers=registers,
        shared=2 * (edge * (depth + 8) + depth * (edge + 8)) * 2,
        capability=capability,
        defines=(
            ("INPUT", bits),
            ("EDGE", str(edge)),
            ("DEPTH", str(depth)),
            ("WARP_N", str(warp_n)),
            ("THREADS", str(threads)),
            ("NAME", function),
        ),
    )


WMMA = {
    dtype: {edge: _wmma(name, bits, capability, edge) for edge in EDGES}
    for dtype, name, bits, capability in (
        ("float16", "wmma_fp16", "16", (7, 0)),
        ("bfloat16", "wmma_bf16", "8", (8, 0)),
    )
}


@dataclass(frozen=True, slots=True)
class WgmmaTile:
    """An instance of wgmma.cu, which documents the macros, and its time on an H200 in us."""

    columns: int
    stages: int
    tile_us: float
    """Of a tile of a multiprocessor."""
    stage_us: float
    """Of each 64 k of it."""

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory."""
        return self.stages * ((WGMMA_ROWS + self.columns) * 2 * WGMMA_STAGE_K + 16)

    def tiles(self, axes: Axes) -> int:
        """The number of tiles of a product."""
        return -(-axes["M"] // WGMMA_ROWS) * -(-axes["N"] // self.columns)

    def predicted_us(self, axes: Axes, sms: int) -> float:
        """Time of a launch on a device with that many multiprocessors."""
        steps = -(-axes["K"] // WGMMA_STAGE_K)
        return -(-self.tiles(axes) // sms) * (self.tile_us + steps * self.stage_us)


WGMMA_ROWS = 128
"""Of a tile."""
WGMMA_STAGE_K = 64
WGMMA_THREADS = 384
WGMMA_TILES = (WgmmaTile(256, 4, 2.0, 0.82), WgmmaTile(128, 6, 1.2, 0.455), WgmmaTile(64, 8, 0.3, 0.325))
"""The times were fitted to six measured shapes (wgmma.cu). They affect only the choice."""


def _wgmma(name: str, bits: str, tile: WgmmaTile) -> Kernel:
    function = f"{name}_{tile.columns}"
    return Kernel(
        file="matmul/wgmma.cu",
        name=function,
        threads=WGMMA_THREADS,
        registers=168,
        shared=tile.shared,
        capability=(9, 0),
        specific=True,
        defines=(
            ("INPUT", bits),
            ("COLUMNS", str(tile.columns)),
            ("STAGES", str(tile.stages)),
            ("THREADS", str(WGMMA_THREADS)),
            ("NAME", function),
        ),
    )


WGMMA = {
    dtype: {tile: _wgmma(name, bits, tile) for tile in WGMMA_TILES}
    for dtype, name, bits in (("float16", "gemm_wgmma_fp16", "16"), ("bfloat16", "gemm_wgmma_bf16", "8"))
}


def _blocks(call: Call, edge: int) -> int:
    return -(-call.axes["M"] // edge) * -(-call.axes["N"] // edge)


def _step(kernel: Kernel, blocks: int, call: Call, shared: int = 0) -> tuple[Step, ...]:
    launch = call.params(kernel, blocks, shared=shared)
    sizes = (np.int32(call.axes[axis]) for axis in "MNK")
    args = (call.inputs["a"], call.inputs["b"], call.outputs["c"], *sizes)
    return (Step(kernel=kernel, grid=launch.grid, block=launch.block, args=args, shared=shared),)


def _tiled_steps(kernel: Kernel, call: Call) -> tuple[Step, ...]:
    return _step(kernel, _blocks(call, EDGE), call)


def _ffma_steps(call: Call) -> tuple[Step, ...]:
    """Large tiles where every multiprocessor gets one, else small ones."""
    blocks = _blocks(call, FFMA_EDGE)
    return _step(FFMA, blocks, call) if blocks >= call.info.sms else _tiled_steps(TILED["float32"], call)


def _wmma_steps(kernels: Mapping[int, Kernel], call: Call) -> tuple[Step, ...]:
    """Large tiles where every multiprocessor gets one, else small ones."""
    edge = next((edge for edge in EDGES if _blocks(call, edge) >= call.info.sms), EDGES[-1])
    return _step(kernels[edge], _blocks(call, edge), call)


def _wgmma_steps(kernels: Mapping[WgmmaTile, Kernel], call: Call) -> tuple[Step, ...]:
    tile = min(kernels, key=lambda tile: tile.predicted_us(call.axes, call.info.sms))
    return _step(kernels[tile], min(tile.tiles(call.axes), call.info.sms), call, tile.shared)


def _variant(
    dtype: str,
    name: str,
    tier: Tier,
    summary: str,
    kernels: tuple[Kernel, ...],
    steps: Steps,
    *more: Constraint,
    alignment: int = 1,
) -> Variant:
    key, limits = KernelKey(DEVICE, NAMES[dtype], "none", "float32"), (MaxSize("K", MAX_K), *more)
    return variant(key, name, tier, summary, kernels, steps, constraints=limits, alignment=alignment)


VARIANTS = (
    *(
        _variant(
            dtype,
            "tiled",
            Tier.BASELINE,
            "64 x 64 outputs a block, 4 x 4 a thread",
            (kernel,),
            partial(_tiled_steps, kernel),
        )
        for dtype, kernel in TILED.items()
    ),
    *(
        _variant(
            dtype,
            "wmma",
            Tier.OPTIMIZED,
            "tensor cores, 128 x 128 or 64 x 64 outputs a block",
            tuple(kernels.values()),
            partial(_wmma_steps, kernels),
        )
        for dtype, kernels in WMMA.items()
    ),
    _variant(
        "float32",
        "ffma",
        Tier.OPTIMIZED,
        "128 x 128 outputs a block, 8 x 8 a thread; `tiled` if these blocks are too few",
        (FFMA, TILED["float32"]),
        _ffma_steps,
    ),
    *(
        _variant(
            dtype,
            "wgmma",
            Tier.HIGHLY_OPTIMIZED,
            "Hopper's tensor cores, 128 x 256, 128 x 128 or 128 x 64 outputs a block",
            tuple(kernels.values()),
            partial(_wgmma_steps, kernels),
            MultipleOf("N", 8),
            MultipleOf("K", 8),
            alignment=16,
        )
        for dtype, kernels in WGMMA.items()
    ),
)
