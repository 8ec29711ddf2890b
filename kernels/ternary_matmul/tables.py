"""Parameters of the look-up kernels of tl1 and tl2, and the size of their tables of activations."""

from __future__ import annotations

from tritmark.harness.spec import Axes
from tritmark.kernels.formats import BUILT_IN
from tritmark.kernels.formats.tl_layout import TL, Layout

_ROWS = 4
"""Rows of activations with tables at a time, TM_LUT_ROWS in cython_ext/src/ternary_matmul/lut.h."""
_CACHE_LINE = 64


def tiles(format: str, axes: Axes) -> Layout | None:
    """The tiling of a format's weights, or None for a format without tiles."""
    form = BUILT_IN[format]
    return form.layout("ternary_matmul", (axes["N"], axes["K"])) if isinstance(form, TL) else None


def table_bytes(format: str, axes: Axes) -> int:
    """Bytes of the tables of a call, with alignment: 32 for each pair of columns in tl1; in tl2, where tables are
    duplicated, 64 for each triple and each pair."""
    K, layout = axes["K"], tiles(format, axes)
    if layout is None:
        return 0
    row = 16 * K
    if format == "tl2":
        paired = K % layout.BK
        row = 64 * ((K - paired) // 3) + 32 * paired
    return min(axes["M"], _ROWS) * row + _CACHE_LINE - 1
