"""TQ1_0, the densest ternary format of ggml: blocks of 256 weights of a row in 54 bytes, with a float16 scale each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.spec import WeightType
from tritmark.kernels.formats.absmax import absmax
from tritmark.kernels.formats.bits import slabs
from tritmark.kernels.formats.digits import BYTE, CODE, check_bytes, written
from tritmark.kernels.formats.ggml_blocks import BLOCK, Blocks

_POWERS = np.array([81, 27, 9, 3, 1], np.uint8)
_WRITTEN = {5: written(range(243)), 4: written(range(0, 243, 3))}
"""The bytes that five digits produce, and those of four digits, where the lowest is 0."""


@dataclass(frozen=True, kw_only=True)
class TQ1(Blocks):
    """Five base-3 digits w + 1 per byte, the last weights of a block four per byte; then the float16 scale d.

    `quantize` follows libggml on x86-64, as in TQ2_0. If a NaN makes it drop the magnitudes before it, a digit may
    exceed 2. The bytes are still libggml's; they read back as other weights or are refused.
    """

    parts: tuple[tuple[int, int, int, int, int], ...]
    """Parts of a block: first weight, end of weights, first byte, weights per byte, bytes. Weight j of a part is in
    byte j % bytes, as digit j // bytes from the most significant."""
    any_byte: bool = False
    """Whether bytes that no digits make are read, because all decoders of the original agree on them."""

    def _join(self, weights: NDArray[np.int8], body: NDArray[np.uint8]) -> None:
        for part in slabs(len(body), self.block):
            for first, end, at, count, width in self.parts:
                digits = weights[part, first:end].reshape(-1, count, width).view(np.uint8)
                # Sums are modulo 256, as in libggml; the + 1 of each digit is added at the end.
                value = np.full((len(digits), width), _POWERS[:count].sum(), np.uint8)
                for digit in range(count):
                    value += digits[:, digit] * _POWERS[digit]
                body[part, at : at + width] = BYTE[value]

    def _split(self, body: NDArray[np.uint8], weights: NDArray[np.int8]) -> None:
        for part in slabs(len(body), self.block):
            for first, end, at, count, width in self.parts:
                found = body[part, at : at + width]
                if not self.any_byte:
                    check_bytes(f"formats.{self.name}.unpack", found, _WRITTEN[count], count, block=part.start, at=at)
                digits = weights[part, first:end].reshape(-1, count, width)
                for digit in range(count):
                    digits[:, digit] = CODE[digit][found]


TQ1_0 = TQ1(
    name="tq1_0",
    block=BLOCK,
    column_multiple=BLOCK,
    code_bytes=52,
    parts=((0, 160, 0, 5, 32), (160, 240, 32, 5, 16), (240, 256, 48, 4, 4)),
    scale_per="group",
    group=BLOCK,
    scale_dtype="float16",
    rule=lambda x: absmax(x, BLOCK),
    summary="ggml: blocks of 256 weights in 54 bytes, five per byte, float16 scale each",
    source="libggml 0.25.3, quantize_row_tq1_0_ref",
)

FORMATS = (TQ1_0,)

WEIGHT_TYPES = (WeightType(dtype=TQ1_0.name, layouts={"": TQ1_0.name}),)
