"""Shared parts of the instances of both grouped_mma.cu and both grouped_wgmma.cu: products of weights with a scale for
each group."""

from __future__ import annotations

from tritmark.kernels.cuda.tiles.product import WARP
from tritmark.kernels.cuda.tiles.wgmma_tiles import WgmmaTiles

MOST_WARPS = 12
"""Warps of a block that share K: more only add sums."""
STEP_K = 256
"""k that a warp takes at a time."""


def mma_defines(group: int, rows8: int, eights: int, stages: int, threads: int) -> tuple[tuple[str, str], ...]:
    """The macros of an instance of a grouped_mma.cu."""
    macros = {"GROUP": group, "ROWS8": rows8, "EIGHTS": eights, "STAGES": stages, "THREADS": threads}
    return tuple((name, str(value)) for name, value in macros.items())


def warp_bytes(group: int, rows8: int, eights: int, stages: int) -> int:
    """Bytes of shared memory of a warp of a grouped_mma.cu: its ring and its sums."""
    tile = 8 * rows8
    return stages * tile * (64 + 2 * STEP_K // group) + 4 * 8 * eights * (tile + 4)


def balanced_warps(K: int, threads: int, shared: int, each: int) -> int:
    """Warps of a block, all with the same number of steps or one less: with at most so many threads, and so many bytes
    of shared memory of `each`."""
    most, steps = min(MOST_WARPS, threads // WARP, shared // each), -(-K // STEP_K)
    return -(-steps // -(-steps // most))


def scales_bytes(tiles: WgmmaTiles, group: int) -> int:
    """Bytes of shared memory for the scales of all stages of a grouped_wgmma.cu."""
    return tiles.stages * tiles.panels * tiles.panel_k // group * 2 * tiles.tile[1]
