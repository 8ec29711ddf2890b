"""Convert stored values to float32.

float16 and bfloat16 widen exactly (a bfloat16 is the upper half of a float32). float64 is rounded once, to nearest
even; values that are too large become infinite. NaN and infinity are kept.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.weights.onnx_file import InlineData
from tritmark.harness.weights.plain_file import PlainFile
from tritmark.harness.weights.tensor import DEQUANTIZED

_STORED = {"float32": "<f4", "float16": "<f2", "bfloat16": "<u2", "float64": "<f8"}


def read_float32(
    file: PlainFile | InlineData, dtype: str, shape: tuple[int, ...], offset: int, nbytes: int
) -> NDArray[np.float32]:
    """Read a float32 array of `shape` from the `nbytes` bytes at byte `offset` of `file`.

    `dtype` is one of FLOATS or DEQUANTIZED. Except for float32, memory holds the stored bytes beside the result.
    """
    if nbytes == 0:
        return np.empty(shape, np.float32)
    stored = np.empty(nbytes, np.uint8) if dtype in DEQUANTIZED else np.empty(shape, _STORED[dtype])
    file.read_into(offset, stored.reshape(-1).view(np.uint8).data)
    # Signalling NaNs and float64 values beyond float32's range come from the file; they are not faults here.
    with np.errstate(all="ignore"):
        if dtype == "bfloat16":
            wide = stored.astype(np.uint32)
            wide <<= 16
            return wide.view(np.float32)
        if dtype in DEQUANTIZED:
            from gguf.constants import GGMLQuantizationType
            from gguf.quants import dequantize

            rows = stored.reshape(math.prod(shape[:-1]), -1)
            return dequantize(rows, GGMLQuantizationType[dtype.upper()]).reshape(shape).astype(np.float32, copy=False)
        return stored.astype(np.float32, copy=False)
