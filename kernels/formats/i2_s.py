"""I2_S, the format of bitnet.cpp, in its three builds: x86, ARM, and x86 with four rows per byte.

Fields w + 1 of 2 bits, the first of four groups of weights in the top bits. One float32 scale is at byte N*K/4; the
original never writes the 28 bytes after it. Blocks of the flat builds cross row ends, and a partial block at the end is
dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import WeightType
from tritmark.kernels.formats.base import Format, Scale, Shape
from tritmark.kernels.formats.bits import join_fields, slabs, split_fields

_TRAILER_BYTES = 32
_ZERO_UP_TO = np.float32(1e-6)
"""The original tests |double(x)| < 1e-6. The float32 nearest to 1e-6 is below it, and the next float32 above it."""


@dataclass(frozen=True, kw_only=True)
class I2S(Format):
    """One of the I2_S builds.

    `lane` is the number of bytes in a block: weight j of a block of 4 * lane is in byte j % lane. With None, a byte
    holds four rows of one column.
    """

    lane: int | None

    def packed_shape(self, shape: Shape) -> tuple[int, ...]:
        """One axis: N*K/4 bytes, rounded down, and 32 for the scale."""
        return (shape[0] * shape[1] // 4 + _TRAILER_BYTES,)

    def _groups(self, codes: NDArray[np.int8]) -> NDArray[np.int8]:
        """The weights that the layout holds as (units, 4, width): group g of a unit is in bits 6 - 2g of its `width`
        bytes."""
        if self.lane is None:
            return codes.reshape(-1, 4, codes.shape[1])
        return codes.reshape(-1)[: codes.size // self.block * self.block].reshape(-1, 4, self.lane)

    def _pack(self, codes: NDArray[np.int8], scale: Scale) -> NDArray[np.uint8]:
        groups = self._groups(codes)
        units, _, width = groups.shape
        out = np.zeros(codes.size // 4 + _TRAILER_BYTES, np.uint8)
        body = out[: units * width].reshape(units, width)
        for part in slabs(units, 4 * width):
            join_fields([groups[part, g] for g in (3, 2, 1, 0)], body[part])
        end = codes.size // 4
        out[end : end + 4] = self._stored(scale).reshape(1).view(np.uint8)
        return out

    def _unpack(self, packed: NDArray[np.uint8], shape: Shape) -> tuple[NDArray[np.int8], Scale]:
        codes = np.full(shape, -1, np.int8)
        groups = self._groups(codes)
        units, _, width = groups.shape
        end = codes.size // 4
        body, tail = packed[: units * width].reshape(units, width), packed[units * width : end]
        if tail.any():
            raise InvalidArgumentError(
                op=f"formats.{self.name}.unpack",
                argument="packed",
                found=f"with nonzero bytes from {units * width} to {end - 1}",
                legal="zero bytes for the tail that the layout drops",
            )
        for part in slabs(units, 4 * width):
            split_fields(body[part], [groups[part, g] for g in (3, 2, 1, 0)])
        return codes, self.stored_scales(packed, shape)

    def stored_scales(self, packed: NDArray[np.uint8], shape: Shape) -> Scale:
        """The scale alone, without the codes."""
        end = shape[0] * shape[1] // 4
        return np.float32(packed[end : end + 4].view("<f4")[0])


def _signs(x: NDArray[np.float32]) -> tuple[NDArray[np.int8], Scale]:
    """The rule of quantize_i2_s: the sign of each weight, or 0 for |x| < 1e-6, and the largest magnitude as the
    scale."""
    # The original computes the largest magnitude with fmax, which ignores NaN.
    scale = np.float32(max(0.0, np.fmax.reduce(x, axis=None), -np.fmin.reduce(x, axis=None)))
    codes = np.empty(x.shape, np.int8)
    for part in slabs(len(x), x.shape[1] * x.itemsize):
        # A NaN fails both comparisons and becomes -1, as in the original.
        np.add((x[part] > _ZERO_UP_TO).view(np.int8), (x[part] >= -_ZERO_UP_TO).view(np.int8), out=codes[part])
        codes[part] -= 1
    return codes, scale


_SOURCE = "microsoft/BitNet@16da220, src/ggml-bitnet-mad.cpp, quantize_i2_s"

I2_S_X86 = I2S(
    name="i2_s_x86",
    block=128,
    lane=32,
    drops_tail=True,
    scale_per="tensor",
    rule=_signs,
    summary="bitnet.cpp on x86: blocks of 128 weights in 32 bytes, the first 32 in the top bits",
    source=f"{_SOURCE} with ACT_PARALLEL",
)

I2_S_ARM = I2S(
    name="i2_s_arm",
    block=64,
    lane=16,
    drops_tail=True,
    scale_per="tensor",
    rule=_signs,
    summary="bitnet.cpp on ARM: blocks of 64 weights in 16 bytes, the first 16 in the top bits",
    source=f"{_SOURCE}, __ARM_NEON branch",
)

I2_S_X86_R4 = I2S(
    name="i2_s_x86_r4",
    block=4,
    lane=None,
    row_multiple=4,
    scale_per="tensor",
    rule=_signs,
    summary="bitnet.cpp on x86 without ACT_PARALLEL: a byte has four rows of a column, the first row in the top bits",
    source=f"{_SOURCE} without ACT_PARALLEL",
)

QK256_I2_S = I2S(
    name="qk256_i2_s",
    block=128,
    lane=32,
    drops_tail=True,
    codes=(-1, 0, 1, 2),
    fields=(0, 1, 2, 3),
    scale_per="tensor",
    rule=_signs,
    summary="BitNet-rs's newer I2_S: the bytes of i2_s_x86, with code 2 for field 3",
    source=f"BitNet-rs, QK256; {_SOURCE} with ACT_PARALLEL",
)

FORMATS = (I2_S_X86, I2_S_ARM, I2_S_X86_R4, QK256_I2_S)

WEIGHT_TYPES = (WeightType(dtype="i2_s", layouts={"x86": "i2_s_x86", "arm": "i2_s_arm", "x86_r4": "i2_s_x86_r4"}),)
"""The files do not record for which build of bitnet.cpp they were written. The default is x86, as in published files;
the others must be requested."""
