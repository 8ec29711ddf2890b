"""ternary_quantize in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes, KernelKey
from tritmark.kernels.formats.bits import join_fields, slabs, split_fields

LEAST = np.float32(1e-8)
"""The smallest scale."""
GROUP, GROUP_BYTES = 128, 32
"""The packed output's unit, that of I2_S x86."""


def reference(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """By block, scale = max(absmax, 1e-8) and q = (x > scale / 2) - (x < -scale / 2): halves and comparisons in float64, so exact."""
    x, n = inputs["x"], axes["n"]
    block = min(axes["block"], n)
    padded = np.zeros(-(-n // block) * block, np.float32)
    padded[:n] = x
    blocks = padded.reshape(-1, block)
    scales = np.maximum(np.abs(blocks).max(axis=1), LEAST)
    half = 0.5 * scales.astype(np.float64)[:, np.newaxis]
    codes = ((blocks > half).astype(np.int8) - (blocks < -half).astype(np.int8)).reshape(-1)[:n]
    return {"codes": codes if key.format == "none" else pack(codes), "scales": scales}


def pack(codes: npt.NDArray[np.int8]) -> npt.NDArray[np.uint8]:
    """Codes in groups of 128 as I2_S x86 lays them out, without its scale; the last group is filled up with 0."""
    groups = np.zeros((-(-codes.size // GROUP), 4, GROUP_BYTES), np.int8)
    groups.reshape(-1)[: codes.size] = codes
    packed = np.empty((len(groups), GROUP_BYTES), np.uint8)
    for part in slabs(len(groups), GROUP):
        join_fields([groups[part, j] for j in (3, 2, 1, 0)], packed[part])
    return packed.reshape(-1)


def unpack(packed: npt.NDArray[np.uint8], n: int) -> npt.NDArray[np.int8]:
    """The first `n` codes of what `pack` gives."""
    source = packed.reshape(-1, GROUP_BYTES)
    groups = np.empty((len(source), 4, GROUP_BYTES), np.int8)
    for part in slabs(len(groups), GROUP):
        split_fields(source[part], [groups[part, j] for j in (3, 2, 1, 0)])
    return groups.reshape(-1)[:n]
