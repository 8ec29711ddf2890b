"""I8_S of bitnet.cpp (GGUF type 37): int8 values (N, K), row by row. A value is worth value * scale.

VibeASR.cpp stores a float32 scale behind the values; other files have none, and the values are worth themselves. The
header does not state it. Bytes behind the values that are not zero are the scale: padding is zero.

Only values -1, 0 and 1 are codes. All others stay what they are: `tritmark convert` copies them.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.weights.gguf_types import I8_S, described, unread_type
from tritmark.harness.weights.source import WeightSource
from tritmark.harness.weights.tensor import TensorInfo

DTYPE = unread_type(I8_S)
"""The dtype of its tensors, which extend to the next tensor."""
_SCALE_BYTES = 4


class FoundInt8(NamedTuple):
    """What a tensor of this type is."""

    scale: np.float32 | None = None
    """The value of code 1; None if the values are no codes."""
    reason: str = ""
    """Why they are not; "" if they are."""


def found(source: WeightSource, tensor: TensorInfo) -> FoundInt8:
    """What a tensor of this type is. Reads the values until one is no code.

    Raises WeightFileError for fewer bytes than values, and for codes with a scale that is not finite and above 0.
    """
    count, done, first, constant = prod(tensor.shape), 0, None, True
    if tensor.nbytes < count:
        raise source.error(tensor.name, f"{tensor.nbytes} bytes of {described(DTYPE)}", f"{count} or more")
    for chunk in source.chunks(tensor.name):
        values = np.frombuffer(chunk, np.int8)[: count - done]
        others = np.flatnonzero((values < -1) | (values > 1))
        if others.size:
            index = tuple(int(each) for each in np.unravel_index(done + int(others[0]), tensor.shape))
            return FoundInt8(reason=f"{described(DTYPE)}: {values[others[0]]} at {list(index)}, ternary is -1, 0 or 1")
        if values.size:
            first = values[0] if first is None else first
            constant = constant and bool((values == first).all())
            done += values.size
    if constant:
        return FoundInt8(reason=f"{described(DTYPE)}: all values are {first}, which does not show that they are codes")
    return FoundInt8(_scale(source, tensor, count))


def codes(source: WeightSource, tensor: TensorInfo) -> NDArray[np.int8]:
    """The values of a tensor whose values are codes."""
    stored = source.read_bytes(tensor.name)[: prod(tensor.shape)]
    return stored.view(np.int8).reshape(tensor.shape)


def _scale(source: WeightSource, tensor: TensorInfo, count: int) -> np.float32:
    behind = source.read_bytes(tensor.name)[count:]
    if not behind.any():
        return np.float32(1)
    if behind.size < _SCALE_BYTES:
        raise source.error(
            tensor.name, f"{behind.size} bytes behind the values, not zero", "a float32 scale, or padding"
        )
    scale = np.float32(behind[:_SCALE_BYTES].copy().view("<f4")[0])
    if not (np.isfinite(scale) and scale > 0):
        raise source.error(tensor.name, f"a scale of {scale} behind the values", "a finite number above 0")
    return scale
