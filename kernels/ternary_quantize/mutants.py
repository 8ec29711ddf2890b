"""Mutants of ternary_quantize."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes, EquivalentMutants, KernelKey, Mutant
from tritmark.kernels.numerics.input_dtypes import NARROW, given, other_type
from tritmark.kernels.ternary_quantize.reference import GROUPS, LEAST, pack

Floats = npt.NDArray[np.float32]
_OP = "ternary_quantize"


def _blocks(x: Floats, block: int) -> Floats:
    block = min(block, x.size)
    padded = np.zeros(-(-x.size // block) * block, np.float32)
    padded[: x.size] = x
    return padded.reshape(-1, block)


def _scales(blocks: Floats) -> Floats:
    found: Floats = np.maximum(np.abs(blocks).max(axis=1), LEAST)
    return found


def _codes(blocks: Floats, scales: Floats) -> npt.NDArray[Any]:
    half = 0.5 * scales.astype(np.float64)[:, np.newaxis]
    return (blocks > half).astype(np.int8) - (blocks < -half).astype(np.int8)


def _mutant(
    name: str,
    scales: Callable[[Floats], Floats] = _scales,
    codes: Callable[[Floats, Floats], npt.NDArray[Any]] = _codes,
    read: Callable[[Floats, str], Floats] = given,
    only: Callable[[KernelKey], bool] = lambda key: True,
) -> Mutant:
    def compute(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
        blocks = _blocks(read(inputs["x"], key.input_dtype), axes["block"])
        found = scales(blocks)
        flat = codes(blocks, found).astype(np.int8).reshape(-1)[: axes["n"]]
        return {"codes": pack(flat, key.weight_format, found) if key.weight_format in GROUPS else flat, "scales": found}

    return Mutant(op=_OP, name=name, compute=compute, only=only)


def _joined(blocks: Floats) -> Floats:
    """The maximum of the last block includes the block before it."""
    found = _scales(blocks)
    found[-1:] = found[-2:].max()
    return found


def _early(blocks: Floats) -> Floats:
    """The maximum of each block begins one element early."""
    return _scales(np.roll(blocks.reshape(-1), 1).reshape(blocks.shape))


MUTANTS: tuple[Mutant | EquivalentMutants, ...] = (
    _mutant("blocks begin one element early", scales=_early),
    _mutant("codes by the next block's scale", codes=lambda blocks, scales: _codes(blocks, np.roll(scales, -1))),
    _mutant(
        "codes by the first block's scale",
        codes=lambda blocks, scales: _codes(blocks, np.broadcast_to(scales[:1], scales.shape)),
    ),
    _mutant("the last block joined with the one before", scales=_joined),
    _mutant(
        "the first element of a block not read",
        scales=lambda blocks: np.maximum(np.abs(blocks[:, 1:]).max(axis=1, initial=0), LEAST),
    ),
    _mutant(
        "the last element of a block not read",
        scales=lambda blocks: np.maximum(np.abs(blocks[:, :-1]).max(axis=1, initial=0), LEAST),
    ),
    _mutant("the largest, not the largest magnitude", scales=lambda blocks: np.maximum(blocks.max(axis=1), LEAST)),
    _mutant("the mean magnitude", scales=lambda blocks: np.maximum(np.abs(blocks).mean(axis=1), LEAST)),
    _mutant("no least scale", scales=lambda blocks: np.maximum(np.abs(blocks).max(axis=1), np.float32(1e-38))),
    _mutant("the least scale is 1e-5", scales=lambda blocks: np.maximum(np.abs(blocks).max(axis=1), np.float32(1e-5))),
    _mutant(
        "ties rounded away from zero",
        codes=lambda blocks, s: _codes(blocks, np.nextafter(s, np.float32(0))) * (blocks != 0),
    ),
    _mutant(
        "product with the inverse, ties away",
        codes=lambda blocks, s: np.trunc(blocks * (np.float32(1) / s)[:, np.newaxis] * np.float32(2)).clip(-1, 1),
    ),
    _mutant("read as the other 16-bit type", read=other_type, only=lambda key: key.input_dtype in NARROW),
    EquivalentMutants(op=_OP, mutant="output scales: sign of zero", reason="scales are 1e-8 or more"),
)
