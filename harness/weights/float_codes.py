"""Floats that are exactly ternary: every number is 0, s or -s, with one s for the tensor, a row, or a group of 32 to
256 columns of a row.

The codes and scales of such a matrix follow from the stored numbers, exactly. `clamp(round(w / mean|w|))` would find
another scale, and the same codes only by chance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
GROUPS = (256, 128, 64, 32)
"""Numbers of columns that may share a scale, largest first."""


@dataclass(frozen=True, slots=True)
class FloatLayout:
    """Where the scales of an exactly ternary matrix apply. A row or group of zeros fits every scale."""

    scale_per: Literal["tensor", "row", "group"]
    group: int = 0
    """Columns per scale; 0 except for groups."""
    float16: bool = True
    """Whether all scales fit float16 exactly."""
    constant: bool = False
    """Whether all numbers are equal, which proves nothing."""

    def __str__(self) -> str:
        kinds = {"tensor": "one scale", "row": "a scale a row", "group": f"a scale a group of {self.group}"}
        return kinds[self.scale_per]


def layout_of(read: Callable[[slice], Floats], parts: list[slice], columns: int) -> FloatLayout | None:
    """The coarsest layout of a matrix of finite numbers, which `read` returns by rows; None for any other floats.

    Stops at the first row that fits no layout: for ordinary floats row 0.
    """
    width = columns if columns % GROUPS[-1] else GROUPS[-1]
    wanted = [columns, *(each for each in GROUPS if columns % each == 0 and width < columns)]
    fits = dict.fromkeys(wanted, True)
    one: np.float32 | None = None
    first: np.float32 | None = None
    single, float16, constant = True, True, True
    for part in _with_a_short_first(parts):
        values = read(part)
        first = values[0, 0] if first is None else first
        constant = constant and bool((values == first).all())
        np.abs(values, out=values)
        groups = values.reshape(len(values), -1, width)
        scales = groups.max(axis=2)
        if not ((groups == scales[:, :, None]) | (groups == 0)).all():
            return None
        for size in wanted:
            together = scales.reshape(len(scales), columns // size, -1)
            fits[size] = fits[size] and _same(together)
        there = scales[scales > 0]
        if len(there):
            one = there[0] if one is None else one
            single = single and bool((there == one).all())
            with np.errstate(over="ignore"):
                float16 = float16 and bool((there.astype(np.float16).astype(np.float32) == there).all())
    if single:
        return FloatLayout("tensor", 0, float16, constant)
    size = next((size for size in wanted if fits[size]), 0)
    if not size:
        return None
    return FloatLayout("row", 0, float16) if size == columns else FloatLayout("group", size, float16)


def split(values: Floats, layout: FloatLayout) -> tuple[NDArray[np.int8], Floats | np.float32]:
    """Codes int8 (N, K), and scales float32: one number, (N,), or (N, K / group). The scale of a row or group of zeros
    is 0; that of a matrix of zeros is 1, because a product takes no scale of 0.

    `values` must be those for which `layout` was found; they are overwritten.
    """
    codes = (values > 0).astype(np.int8)
    codes -= values < 0
    np.abs(values, out=values)
    if layout.scale_per == "tensor":
        return codes, np.float32(np.max(values) or 1)
    size = layout.group or values.shape[1]
    scales = values.reshape(len(values), -1, size).max(axis=2)
    return codes, scales if layout.scale_per == "group" else scales[:, 0]


def has_four_levels(rows: Floats) -> bool:
    """Whether all numbers of some rows are -1.5, -0.5, 0.5 or 1.5 times a scale for each group of 32 columns or more,
    as in 2-bit weights without 0."""
    width = GROUPS[-1] if rows.shape[1] % GROUPS[-1] == 0 else rows.shape[1]
    groups = np.abs(rows).reshape(-1, width)
    low, high = groups.min(axis=1), groups.max(axis=1)
    two = low < high
    levels = ((groups == low[:, np.newaxis]) | (groups == high[:, np.newaxis])).all()
    # bfloat16 rounds each level by at most 2^-8 of it.
    apart = np.abs(high - 3 * low) <= high * np.float32(2.0**-6)
    return bool(levels and two.any() and (low > 0).all() and apart[two].all())


def first_other_than_codes(values: Floats) -> tuple[int, int] | None:
    """The index of the first number that is not -1, 0 or 1, or None."""
    others = (values != 0) & (np.abs(values) != 1)
    if not others.any():
        return None
    row, column = np.unravel_index(int(np.argmax(others)), values.shape)
    return int(row), int(column)


def _same(scales: Floats) -> bool:
    most = scales.max(axis=2, keepdims=True)
    return bool(((scales == most) | (scales == 0)).all())


def _with_a_short_first(parts: list[slice]) -> list[slice]:
    first = parts[0]
    if first.stop - first.start == 1:
        return parts
    return [slice(first.start, first.start + 1), slice(first.start + 1, first.stop), *parts[1:]]
