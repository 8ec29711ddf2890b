"""The 2-bit words of GPTQ, packed along K; scales and zero points are separate tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.weights.format_names import GPTQ_2
from tritmark.kernels.formats.base import LayoutOption, Scale, Shape
from tritmark.kernels.formats.zero_points import ZeroPointed, with_group_size

_IN_WORD = 16


@dataclass(frozen=True, kw_only=True)
class GptqWords(ZeroPointed):
    """The tensor `qweight` with 2 bits: int32 (K / 16, N) as bytes. Word (k / 16, n) holds 16 weights of row n from the
    lowest bits up, each the field w + 2.

    2 is the zero point of GPTQ's symmetric quantization; `unpack` takes other ones. `group_size` is that of the scales;
    the bytes do not depend on it.
    """

    def laid_out(self, op: str, options: Mapping[str, LayoutOption]) -> GptqWords:
        return cast(GptqWords, with_group_size(self, op, dict(options)))

    def packed_shape(self, shape: Shape) -> tuple[int, ...]:
        """Two axes: K / 16 rows of N words."""
        return shape[1] // _IN_WORD, 4 * shape[0]

    def row_ranges(self, shape: Shape, begin: int, end: int) -> list[tuple[int, int]]:
        """See Format: a word of each row for each 16 columns."""
        words = range(0, shape[1] // _IN_WORD * 4 * shape[0], 4 * shape[0])
        return [(word + 4 * begin, word + 4 * end) for word in words]

    def _pack(self, codes: NDArray[np.int8], scale: Scale) -> NDArray[np.uint8]:
        n, k = codes.shape
        by_row = np.empty((n, k // 4), np.uint8)
        self._pack_rows(codes, by_row)
        return by_row.reshape(n, k // _IN_WORD, 4).transpose(1, 0, 2).reshape(self.packed_shape((n, k)))

    def _unpack(self, packed: NDArray[np.uint8], shape: Shape) -> tuple[NDArray[np.int8], Scale]:
        n, k = shape
        words = packed.reshape(k // _IN_WORD, n, 4).transpose(1, 0, 2)
        return super()._unpack(np.ascontiguousarray(words).reshape(-1), shape)


FORMAT = GptqWords(
    name=GPTQ_2,
    block=_IN_WORD,
    group=128,
    column_multiple=_IN_WORD,
    fields=(1, 2, 3),
    scale_per="group",
    scale_stored=False,
    options=("group_size",),
    summary="GPTQ, 2 bits: 16 weights of a row per int32, rows next to each other; scales and zero points beside them",
    source="AutoGPTQ and GPTQModel, qweight of QuantLinear.pack",
)

FORMATS = (FORMAT,)
