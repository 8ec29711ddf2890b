"""The native variants of ternary_matmul, for each format of weights with kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from tritmark.harness.spec import Arrays, Axes, Constraint, Launch, MaxSize, MultipleOf, Variant
from tritmark.kernels.formats import BUILT_IN, Format
from tritmark.kernels.formats.tile64_grouped import GroupedTile64
from tritmark.kernels.formats.tl_layout import TL
from tritmark.kernels.native import cpu
from tritmark.kernels.ternary_matmul.scales import grouped
from tritmark.kernels.ternary_matmul.spec import MAX_K, OP, dtypes
from tritmark.kernels.ternary_matmul.tables import table_bytes, tiles

_OWN_TABLE = "tile64"
"""The format of the op's own table of kernels. The table of another format has its name as a suffix."""


def _tables() -> Iterator[tuple[str, str]]:
    yield _OWN_TABLE, OP.name
    for format, form in BUILT_IN.items():
        suffix = "tile64_grouped" if isinstance(form, GroupedTile64) else format
        if (table := f"{OP.name}_{suffix}") in cpu.KERNELS:
            yield format, table


def _constraints(form: Format) -> tuple[Constraint, ...]:
    """Kernels take the shapes that the format holds, and whole blocks in a row where blocks go across rows."""
    columns = form.block if form.drops_tail else form.column_multiple
    factors = {"N": form.row_multiple, "K": columns}
    return tuple(MultipleOf(axis, factor) for axis, factor in factors.items() if factor > 1)


FORMATS: dict[str, tuple[str, tuple[Constraint, ...]]] = {
    format: (table, _constraints(BUILT_IN[format])) for format, table in _tables()
}
"""For each format with native kernels, its table (cython_ext/src/tables.py) and the constraints on shapes. The first of
several equally good formats is the default of pack_weights."""


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


def stack_bytes(format: str, isa: str, axes: Axes) -> int:
    """Bytes of stack that kernels use in all threads; no launch keeps them."""
    rank = cpu.ISAS[isa].rank
    return int(cpu.native("ternary_matmul").stack(format, rank, axes["M"], axes["N"], axes["K"], cpu.cores()))


def _workspace(format: str, isa: str, axes: Axes) -> int:
    return kept(format, axes) + stack_bytes(format, isa, axes)


def _variants(format: str, table: str, constraints: tuple[Constraint, ...]) -> Iterator[Variant]:
    limits = (MaxSize("K", MAX_K), *constraints)
    for dtype in dtypes(format):
        for variant in cpu.variants("ternary_matmul", format, dtype, partial(_bind, format), limits, table=table):
            yield replace(variant, workspace=partial(_workspace, format, variant.name))


VARIANTS = tuple(variant for format, row in FORMATS.items() for variant in _variants(format, *row))
