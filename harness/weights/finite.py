"""Refuse weights that are NaN or infinite, with the tensor and the index, before a kernel reads them."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.weights.source import WeightSource
from tritmark.harness.weights.tensor import TensorInfo

SLAB = 1 << 20
"""Elements that are checked at a time: 4 MiB of float32."""


def slabs(shape: tuple[int, ...], elements: int = SLAB) -> list[slice]:
    """Slices of rows with about `elements` elements each, at least one row."""
    step = max(1, elements // max(1, prod(shape[1:])))
    return [slice(first, min(first + step, shape[0])) for first in range(0, shape[0], step)]


def require_finite(source: WeightSource, tensor: TensorInfo) -> None:
    """Raise WeightFileError for a NaN or an infinity in a float tensor of 2 or more dimensions."""
    for rows in slabs(tensor.shape):
        check_finite(source, tensor.name, source.read(tensor.name, rows), rows.start)


def check_finite(source: WeightSource, name: str, values: NDArray[np.float32], first_row: int = 0) -> None:
    """Raise WeightFileError for a NaN or an infinity in `values`, which were read from row `first_row`."""
    if np.isfinite(values).all():
        return
    index = [int(each) for each in np.unravel_index(int(np.argmin(np.isfinite(values))), values.shape)]
    value = values[tuple(index)]
    if index:
        index[0] += first_row
    raise source.error(name, f"{value} at {index}", "finite numbers; is the file damaged?")


def scales_finite(source: WeightSource, name: str, scale: Any) -> None:
    """Raise WeightFileError for a NaN or an infinity in the scales (any shape) of the tensor `name`."""
    scales = np.asarray(scale)
    bad = ~np.isfinite(scales)
    if bad.any():
        index = tuple(int(each) for each in np.unravel_index(int(np.argmax(bad)), scales.shape))
        where = ("", "row {}", "row {}, block {}")[len(index)].format(*index)
        raise source.error(name, f"a scale of {scales[index]}" + (f" in {where}" if where else ""), "finite scales")
