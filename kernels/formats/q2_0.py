"""Q2_0 of ggml and PQ2_0 of PrismML: blocks of 64 and of 128 weights of a row, with a float16 scale and two bits per
weight, which can also encode +2."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.spec import WeightType
from tritmark.kernels.formats.base import Format, Rule, Scale, Shape
from tritmark.kernels.formats.bits import join_fields, slabs, split_fields

_INT32 = np.float32(2.0**31)
"""From this value up a float32 exceeds int32."""


class Q2(Format):
    """Blocks of `group` weights: the float16 scale d, then weight e in byte e/4 at bits 2*(e%4), as the field w + 1;
    field 3 is +2.

    `quantize` follows the original on x86-64: d is float16(a), with a the largest magnitude, ignoring NaN. The field is
    roundf(x * (1/a)) + 1 in float32, clamped to 0..3, so it is never +2. Unusual values behave as in the original: a
    product that is NaN or exceeds int32 becomes -1, for instance the whole block if 1/a is infinite.
    """

    def packed_shape(self, shape: Shape) -> tuple[int, ...]:
        """Two axes: N rows of K/group blocks."""
        return shape[0], shape[1] // self.group * (self.group // 4 + 2)

    def _pack(self, codes: NDArray[np.int8], scale: Scale) -> NDArray[np.uint8]:
        out = np.empty(self.packed_shape(codes.shape), np.uint8)
        blocks, weights = out.reshape(-1, self.group // 4 + 2), codes.reshape(-1, self.group // 4, 4)
        blocks[:, :2] = self._stored(scale).reshape(-1, 1).view(np.uint8)
        for part in slabs(len(blocks), self.group):
            join_fields([weights[part, :, g] for g in range(4)], blocks[part, 2:])
        return out

    def _unpack(self, packed: NDArray[np.uint8], shape: Shape) -> tuple[NDArray[np.int8], Scale]:
        codes = np.empty(shape, np.int8)
        blocks, fours = packed.reshape(-1, self.group // 4 + 2), codes.view(np.uint32).reshape(-1, self.group // 4)
        for part in slabs(len(blocks), self.group):
            np.take(_FOURS, blocks[part, 2:], out=fours[part], mode="clip")
        return codes, self.stored_scales(packed, shape)

    def stored_scales(self, packed: NDArray[np.uint8], shape: Shape) -> Scale:
        """See Format."""
        blocks = packed.reshape(-1, self.group // 4 + 2)
        stored = np.ascontiguousarray(blocks[:, :2]).view("<f2")
        return stored.astype(np.float32).reshape(shape[0], -1)


def _fours() -> NDArray[np.uint32]:
    """The four codes of each byte."""
    codes = np.empty((256, 4), np.int8)
    split_fields(np.arange(256, dtype=np.uint8), list(codes.T))
    return codes.view(np.uint32).reshape(-1)


_FOURS = _fours()


def _rule(group: int) -> Rule:
    """The rule of quantize_row_q2_0_ref."""

    def rule(x: NDArray[np.float32]) -> tuple[NDArray[np.int8], Scale]:
        blocks = x.reshape(-1, group)
        codes, scales = np.empty(blocks.shape, np.int8), np.empty(len(blocks), np.float32)
        for part in slabs(len(blocks), group * x.itemsize):
            codes[part], scales[part] = _blocks(blocks[part])
        return codes.reshape(x.shape), scales.reshape(len(x), -1)

    return rule


def _blocks(blocks: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    largest: NDArray[np.float32] = np.fmax.reduce(np.abs(blocks), axis=1, initial=np.float32(0))
    with np.errstate(all="ignore"):
        inverse = np.where(largest > 0, np.float32(1) / largest, np.float32(0))
        scaled = blocks * inverse[:, np.newaxis]
        outside = ~(np.abs(scaled) < _INT32)
        # Half away from zero. Products are in -1..1, so a magnitude of 0.5 or more becomes 1.
        codes = (scaled >= 0.5).astype(np.int8) - (scaled <= -0.5)
    codes[outside] = -1
    return codes, largest


Q2_0 = Q2(
    name="q2_0",
    block=64,
    column_multiple=64,
    scale_per="group",
    group=64,
    scale_dtype="float16",
    codes=(-1, 0, 1, 2),
    fields=(0, 1, 2, 3),
    rule=_rule(64),
    summary="ggml: blocks of 64 weights in 18 bytes, float16 scale each, -1 to 2",
    source="ggml-org/ggml@d99724f, quantize_row_q2_0_ref",
)
PQ2_0 = Q2(
    name="pq2_0",
    block=128,
    column_multiple=128,
    scale_per="group",
    group=128,
    scale_dtype="float16",
    codes=(-1, 0, 1, 2),
    fields=(0, 1, 2, 3),
    rule=_rule(128),
    summary="PrismML: blocks of 128 weights in 34 bytes, float16 scale each, -1 to 2",
    source="PrismML-Eng/llama.cpp@811dce5, quantize_row_pq2_0_ref",
)

FORMATS = (Q2_0, PQ2_0)

WEIGHT_TYPES = (
    *(WeightType(dtype=each.name, layouts={"": each.name}) for each in FORMATS),
    # If the positions of the tensors do not determine the format.
    WeightType(dtype="type_42", layouts={"g64": Q2_0.name, "g128": PQ2_0.name}, written=False, usual=False),
)
