"""Convert scales of ternary weights to the rows or groups of another format, exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.weights.names import inert
from tritmark.harness.weights.ternary import CodeFormat

Scales = NDArray[np.float32]


def fitted(name: str, scale: Any, shape: tuple[int, int], target: CodeFormat) -> Any:
    """The scales in the shape that `target` needs for weights (N, K). They are repeated if it has more scales, and
    merged if it has fewer and all merged scales are equal.

    Raises InvalidArgumentError with the tensor `name`, the value and its index if merged scales differ, and for a scale
    that the target's dtype does not hold exactly.
    """
    scales = by_row(scale, shape)
    groups = scales.shape[1]
    wanted = shape[1] // target.group if target.scale_per == "group" else 1
    finest = int(np.lcm(wanted, groups))
    together = np.repeat(scales, finest // groups, axis=1).reshape(shape[0], wanted, -1)
    _same(name, together, together[:, :, :1], f"one scale per {'row' if wanted == 1 else f'group of {target.group}'}")
    scales = together[:, :, 0]
    if target.scale_per == "tensor":
        _same(name, scales, scales[:1], "one scale for the tensor")
        scales = scales[:1]
    with np.errstate(over="ignore"):
        stored = scales.astype(target.scale_dtype).astype(np.float32)
    lost = stored.view(np.uint32) != scales.view(np.uint32)
    lost &= ~(np.isnan(stored) & np.isnan(scales))
    if lost.any():
        index = _first(lost)
        legal = f"a number that {target.scale_dtype} holds exactly"
        raise _unfit(name, f"with a scale of {scales[index]} at {index}", legal)
    if target.scale_per == "tensor":
        return np.float32(scales[0, 0])
    return np.ascontiguousarray(scales.reshape(target.scale_shape(shape)))


def by_row(scale: Any, shape: tuple[int, int]) -> Scales:
    """Scales of any shape as float32 (N, G), with G scales per row."""
    scales = np.asarray(scale, np.float32)
    if scales.ndim < 2:
        scales = scales.reshape(-1, 1)
    return np.broadcast_to(scales, (shape[0], scales.shape[1]))


def first_difference(a: Scales, b: Scales) -> tuple[int, int] | None:
    """Row and group of the first scale that differs, in the finer grouping; both arguments come from by_row."""
    groups = int(np.lcm(a.shape[1], b.shape[1]))
    a, b = (np.repeat(each, groups // each.shape[1], axis=1) for each in (a, b))
    differs = (a != b) & ~(np.isnan(a) & np.isnan(b))
    return _first(differs) if differs.any() else None


def _same(name: str, scales: Scales, first: Scales, legal: str) -> None:
    differs = (scales != first) & ~(np.isnan(scales) & np.isnan(first))
    if differs.any():
        index = _first(differs)
        place = _first(differs.reshape(len(differs), -1))
        before = np.broadcast_to(first, scales.shape)[index]
        raise _unfit(name, f"with different scales: {scales[index]} at {place}, {before} before", legal)


def _first(mask: NDArray[np.bool_]) -> Any:
    return tuple(int(each) for each in np.unravel_index(int(np.argmax(mask)), mask.shape))


def _unfit(name: str, found: str, legal: str) -> InvalidArgumentError:
    return InvalidArgumentError(op="convert", argument=f"tensor {inert(name)}", found=found, legal=legal)
