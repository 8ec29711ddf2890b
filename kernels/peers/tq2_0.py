"""llama.cpp's quantizers to TQ2_0 as peers of ternary_quantize, and the inputs for which their rule differs from the
op's.

Both take the largest magnitude a of a block. The op returns 0 up to half of it, by an exact comparison, ties included.
The quantizers round x * (1 / a) in float32, half away from zero. Both agree except if x / a is a half within the two
roundings of that product, and in blocks with a below the op's smallest scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes
from tritmark.kernels.peers.launch import UNIT
from tritmark.kernels.ternary_quantize.reference import GROUPS, LEAST

BLOCK, _BLOCK_BYTES = GROUPS["tq2_0"]
_SMALLEST = 2.0**-149
"""The smallest float32 above zero; the error of a denormal result is at most half of it."""


def refusal(axes: Axes) -> str | None:
    """Why these axes are not admitted, or None."""
    return None if axes["block"] == BLOCK else f"block = {axes['block']}, but its blocks have {BLOCK} values"


def encode(inputs: Arrays, axes: Axes) -> Arrays:
    """The values, padded with zeros to whole blocks."""
    return {"x": _padded(inputs["x"])}


def _padded(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.pad(x, (0, -x.size % BLOCK))


def bound(inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """The allowed difference of each byte of the blocks: 4^g if the two rules may differ for the code in its field g; 0
    for scales."""
    x = np.abs(_padded(inputs["x"]).reshape(-1, BLOCK).astype(np.float64))
    largest = x.max(axis=1, keepdims=True)
    # The error of 1 / a is relative, or half of the smallest number if it is that small; then the product is rounded.
    inverse = np.maximum(UNIT, largest * (_SMALLEST / 2))
    error = (1 + UNIT) * (1 + inverse) - 1
    share = np.divide(x, largest, out=np.zeros_like(x), where=largest > 0)
    # This comparison is in float64, which rounds the quotient.
    apart = (np.abs(share - 0.5) <= 0.5 * error / (1 - error) + 2.0**-53) | ((largest < LEAST) & (x > 0))
    fields = apart.reshape(-1, 2, 4, 32)
    bytes_off = (fields * np.array([1, 4, 16, 64], np.float64)[:, np.newaxis]).sum(axis=2)
    admitted = np.zeros((len(x), _BLOCK_BYTES))
    admitted[:, : BLOCK // 4] = bytes_off.reshape(len(x), -1)
    return {"codes": admitted.reshape(-1)}
