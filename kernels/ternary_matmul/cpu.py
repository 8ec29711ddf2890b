"""The native variants of ternary_matmul, for each format of weights with kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from tritmark.harness.spec import Arrays, Axes, Constraint, Launch, MaxSize, MultipleOf, Variant
from tritmark.kernels.formats import BUILT_IN
from tritmark.kernels.formats.tl_layout import TL
from tritmark.kernels.native import cpu
from tritmark.kernels.ternary_matmul.scales import grouped
from tritmark.kernels.ternary_matmul.spec import MAX_K, dtypes
from tritmark.kernels.ternary_matmul.tables import table_bytes, tiles

FORMATS: dict[str, tuple[str, tuple[Constraint, ...]]] = {
    "tile64": ("ternary_matmul", ()),
    "i2_s_x86": ("ternary_matmul_i2_s_x86", (MultipleOf("K", 128),)),
    "tq2_0": ("ternary_matmul_tq2_0", (MultipleOf("K", 256),)),
    "iq2_bn_r4": ("ternary_matmul_iq2_bn_r4", (MultipleOf("N", 4), MultipleOf("K", 64))),
    "tl1": ("ternary_matmul_tl1", (MultipleOf("N", 32), MultipleOf("K", 8))),
    "tl2": ("ternary_matmul_tl2", (MultipleOf("N", 32), MultipleOf("K", 32))),
    "q2_0": ("ternary_matmul_q2_0", (MultipleOf("K", 64),)),
    "tq1_0": ("ternary_matmul_tq1_0", (MultipleOf("K", 256),)),
    "tile80": ("ternary_matmul_tile80", ()),
}
"""For each format, its table of kernels in isas.h and the constraints on shapes. The first of several equally good
formats is the default of pack_weights."""


def _bind(format: str, isa: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    launch: Launch = cpu.native("ternary_matmul").TernaryMatmul(
        format,
        isa,
        inputs["activations"],
        inputs["weights"].reshape(-1),
        axes["N"],
        inputs["weight_scale"],
        inputs["act_scale"],
        outputs["out"],
        threads,
        tiles(format, axes) or (0, 0, 0),
    )
    return launch


def kept(format: str, axes: Axes) -> int:
    """Workspace in bytes that a launch keeps: look-up tables of the activations, or their sums for each row and group,
    and the reordered activations."""
    if isinstance(BUILT_IN[format], TL):
        return table_bytes(format, axes)
    if grouped(format) is None:
        return 0
    return int(cpu.native("ternary_matmul").room(format, axes["M"], axes["K"]))


_SLAB, _TILE, _ARRANGED = 96, 64, 384 * 64
"""Rows of activations and of weights with sums that a thread keeps at a time, and the most bytes of weights that it
converts to tile64: TM_SLAB, TM_TILE and TM_ARRANGED in cython_ext/src/ternary_matmul/tiles.h."""
_DIGITS, _FEW = 80, {"scalar": 8, "avx2": 2, "avxvnni": 8, "avx512": 8}
"""Rows of weights of a tile of tile80, TM_TILE80 in its tile80.h, and for each instruction set the number of rows of
activations that are multiplied with its digits directly."""
_AS_ONE = {"tq2_0": 4, "q2_0": 4, "tq1_0": 2}
"""The most rows of activations for which AVX-512 decodes weights in registers: TM_FEW in groups.h, FEW of tq1_0."""
_OF_ARM = frozenset({"neon", "dotprod", "i8mm"})
_ARRANGED_OF_ARM = frozenset({"tile80", "tl1", "tl2"})
"""Formats with weights that these instruction sets convert to tile64, for any number of rows of activations."""
_PANEL_SUMS, _PANEL_SUM = 64, 896
"""Rows of activations with sums over a panel of weights that a thread keeps at a time, TM_PANEL_SUMS in its
panels_avx512.h, and the most bytes of one panel, those of tm_panel_sums there."""


def stack_bytes(format: str, isa: str, axes: Axes) -> int:
    """Bytes of stack that kernels use in all threads; no launch keeps them."""
    M, cores = axes["M"], cpu.cores()
    if isa == "amx":
        tiles = cpu.native("ternary_matmul").amx_stacks(format, M, axes["N"], axes["K"], cores)
        return max(int(tiles), stack_bytes(format, "avx512", axes))
    sums = 4 * min(M, _SLAB) * _TILE
    if format == "tile64":
        return cores * sums
    if isa in _OF_ARM:
        return cores * (sums + _ARRANGED) if format in _ARRANGED_OF_ARM else 0
    if format == "tile80" and (isa == "scalar" or _FEW[isa] >= M):
        return cores * 4 * min(M, _FEW[isa]) * _DIGITS
    if M == 1 or isa == "scalar" or (isa == "avx512" and _AS_ONE.get(format, 1) >= M):
        return 0
    if grouped(format) is not None:
        return cores * _PANEL_SUM * min(M, _PANEL_SUMS)
    return 0 if format == "iq2_bn_r4" and isa == "avxvnni" else cores * (sums + _ARRANGED)


def _workspace(format: str, isa: str, axes: Axes) -> int:
    return kept(format, axes) + stack_bytes(format, isa, axes)


def _variants(format: str, table: str, constraints: tuple[Constraint, ...]) -> Iterator[Variant]:
    limits = (MaxSize("K", MAX_K), *constraints)
    for dtype in dtypes(format):
        for variant in cpu.variants("ternary_matmul", format, dtype, partial(_bind, format), limits, table=table):
            yield replace(variant, workspace=partial(_workspace, format, variant.name))


VARIANTS = tuple(variant for format, row in FORMATS.items() for variant in _variants(format, *row))
