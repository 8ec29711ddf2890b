"""Every packer against every unpacker: a format must hold the weights of another unchanged, or refuse them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from typing import Any

import numpy as np

from tritmark.harness.errors import InvalidArgumentError

Shape = tuple[int, int]
_Weights = tuple[Any, Any]
"""Codes, int8 (N, K), and the scale or scales."""

_ROWS = (5, 3, 2, 4, 1)
_COLUMNS = tuple(times << power for times in (3, 1) for power in range(9))
_RAGGED = ((67, 37), (68, 96), (3, 128))
"""Factors on a format's row and column multiples; the first shape that it holds is used. Each has several blocks in
each direction. Odd factors come before round ones."""


class Repacked(StrEnum):
    """The outcome of repacking weights from one format to another."""

    SAME = "same"
    CODES = "codes"
    """Refused: the source has codes that the target cannot store."""
    SCALES = "scales"
    """Refused: the target's scales cover other groups of weights, or their dtype would round them."""
    SHAPE = "shape"
    """Refused: no shape fits both formats."""
    WRONG = "wrong"


@dataclass(frozen=True)
class Repacking:
    """The result for weights packed by `source`, unpacked, and packed into `target`."""

    source: str
    target: str
    outcome: Repacked
    why: str = ""
    """The fault, or why the target refuses the weights."""
    shape: Shape | None = None
    """(N, K) of the weights with this outcome."""


class _ChangedError(Exception):
    """Weights changed when they were packed and unpacked."""


def pairs(formats: Mapping[str, Any]) -> Iterator[Repacking]:
    """Check every pair of formats, in their order, including each format with itself."""
    for source in formats.values():
        unpacked = cache(partial(_unpacked, source))
        for target in formats.values():
            yield _pair(source, target, unpacked)


def _pair(source: Any, target: Any, unpacked: Callable[[Shape], _Weights]) -> Repacking:
    """Check a pair at a shape that fits both, and at an irregular shape of the source, which the target may refuse."""
    common = _first_held(_multiples(source, target), source, target)
    ragged = _first_held(((n * source.row_multiple, k * source.column_multiple) for n, k in _RAGGED), source)
    found: list[Repacking] = []
    for shape in (common, ragged):
        if shape is None:
            continue
        try:
            why = _carried(source, target, shape, unpacked(shape))
        except _ChangedError as wrong:
            return Repacking(source.name, target.name, Repacked.WRONG, str(wrong), shape)
        except Exception as error:  # a third-party format may raise any exception
            return Repacking(source.name, target.name, Repacked.WRONG, f"{type(error).__name__}: {error}", shape)
        if shape == common:
            outcome = Repacked.SAME if why is None else _refused(source, target)
            found.append(Repacking(source.name, target.name, outcome, why or "", shape))
    if found:
        return found[0]
    why = f"no shape was found that fits {source.name} and {target.name}"
    return Repacking(source.name, target.name, Repacked.SHAPE, why)


def _refused(source: Any, target: Any) -> Repacked:
    held = set(source.codes) <= set(target.codes) and target.limit in ("", source.limit)
    return Repacked.SCALES if held else Repacked.CODES


def _unpacked(source: Any, shape: Shape) -> _Weights:
    """Weights that the source packed and unpacked unchanged. Raises _ChangedError otherwise."""
    codes, scale = _weights(source, shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = source.unpack(source.pack(codes, scale, tail="error"), shape, tail="error")
    _compare(source, found, codes, scale)
    return found[0], found[1] if source.scale_stored else scale


def _carried(source: Any, target: Any, shape: Shape, unpacked: _Weights) -> str | None:
    """Why the target refuses the source's weights, or None if it holds them unchanged. Raises _ChangedError."""
    codes, scale = unpacked
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        why: str | None = target.refusal(source, shape)
        if why is None:
            each = _spread(source, scale, shape)
            scale = _gathered(target, each)
            if not np.array_equal(_spread(target, scale, shape), each):
                raise _ChangedError(f"{target.name} cannot store the scales of {source.name}, and does not refuse them")
            packed = target.pack(codes, scale, tail="error")
            _compare(target, target.unpack(packed, shape, tail="error"), codes, scale)
            return None
        if target.holds(shape) and _refused(source, target) is Repacked.SCALES:
            return why
        try:
            target.pack(codes, 1.0, tail="error")
        except InvalidArgumentError:
            return why
        raise _ChangedError(f"{target.name} packs weights that its refusal excludes: {why}")


def _weights(format: Any, shape: Shape) -> _Weights:
    """All codes of a format in random order, and distinct scales that float16 holds exactly."""
    rng = np.random.default_rng(shape)
    codes = format.sample(shape, rng)
    several = format.scale_shape(shape)
    scale = (1 + np.arange(math.prod(several)) % 1024).astype(np.float32).reshape(several) / 64
    return codes, scale[()]


def _compare(format: Any, found: _Weights, codes: Any, scale: Any) -> None:
    if np.shape(found[0]) != np.shape(codes) or np.asarray(found[0]).dtype != np.int8:
        raise _ChangedError(f"{format.name} unpacks codes of another shape or dtype")
    wrong = np.argwhere(found[0] != codes)
    if wrong.size:
        index = tuple(int(i) for i in wrong[0])
        text = f"{found[0][index]} at {index}, expected {codes[index]}"
        raise _ChangedError(f"{format.name} unpacks {len(wrong)} of {codes.size} codes incorrectly: {text}")
    expected = scale if format.scale_stored else np.ones_like(scale)
    if not np.array_equal(found[1], expected):
        raise _ChangedError(f"{format.name} unpacks another scale than it packed")


def _spread(format: Any, scale: Any, shape: Shape) -> Any:
    """The scale of each weight, (N, K)."""
    if format.scale_per == "tensor":
        return np.broadcast_to(scale, shape)
    if format.scale_per == "row":
        return np.broadcast_to(scale[:, np.newaxis], shape)
    return np.repeat(scale, format.group, axis=1)[:, : shape[1]]


def _gathered(format: Any, scale: Any) -> Any:
    """The scales that a format stores, taken from the scale of each weight, (N, K)."""
    if format.scale_per == "tensor":
        return scale[0, 0]
    return scale[:, 0] if format.scale_per == "row" else scale[:, :: format.group]


def _multiples(source: Any, target: Any) -> Iterator[Shape]:
    rows = math.lcm(source.row_multiple, target.row_multiple)
    columns = math.lcm(source.column_multiple, target.column_multiple)
    return ((n * rows, k * columns) for k in _COLUMNS for n in _ROWS)


def _first_held(shapes: Iterator[Shape], *formats: Any) -> Shape | None:
    return next((shape for shape in shapes if all(format.holds(shape) for format in formats)), None)
