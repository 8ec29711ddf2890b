"""The native variants of ternary_matmul, for each format of weights that there are kernels for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from tritmark.harness.spec import Arrays, Axes, Constraint, Launch, MaxSize, MultipleOf, Variant, no_workspace
from tritmark.kernels import cpu
from tritmark.kernels.formats import BUILT_IN
from tritmark.kernels.formats.tl_layout import TL
from tritmark.kernels.ternary_matmul.scales import grouped
from tritmark.kernels.ternary_matmul.spec import dtypes
from tritmark.kernels.ternary_matmul.tables import table_bytes, tiles

MAX_K = (1 << 23) - 1
"""Past it, 2 * 128 * K no longer fits the int32 accumulators."""

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
"""For each format its table of kernels in isas.h, and what their shapes must keep to. The first of several that are
equally good is the one that weights are packed into where nothing else is asked for."""


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


def _room(format: str, axes: Axes) -> int:
    """Bytes of the sums of the activations, one for each row and group, and of the activations in another order; with
    several rows also of what they add up to with a panel of weights, on the stack of each thread."""
    panels = cpu.cores() * _PANEL_SUM * min(axes["M"], _PANEL_SUMS) if axes["M"] > 1 else 0
    return int(cpu.native("ternary_matmul").room(format, axes["M"], axes["K"])) + panels


_PANEL_SUMS, _PANEL_SUM = 64, 896
"""Rows of activations whose sums with a panel a thread keeps at once, TM_PANEL_SUMS in cython_ext/src/ternary_matmul/,
and the most bytes of one, those of tm_panel_sums there."""
_SLAB, _TILE = 96, 64
"""Rows of activations and of weights whose sums a thread keeps at once, TM_SLAB and TM_TILE in
cython_ext/src/ternary_matmul/."""


ON_STACKS = frozenset({"tile64", "tile80"})
"""Formats whose kernels' workspace is on the stacks of threads, so that a launch keeps none."""


def _sums(axes: Axes) -> int:
    """Bytes of the int32 sums of tiles, which are on the stack of each thread."""
    return cpu.cores() * 4 * min(axes["M"], _SLAB) * _TILE


def _amx(axes: Axes) -> int:
    """The same of the AMX kernel, with masked weights and packed activations."""
    return max(_sums(axes), int(cpu.native("ternary_matmul").amx_stacks(axes["M"], axes["K"], cpu.cores())))


def _variants(format: str, table: str, constraints: tuple[Constraint, ...]) -> Iterator[Variant]:
    form, limits = grouped(format), (MaxSize("K", MAX_K), *constraints)
    workspace = no_workspace if form is None else partial(_room, format)
    if format in ON_STACKS:
        workspace = _sums
    if isinstance(BUILT_IN[format], TL):
        workspace = partial(table_bytes, format)
    for dtype in dtypes(format):
        for variant in cpu.variants(
            "ternary_matmul", format, dtype, partial(_bind, format), limits, table=table, workspace=workspace
        ):
            yield replace(variant, workspace=_amx) if variant.name == "amx" else variant


VARIANTS = tuple(variant for format, row in FORMATS.items() for variant in _variants(format, *row))
