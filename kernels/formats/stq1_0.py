"""STQ1_0, a sparse ternary format of forks of llama.cpp: blocks of 256 weights in 42 bytes with a float16 scale.

Exactly one of every four weights is 0, so it cannot hold arbitrary ternary matrices: `pack` refuses them with the first
group that has no such zero. The two layouts differ in which four weights form a group.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import WeightType
from tritmark.kernels.formats.base import Scale, Shape
from tritmark.kernels.formats.bits import slabs
from tritmark.kernels.formats.ggml_blocks import BLOCK, Blocks

_QUADS = bytes.fromhex(
    "a9 89 29 09 a6 86 26 06 9a 92 1a 12 6a 62 4a 42 01 21 81 a1 04 24 84 a4 10 18 90 98 40 48 60 68"
)
"""By 16 * sign + slot: four fields w + 1, the first weight in the lowest bits."""
_CODES = ((np.frombuffer(_QUADS, np.uint8)[:, np.newaxis] >> np.arange(0, 8, 2)) & 3).astype(np.int8) - np.int8(1)
_NUMBER = np.full(256, -1, np.int8)
_NUMBER[np.frombuffer(_QUADS, np.uint8)] = np.arange(32)
"""Inverse of _CODES by the byte of the fields; -1 for other groups of four codes."""


@dataclass(frozen=True, kw_only=True)
class Stq(Blocks):
    """64 slots of 4 bits, even ones in the low bits, then 64 signs, the first in the lowest bit. A slot and its sign
    encode four weights at a distance of `apart`. The float16 scale d follows.

    `quantize` follows the first original: d is the largest magnitude of a block, the first smallest magnitude of a
    group becomes 0, and the others become their signs, -1 below 0 and 1 for any other. (A later encoder
    of the layout with weights 16 apart finds d by least squares.)
    """

    apart: int

    def _fours(self, weights: NDArray[np.int8]) -> NDArray[np.int8]:
        """A view (blocks, 64 / apart, apart, 4), in order of groups and then of members."""
        return fours_of(weights, self.apart)

    def sample(self, shape: Shape, rng: np.random.Generator) -> NDArray[np.int8]:
        codes = rng.choice(np.array([-1, 1], np.int8), shape)
        fours = self._fours(codes.reshape(-1, self.block))
        np.put_along_axis(fours, rng.integers(0, 4, (*fours.shape[:-1], 1)), 0, axis=-1)
        return codes

    def _join(self, weights: NDArray[np.int8], body: NDArray[np.uint8]) -> None:
        for part in slabs(len(body), BLOCK):
            fields = (self._fours(weights[part]) + 1).astype(np.uint8)
            numbers = _NUMBER[(fields << np.arange(0, 8, 2, dtype=np.uint8)).sum(-1, dtype=np.uint8)]
            numbers = numbers.reshape(len(numbers), -1)
            if (numbers < 0).any():
                block, group = (int(each) for each in np.argwhere(numbers < 0)[0])
                raise InvalidArgumentError(
                    op=f"formats.{self.name}.pack",
                    argument="codes",
                    found=f"without exactly one 0 in group {group} of block {part.start + block}",
                    legal=self.limit,
                )
            slots = numbers.astype(np.uint8) & 15
            body[part, :32] = slots[:, ::2] | slots[:, 1::2] << 4
            body[part, 32:] = np.packbits(numbers >= 16, axis=1, bitorder="little")

    def _split(self, body: NDArray[np.uint8], weights: NDArray[np.int8]) -> None:
        for part in slabs(len(body), BLOCK):
            slots = np.stack([body[part, :32] & 15, body[part, :32] >> 4], axis=2).reshape(-1, 64)
            signs = np.unpackbits(body[part, 32:], axis=1, bitorder="little")
            fours = self._fours(weights[part])
            fours[...] = _CODES[slots | signs << 4].reshape(fours.shape)


def fours_of(weights: NDArray[Any], apart: int) -> NDArray[Any]:
    """A view (blocks, 64 / apart, apart, 4) of weights (blocks, 256): groups of four weights that are `apart`."""
    return weights.reshape(len(weights), -1, 4, apart).swapaxes(2, 3)


def _rule(x: NDArray[np.float32], apart: int) -> tuple[NDArray[np.int8], Scale]:
    """The rule of quantize_row_stq1_0_ref."""
    codes = np.empty(x.shape, np.int8)
    scales = np.empty(x.size // BLOCK, np.float32)
    blocks, weights = x.reshape(-1, BLOCK), codes.reshape(-1, BLOCK)
    for part in slabs(len(blocks), BLOCK * x.itemsize):
        magnitudes = np.abs(blocks[part])
        scales[part] = magnitudes.max(axis=1)
        weights[part] = np.where(blocks[part] < 0, -1, 1)
        smallest = fours_of(magnitudes, apart).argmin(axis=-1)[..., np.newaxis]
        np.put_along_axis(fours_of(weights[part], apart), smallest, 0, axis=-1)
    return codes, scales.reshape(len(x), -1)


def _of(name: str, apart: int, summary: str, source: str) -> Stq:
    return Stq(
        name=name,
        block=BLOCK,
        column_multiple=BLOCK,
        code_bytes=40,
        scale_per="group",
        group=BLOCK,
        scale_dtype="float16",
        apart=apart,
        limit=f"exactly one 0 in every four weights, {apart} apart",
        rule=partial(_rule, apart=apart),
        summary=summary,
        source=source,
    )


STQ1_0 = _of(
    "stq1_0", 16, "llama.cpp's forks, type 43: one of four weights, 16 apart, is 0", "ggml-org/llama.cpp PR 22836"
)
STQ1_0_QUADS = _of(
    "stq1_0_quads",
    1,
    "llama.cpp's forks, type 42: one of four adjacent weights is 0",
    "sjl623/llama.cpp@9b898c1 (PR 22836, May 2026)",
)
FORMATS = (STQ1_0, STQ1_0_QUADS)

WEIGHT_TYPES = (
    WeightType(dtype=STQ1_0.name, layouts={"": STQ1_0.name}),
    # Under the number of Q2_0.
    WeightType(dtype="type_42_stq", layouts={"quads": STQ1_0_QUADS.name, "stride16": STQ1_0.name}, written=False),
)
