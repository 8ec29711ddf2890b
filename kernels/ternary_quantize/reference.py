"""ternary_quantize in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes, KernelKey
from tritmark.kernels.formats.bits import join_fields, slabs, split_fields
from tritmark.kernels.formats.row16 import join_words, split_words
from tritmark.kernels.numerics.input_dtypes import given

LEAST = np.float32(1e-8)
"""The smallest scale."""
GROUPS = {"i2_s_x86": (128, 32), "row16": (64, 16), "tq2_0": (256, 66)}
"""For each packed output, the codes of a unit and their bytes. The last unit is padded with code 0."""


def reference(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """By block, scale = max(absmax, 1e-8) and q = (x > scale / 2) - (x < -scale / 2): halves and comparisons in
    float64, so exact."""
    x, n = given(inputs["x"], key.input_dtype), axes["n"]
    block = min(axes["block"], n)
    padded = np.zeros(-(-n // block) * block, np.float32)
    padded[:n] = x
    blocks = padded.reshape(-1, block)
    scales = np.maximum(np.abs(blocks).max(axis=1), LEAST)
    half = 0.5 * scales.astype(np.float64)[:, np.newaxis]
    codes = ((blocks > half).astype(np.int8) - (blocks < -half).astype(np.int8)).reshape(-1)[:n]
    return {"codes": pack(codes, key.weight_format, scales) if key.weight_format in GROUPS else codes, "scales": scales}


def pack(codes: npt.NDArray[np.int8], format: str, scales: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Codes as a stream: I2_S x86 or row16 without their scale, or TQ2_0 blocks, each with its scale as float16."""
    group, size = GROUPS[format]
    groups = np.zeros((-(-codes.size // group), group), np.int8)
    groups.reshape(-1)[: codes.size] = codes
    if format == "row16":
        return join_words(groups.reshape(1, -1)).reshape(-1)
    packed = np.empty((len(groups), size), np.uint8)
    for part in slabs(len(groups), group):
        join_fields(_fields(groups[part], format), _bytes(packed[part]))
    if format == "tq2_0":
        with np.errstate(over="ignore"):
            packed[:, -2:] = scales.astype("<f2")[:, np.newaxis].view(np.uint8)
    return packed.reshape(-1)


def unpack(packed: npt.NDArray[np.uint8], n: int, format: str = "i2_s_x86") -> npt.NDArray[np.int8]:
    """The first `n` codes of the output of `pack`."""
    group, size = GROUPS[format]
    if format == "row16":
        return split_words(packed.reshape(1, -1)).reshape(-1)[:n]
    source = packed.reshape(-1, size)
    groups = np.empty((len(source), group), np.int8)
    for part in slabs(len(groups), group):
        split_fields(_bytes(source[part]), _fields(groups[part], format))
    return groups.reshape(-1)[:n]


def _fields(groups: npt.NDArray[np.int8], format: str) -> list[npt.NDArray[np.int8]]:
    """The codes that go to bits 0-1, 2-3, 4-5 and 6-7: views (groups, halves, 32)."""
    lanes = groups.reshape(len(groups), -1, 4, 32)
    return [lanes[:, :, j] for j in ((3, 2, 1, 0) if format == "i2_s_x86" else (0, 1, 2, 3))]


def _bytes(packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The bytes of codes (groups, halves, 32), a view: bytes after the last whole 32 are a scale."""
    halves = packed.shape[1] // 32
    return packed[:, : 32 * halves].reshape(len(packed), halves, 32)
