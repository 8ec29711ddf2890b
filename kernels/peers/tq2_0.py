"""What llama.cpp's quantizers to TQ2_0 make of ternary_quantize's inputs, and where their rule and the op's may part.

Both take the largest magnitude a of a block. The op gives 0 up to a half of it, exactly compared, ties included; the
quantizers round x * (1 / a), computed in float32, half away from zero. So both agree but where x / a is a half to
within the two roundings of that product, and in blocks whose a is under the op's smallest scale.
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
"""The smallest float32 above zero; a result below the normal ones is off by up to half of it."""


def refusal(axes: Axes) -> str | None:
    """Why these axes are not admitted, or None."""
    return None if axes["block"] == BLOCK else f"block = {axes['block']}, and its blocks have {BLOCK} values"


def encode(inputs: Arrays, axes: Axes) -> Arrays:
    """The values, filled up with zeros to whole blocks."""
    return {"x": _padded(inputs["x"])}


def _padded(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.pad(x, (0, -x.size % BLOCK))


def bound(inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """For each byte of the blocks how far it may be off: 4^g where the two rules may part for the code in its field
    g; scales never."""
    x = np.abs(_padded(inputs["x"]).reshape(-1, BLOCK).astype(np.float64))
    largest = x.max(axis=1, keepdims=True)
    # 1 / a is rounded relatively, or by half of the smallest number where it is that small; then the product is.
    inverse = np.maximum(UNIT, largest * (_SMALLEST / 2))
    error = (1 + UNIT) * (1 + inverse) - 1
    share = np.divide(x, largest, out=np.zeros_like(x), where=largest > 0)
    # The comparison itself is made in float64, which rounds the quotient.
    apart = (np.abs(share - 0.5) <= 0.5 * error / (1 - error) + 2.0**-53) | ((largest < LEAST) & (x > 0))
    fields = apart.reshape(-1, 2, 4, 32)
    bytes_off = (fields * np.array([1, 4, 16, 64], np.float64)[:, np.newaxis]).sum(axis=2)
    admitted = np.zeros((len(x), _BLOCK_BYTES))
    admitted[:, : BLOCK // 4] = bytes_off.reshape(len(x), -1)
    return {"codes": admitted.reshape(-1)}
