"""The 2-bit words of compressed-tensors' pack-quantized compressor; scales are a separate tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from tritmark.harness.weights.format_names import COMPRESSED_TENSORS_2
from tritmark.kernels.formats.base import LayoutOption
from tritmark.kernels.formats.zero_points import ZeroPointed, with_group_size


@dataclass(frozen=True, kw_only=True)
class PackQuantized(ZeroPointed):
    """The words of pack_to_int32 with num_bits = 2: int32 (N, K / 16 rounded up) as bytes, 16 weights of a row from the
    lowest bits up, each the field w + 2. Fields beyond K are 0.

    The original also stores -2 as field 0, which is no ternary weight. With zero points, which the original packs along
    N, a weight is field - 2 - zero point; `unpack` takes zero point + 2. `group_size` is that of the scales; the bytes
    do not depend on it.
    """

    def laid_out(self, op: str, options: Mapping[str, LayoutOption]) -> PackQuantized:
        return cast(PackQuantized, with_group_size(self, op, dict(options)))


FORMAT = PackQuantized(
    name=COMPRESSED_TENSORS_2,
    block=16,
    group=128,
    fields=(1, 2, 3),
    scale_per="group",
    scale_stored=False,
    options=("group_size",),
    summary="compressed-tensors, pack-quantized, 2 bits: 16 weights of a row per int32, scales beside them",
    source="compressed-tensors 0.20.1, compressors/pack_quantized/helpers.py, pack_to_int32",
)

FORMATS = (FORMAT,)
