"""Every packer against every unpacker: what one format holds, another must hold unchanged, or refuse."""

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
"""int8 codes (N, K), and the scale or scales."""

_ROWS = (5, 3, 2, 4, 1)
_COLUMNS = tuple(times << power for times in (3, 1) for power in range(9))
_RAGGED = ((67, 37), (68, 96), (3, 128))
"""Multiples of what a format asks N and K for, of which the first that it holds is taken: several blocks in each
direction, and no round numbers before others."""


class Repacked(StrEnum):
    """What became of weights that went from one format into another."""

    SAME = "same"
    CODES = "codes"
    """Refused: the source has codes that the target cannot store."""
    SCALES = "scales"
    """Refused: the target's scales belong to other weights, or their dtype would round them."""
    SHAPE = "shape"
    """Refused: no shape has room in both."""
    WRONG = "wrong"


@dataclass(frozen=True)
class Repacking:
    """What became of weights packed by `source`, unpacked, and packed into `target`."""

    source: str
    target: str
    outcome: Repacked
    why: str = ""
    """What is wrong, or why it is refused."""
    shape: Shape | None = None
    """(N, K) of the weights that this was seen with."""


class _ChangedError(Exception):
    """Weights did not come back as they were."""


def pairs(formats: Mapping[str, Any]) -> Iterator[Repacking]:
    """Every pair of formats, in their order; a format goes into itself too."""
    for source in formats.values():
        unpacked = cache(partial(_unpacked, source))
        for target in formats.values():
            yield _pair(source, target, unpacked)


def _pair(source: Any, target: Any, unpacked: Callable[[Shape], _Weights]) -> Repacking:
    """At a shape that has room in both, and at an awkward one of the source, which the target may refuse."""
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
        except Exception as error:  # whatever a package's format does
            return Repacking(source.name, target.name, Repacked.WRONG, f"{type(error).__name__}: {error}", shape)
        if shape == common:
            outcome = Repacked.SAME if why is None else _refused(source, target)
            found.append(Repacking(source.name, target.name, outcome, why or "", shape))
    if found:
        return found[0]
    why = f"no shape was found that has room in {source.name} and in {target.name}"
    return Repacking(source.name, target.name, Repacked.SHAPE, why)


def _refused(source: Any, target: Any) -> Repacked:
    return Repacked.SCALES if set(source.codes) <= set(target.codes) else Repacked.CODES


def _unpacked(source: Any, shape: Shape) -> _Weights:
    """Weights that the source packed and unpacked unchanged. Raises _ChangedError."""
    codes, scale = _weights(source, shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = source.unpack(source.pack(codes, scale, tail="error"), shape, tail="error")
    _compare(source, found, codes, scale)
    return found[0], found[1] if source.scale_stored else scale


def _carried(source: Any, target: Any, shape: Shape, unpacked: _Weights) -> str | None:
    """Why the target refuses what the source holds, or None where it has it unchanged. Raises _ChangedError."""
    codes, scale = unpacked
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        why: str | None = target.refusal(source, shape)
        if why is None:
            each = _spread(source, scale, shape)
            scale = _gathered(target, each)
            if not np.array_equal(_spread(target, scale, shape), each):
                raise _ChangedError(f"{target.name} does not refuse the scales of {source.name}, which it cannot store")
            packed = target.pack(codes, scale, tail="error")
            _compare(target, target.unpack(packed, shape, tail="error"), codes, scale)
            return None
        if target.holds(shape) and set(source.codes) <= set(target.codes):
            return why
        try:
            target.pack(codes, 1.0, tail="error")
        except InvalidArgumentError:
            return why
        raise _ChangedError(f"{target.name} packs what it says that it cannot: {why}")


def _weights(format: Any, shape: Shape) -> _Weights:
    """Codes of all kinds, and scales that float16 holds exactly, no two of them alike."""
    rng = np.random.default_rng(shape)
    codes = np.resize(np.array(format.codes, np.int8), math.prod(shape))
    several = format.scale_shape(shape)
    scale = (1 + np.arange(math.prod(several)) % 1024).astype(np.float32).reshape(several) / 64
    return rng.permutation(codes).reshape(shape), scale[()]


def _compare(format: Any, found: _Weights, codes: Any, scale: Any) -> None:
    if np.shape(found[0]) != np.shape(codes) or np.asarray(found[0]).dtype != np.int8:
        raise _ChangedError(f"{format.name} unpacks codes of another shape or dtype")
    wrong = np.argwhere(found[0] != codes)
    if wrong.size:
        index = tuple(int(i) for i in wrong[0])
        text = f"{found[0][index]} at {index} and not {codes[index]}"
        raise _ChangedError(f"{format.name} unpacks {len(wrong)} of {codes.size} codes wrong: {text}")
    expected = scale if format.scale_stored else np.ones_like(scale)
    if not np.array_equal(found[1], expected):
        raise _ChangedError(f"{format.name} unpacks another scale than was packed")


def _spread(format: Any, scale: Any, shape: Shape) -> Any:
    """The scale of each weight, (N, K)."""
    if format.scale_per == "tensor":
        return np.broadcast_to(scale, shape)
    if format.scale_per == "row":
        return np.broadcast_to(scale[:, np.newaxis], shape)
    return np.repeat(scale, format.group, axis=1)[:, : shape[1]]


def _gathered(format: Any, scale: Any) -> Any:
    """The scales that a format has, of those of each weight, where it has one for each that differs."""
    if format.scale_per == "tensor":
        return scale[0, 0]
    return scale[:, 0] if format.scale_per == "row" else scale[:, :: format.group]


def _multiples(source: Any, target: Any) -> Iterator[Shape]:
    rows = math.lcm(source.row_multiple, target.row_multiple)
    columns = math.lcm(source.column_multiple, target.column_multiple)
    return ((n * rows, k * columns) for k in _COLUMNS for n in _ROWS)


def _first_held(shapes: Iterator[Shape], *formats: Any) -> Shape | None:
    return next((shape for shape in shapes if all(format.holds(shape) for format in formats)), None)
