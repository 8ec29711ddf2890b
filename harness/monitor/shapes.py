"""Shape classes: shapes whose times are added up."""

from __future__ import annotations

from collections.abc import Sequence

EXACT = 8
"""The first axis is exact up to this size."""


def shape_class(axes: Sequence[tuple[str, int]]) -> str:
    """The class of a shape, such as "M=9..16 N=2560 K=2560".

    The first axis is what changes from call to call: the rows of a product, the elements of an elementwise op. It is
    exact up to EXACT and then rounded up to a power of two. All other axes are exact.
    """
    return " ".join(
        f"{name}={size}" if number or size <= EXACT else f"{name}={_range(size)}"
        for number, (name, size) in enumerate(axes)
    )


def _range(size: int) -> str:
    above = 1 << (size - 1).bit_length()
    return f"{above // 2 + 1}..{above}"
